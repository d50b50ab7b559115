package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// stop handles GET /v1/stop: whether all sending of the installation is stopped.
func (a *API) stop(ctx context.Context, c *gin.Context, _ caller) error {
	return reply(a, c, http.StatusOK, stopOf)(a.Engine.SendingStop(ctx))
}

// setStop returns the handler of POST /v1/stop or /v1/start. read reads the end of the stop and the reason.
func (a *API) setStop(read func(c *gin.Context) (until int64, reason string, err error)) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		until, reason, err := read(c)
		if err != nil {
			return err
		}
		return reply(a, c, http.StatusOK, stopOf)(a.Engine.StopSending(ctx, until, who.By(reason)))
	}
}

func stopOf(s *store.Stop) client.Stop {
	return client.Stop{
		Stopped: s.At != 0, Since: moment(s.At), Until: endTime(s.Until), Reason: s.Reason, By: s.By,
	}
}
