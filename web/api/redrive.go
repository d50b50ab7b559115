package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createRedrive is POST /v1/redrives: 202 with the job, or 200 with what a dry run has counted.
func (a *API) createRedrive(ctx context.Context, c *gin.Context, who caller) error {
	var (
		d      redriveDecoder
		reason string
	)
	if err := readObject(c, false, &d.fields, func(key, value []byte) bool {
		return d.member(key, value) || d.reason(key, value, &reason)
	}); err != nil {
		return err
	}
	q, err := d.done(ctx, a, who.Project)
	if err != nil {
		return err
	}
	r, err := a.Engine.Redrive(ctx, who.Project, q, who.By(reason))
	if err != nil {
		return err
	}
	o, status := jsonObject{[]byte("{")}, http.StatusAccepted
	if q.DryRun {
		status = http.StatusOK
		o.redriveAsked(&r)
		o.integer("matched", r.Matched)
		o.boolean("dry_run", true)
	} else {
		o.redrive(&r)
	}
	o.close()
	a.answer(c, status, o.b)
	return nil
}

// A redriveDecoder decodes a redrive as a caller asks for it.
type redriveDecoder struct {
	fields
	asked  control.RedriveRequest
	picked query.Filter
}

// member decodes one field, and says whether there is such a field.
func (d *redriveDecoder) member(key, raw []byte) bool {
	q, name := &d.asked, string(key)
	switch name {
	case "action":
		d.text(name, raw, &q.Action)
	case "filter":
		d.filter(raw)
	case "rate":
		d.text(name, raw, &q.Rate)
	case "dry_run":
		d.boolean(name, raw, &q.DryRun)
	case "ladder":
		d.text(name, raw, &q.Ladder)
	case "url":
		d.text(name, raw, &q.URL)
	case "due_at":
		d.instant(name, raw, &q.DueAt)
	case "delay":
		d.duration(name, raw, &q.Delay)
	default:
		return false
	}
	return true
}

// filter decodes which callbacks are meant. A filter without a condition is none: who means all of them says so by a state.
func (d *redriveDecoder) filter(raw []byte) {
	if isNull(raw) {
		return
	}
	before := len(d.invalid)
	if d.picked = d.picks(raw); d.picked.Empty() && len(d.invalid) == before {
		return
	}
	var shown bytes.Buffer
	if err := json.Compact(&shown, raw); err != nil {
		d.add("filter", "is not JSON") // not reached: the request is
		return
	}
	d.asked.Shown = store.JSONText(shown.String())
}

// done returns what was decoded. Its error is one of the store; what is wrong with the request is in what it returns.
func (d *redriveDecoder) done(ctx context.Context, a *API, project string) (control.RedriveRequest, error) {
	q := &d.asked
	// What the action does not look at would be a misunderstanding that nobody notices.
	for _, f := range []struct {
		name   string
		given  bool
		action store.RedriveAction
	}{
		{"ladder", q.Ladder != "", store.RedriveRetry}, {"url", q.URL != "", store.RedriveSetURL},
		{"due_at", q.DueAt != nil, store.RedriveReschedule}, {"delay", q.Delay != nil, store.RedriveReschedule},
	} {
		if f.given && q.Action != string(f.action) {
			d.add(f.name, "is only for the action "+string(f.action))
		}
	}
	switch err := d.picked.Find(ctx, project, a.Store); {
	case errors.Is(err, store.ErrNotFound):
		d.add("filter.endpoint", "there is no endpoint with that id or external_id")
	case err != nil:
		return *q, err
	}
	q.Filter, q.Invalid = d.picked.Filter, d.invalid
	return *q, nil
}

// query.ListRedrives is GET /v1/redrives, newest first.
func (a *API) listRedrives(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	limit, after := q.Page(query.ListRedrives)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if after == nil {
		after = &store.Cursor{}
	}
	redrives, err := a.Store.Redrives(ctx, who.Project, after.ID, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(redrives) > limit {
		redrives = redrives[:limit]
		next = q.Cursors.Encode(query.ListRedrives, store.Cursor{ID: redrives[limit-1].ID})
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range redrives {
		o.element(i)
		o.redrive(&redrives[i])
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// getRedrive is GET /v1/redrives/{id}.
func (a *API) getRedrive(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.RedrivePrefix)
	if err != nil {
		return err
	}
	return a.redrive(c)(a.Store.Redrive(ctx, who.Project, id))
}

// setRedrive is POST /v1/redrives/{id}/pause, resume or cancel. What a canceled one has done stays done.
func (a *API) setRedrive(to store.RedriveState) handler {
	return func(ctx context.Context, c *gin.Context, who caller) error {
		id, err := paramOf(c, store.RedrivePrefix)
		if err != nil {
			return err
		}
		reason, err := readReason(c)
		if err != nil {
			return err
		}
		return a.redrive(c)(a.Engine.SetRedrive(ctx, who.Project, id, to, who.By(reason)))
	}
}

// redrive answers with a redrive.
func (a *API) redrive(c *gin.Context) func(store.Redrive, error) error {
	return func(r store.Redrive, err error) error {
		if err != nil {
			return err
		}
		o := jsonObject{[]byte("{")}
		o.redrive(&r)
		o.close()
		a.answer(c, http.StatusOK, o.b)
		return nil
	}
}

// redrive writes the members of a redrive.
func (o *jsonObject) redrive(r *store.Redrive) {
	o.id("id", store.RedrivePrefix, r.ID)
	o.redriveAsked(r)
	o.str("state", string(r.State))
	o.integer("matched", r.Matched)
	o.integer("done", r.Done)
	o.integer("failed", r.Failed)
	o.str("actor", r.Actor)
	o.orNull("reason", r.Reason)
	o.instant("created_at", r.CreatedAt)
	o.instant("updated_at", r.UpdatedAt)
	o.instant("finished_at", r.FinishedAt)
}

// redriveAsked writes what a redrive was asked to do. What is not of its action is null.
func (o *jsonObject) redriveAsked(r *store.Redrive) {
	o.str("action", string(r.Action))
	o.raw("filter", string(r.Shown))
	o.orNull("ladder", string(r.Ladder))
	o.orNull("url", r.URL)
	o.instant("due_at", r.DueAt)
	if r.Action == store.RedriveReschedule && r.DueAt == 0 {
		o.duration("delay", time.Duration(r.Delay)*time.Millisecond)
	} else {
		o.orNull("delay", "")
	}
	o.orNull("rate", r.Rate.String())
}
