package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// outcomes is GET /v1/outcomes: oldest first. Its cursor is a place that a reader keeps, not the end of a page: it is there even when
// there is nothing new.
func (a *API) outcomes(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	var after store.OutcomeCursor
	if s := q.One("cursor"); s != "" {
		if after, err = q.Cursors.DecodeOutcome(s); err != nil {
			q.Add("cursor", err.Error())
		}
	}
	limit := q.Number("limit", 1, query.MaxLimit, query.DefaultLimit)
	wait := q.Wait("wait", report.MaxOutcomeWait)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	events, next, err := a.Engine.Outcomes(ctx, who.Project, after, limit, wait)
	if err != nil {
		if !errors.Is(err, context.Canceled) || c.Request.Context().Err() == nil {
			return err
		}
		// The reader did not want to wait any longer: no failure of the server's. Nobody reads this.
		events, next = nil, after
	}
	o := jsonObject{append(make([]byte, 0, 128+512*len(events)), `{"data":[`...)}
	for i := range events {
		o.element(i)
		o.outcome(&events[i])
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, q.Cursors.EncodeOutcome(next)))
	return nil
}

// outcome writes the members of an outcome. What its callback says is null, or empty, when that has been purged.
func (o *jsonObject) outcome(e *store.TerminalEvent) {
	o.id("id", store.CallbackPrefix, e.ID)
	o.orNull("kind", string(e.Kind))
	o.id("endpoint_id", store.EndpointPrefix, e.EndpointID)
	o.orNull("topic", e.Topic)
	o.orNull("ref", e.Ref)
	o.labels(e.Labels)
	o.str("state", string(e.State))
	o.orNull("reason", string(e.Reason))
	o.instant("at", e.At)
	o.integer("attempt_count", int64(e.AttemptCount))
	o.intOrNull("last_status", e.LastStatus)
	o.orNull("last_class", string(e.LastClass))
}
