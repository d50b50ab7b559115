package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// eventRoute is the route as idempotency keys know it.
const eventRoute = "POST /v1/events"

// event is POST /v1/events: 202 with what became of it, or 200 with what became of the first one of the same idempotency key. Its fields
// are a callback's; those that are each endpoint's own the engine refuses by their names.
func (a *API) event(ctx context.Context, c *gin.Context, who caller) error {
	body, err := readJSON(c, maxRequest)
	if err != nil {
		return err
	}
	sub, err := decodeSubmission(body)
	if err != nil {
		return err
	}
	headerIdempotency(&sub, c.Request.Header)
	bindIdempotency(&sub, eventRoute, body)
	r, err := a.Engine.AcceptEvent(ctx, who.Project, sub)
	if err != nil {
		return err
	}
	o := jsonObject{append(make([]byte, 0, 64+32*len(r.Callbacks)), '{')}
	o.id("id", store.EventPrefix, r.ID)
	o.key("callbacks")
	o.b = append(o.b, '[')
	for i, id := range r.Callbacks {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = appendString(o.b, store.CallbackPrefix+id)
	}
	o.b = append(o.b, ']')
	status := http.StatusAccepted
	if r.Replayed {
		status = http.StatusOK
		o.boolean("replayed", true)
	}
	o.close()
	a.answer(c, status, o.b)
	return nil
}
