package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createRedrive is POST /v1/redrives: 202 with the job, or 200 with what a dry run has counted.
func (a *API) createRedrive(ctx context.Context, c *gin.Context, who caller) error {
	q, reason, err := a.readRedrive(ctx, c, who.Project)
	if err != nil {
		return err
	}
	r, err := a.Engine.Redrive(ctx, who.Project, q, who.By(reason))
	switch {
	case err != nil:
		return err
	case q.DryRun:
		tried := client.RedriveTried{RedriveAsked: askedOf(&r), Matched: r.Matched, DryRun: true}
		return a.respond(c, http.StatusOK, tried)
	}
	return a.respond(c, http.StatusAccepted, redriveOf(&r))
}

// readRedrive reads what a redrive is asked to do. Its error is one of the store; what is wrong with the
// request is in what it returns.
func (a *API) readRedrive(ctx context.Context, c *gin.Context,
	project string) (control.RedriveRequest, string, error) {
	var (
		d      decoder
		r      client.RedriveRequest
		picked query.Filter
		shown  store.JSONText
	)
	d.custom = map[string]func(string, []byte){
		"filter": func(_ string, raw []byte) { picked, shown = d.filter(raw) },
	}
	if err := d.read(c, false, &r); err != nil {
		return control.RedriveRequest{}, "", err
	}
	q := control.RedriveRequest{
		Action: string(r.Action), Shown: shown, Rate: r.Rate, DryRun: r.DryRun, Ladder: r.Ladder, URL: r.URL,
		DueAt: millis(r.DueAt), Delay: length(r.Delay),
	}
	// What the action does not look at would be a misunderstanding that stays unseen.
	for _, f := range []struct {
		name   string
		given  bool
		action store.RedriveAction
	}{
		{"ladder", q.Ladder != "", store.RedriveRetry}, {"url", q.URL != "", store.RedriveSetURL},
		{"due_at", q.DueAt != nil, store.RedriveReschedule},
		{"delay", q.Delay != nil, store.RedriveReschedule},
	} {
		if f.given && q.Action != string(f.action) {
			d.add(f.name, "is only for the action "+string(f.action))
		}
	}
	switch err := picked.Find(ctx, project, a.Store); {
	case errors.Is(err, store.ErrNotFound):
		d.add("filter.endpoint", "there is no endpoint with that id or external_id")
	case err != nil:
		return q, "", err
	}
	q.Filter, q.Invalid = picked.Filter, d.invalid
	return q, r.Reason, nil
}

// filter decodes which callbacks are meant, and returns the filter as it is shown. A filter without a
// condition is none: a caller that means all of them says so by a state.
func (f *fields) filter(raw []byte) (picked query.Filter, shown store.JSONText) {
	if isNull(raw) {
		return picked, ""
	}
	before := len(f.invalid)
	picked = f.filterMembers(raw)
	if picked.Empty() && len(f.invalid) == before {
		return picked, ""
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		f.add("filter", "is not JSON") // not reached: the request is
	}
	return picked, store.JSONText(compact.String())
}

// maxFilter is the most bytes of a redrive's filter, which is kept and shown as it was given.
const maxFilter = 16 << 10

// filterMembers reads the filter of a redrive: the filters of GET /v1/callbacks as the members of an object. They are
// made the parameters of a query and read as one, so that both have the same names, meanings and bounds.
func (f *fields) filterMembers(raw []byte) (p query.Filter) {
	const name = "filter"
	if len(raw) > maxFilter {
		f.add(name, fmt.Sprintf("is longer than %d KiB", maxFilter>>10))
		return p
	}
	q := query.NewValues(url.Values{})
	f.object(name, name+".", raw, func(key, value []byte) bool {
		f.parameter(name+".", string(key), value, q.Values)
		return true
	})
	for name, values := range q.Values {
		if len(values) == 0 && strings.HasPrefix(name, query.LabelPrefix) { // null
			delete(q.Values, name)
		}
	}
	p = filterOf(q, 0)
	q.Unknown()
	for _, wrong := range q.Invalid {
		f.add(name+"."+wrong.Field, wrong.Message)
	}
	return p
}

// parameter makes a member of a filter parameters of a query. One without a value is none; of one that no
// filter has, the name alone is taken, which the query refuses.
func (f *fields) parameter(prefix, key string, raw []byte, to url.Values) {
	shown := prefix + query.Printable(key)
	put := func(key string, values ...string) { to[key] = append(to[key], values...) }
	if key != "label" { // which is no parameter, but has some
		put(key)
	}
	if isNull(raw) {
		return
	}
	switch key {
	case "state":
		put(key, f.textOrTexts(shown, raw, len(store.States))...)
	case "status_code", "min_attempts":
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			f.add(shown, "must be a whole number")
		} else {
			put(key, string(raw))
		}
	case "overdue":
		var yes bool
		f.boolean(shown, raw, &yes)
		if yes {
			put(key, "true")
		}
	case "label":
		f.labelParameters(shown, raw, put)
	case "kind", "topic", "ref", "lock_key", "endpoint", "lane", "class", "reason", "from", "to":
		put(key, f.textOrTexts(shown, raw, 0)...)
	default:
		if strings.HasPrefix(key, query.LabelPrefix) {
			put(key, f.textOrTexts(shown, raw, 0)...)
		}
	}
}

// labelParameters takes the members of "label": {NAME: VALUE}.
func (f *fields) labelParameters(shown string, raw []byte, put func(key string, values ...string)) {
	n := 0
	f.object(shown, shown+".", raw, func(key, value []byte) bool {
		n++
		if n > accept.MaxLabels {
			if n == accept.MaxLabels+1 {
				f.add(shown, fmt.Sprintf("has more labels than the %d that a callback can have",
					accept.MaxLabels))
			}
			return true
		}
		put(query.LabelPrefix+string(key), f.textOrTexts(shown+"."+query.Printable(string(key)), value, 0)...)
		return true
	})
}

// textOrTexts decodes one text, or an array of 1 to most of them where most is not zero. Null is none.
func (f *fields) textOrTexts(name string, raw []byte, most int) (texts []string) {
	if most > 0 && raw[0] == '[' {
		before := len(f.invalid)
		f.lines(name, raw, most, &texts)
		if len(texts) == 0 && len(f.invalid) == before {
			f.add(name, "must not be empty")
		}
		return texts
	}
	var text *string
	f.line(name, raw, &text)
	if text == nil {
		return nil
	}
	return []string{*text}
}

// listRedrives is GET /v1/redrives, newest first.
func (a *API) listRedrives() handler {
	ask := noParameters(func(ctx context.Context, who caller, after store.Cursor, limit int) ([]store.Redrive,
		error) {
		return a.Store.Redrives(ctx, who.Project, after.ID, limit)
	})
	at := func(r *store.Redrive) store.Cursor { return store.Cursor{ID: r.ID} }
	return listOf(a, query.ListRedrives, ask, at, redriveOf)
}

// setRedrive is POST /v1/redrives/{id}/pause, resume or cancel. What a canceled one has done stays done.
func (a *API) setRedrive(find finder, to store.RedriveState) handler {
	set := func(ctx context.Context, project, id string, by store.Actor) (store.Redrive, error) {
		return a.Engine.SetRedrive(ctx, project, id, to, by)
	}
	return changeOne(a, find, http.StatusOK, set, redriveOf)
}

// redriveOf is a redrive as it is shown.
func redriveOf(r *store.Redrive) client.Redrive {
	return client.Redrive{
		ID: store.RedrivePrefix + r.ID, RedriveAsked: askedOf(r), State: string(r.State), Matched: r.Matched,
		Done: r.Done, Failed: r.Failed, Actor: r.Actor, Reason: r.Reason,
		CreatedAt: moment(r.CreatedAt), UpdatedAt: moment(r.UpdatedAt), FinishedAt: moment(r.FinishedAt),
	}
}

// askedOf is what a redrive was asked to do. What is not of its action is null.
func askedOf(r *store.Redrive) client.RedriveAsked {
	out := client.RedriveAsked{
		Action: client.RedriveAction(r.Action), Filter: storedJSON(r.Shown), Ladder: string(r.Ladder), URL: r.URL,
		DueAt: moment(r.DueAt), Rate: r.Rate.String(),
	}
	if r.Action == store.RedriveReschedule && r.DueAt == 0 {
		out.Delay = duration(time.Duration(r.Delay) * time.Millisecond)
	}
	return out
}
