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

// createRedrive handles POST /v1/redrives: 202 with the redrive, or 200 with the count of a dry run.
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
		counted := client.RedriveTried{RedriveAsked: askedOf(&r), Matched: r.Matched, DryRun: true}
		return a.respond(c, http.StatusOK, counted)
	}
	return a.respond(c, http.StatusAccepted, redriveOf(&r))
}

// readRedrive reads the request for a redrive. Invalid fields are in the result's Invalid; the error is one
// of reading the body or of the store.
func (a *API) readRedrive(
	ctx context.Context, c *gin.Context, project string,
) (control.RedriveRequest, string, error) {
	var (
		d      decoder
		r      client.RedriveRequest
		filter query.Filter
		text   store.JSONText
	)
	d.custom = map[string]func(string, []byte){
		"filter": func(_ string, raw []byte) { filter, text = d.filter(raw) },
	}
	if err := d.read(c, false, &r); err != nil {
		return control.RedriveRequest{}, "", err
	}
	q := control.RedriveRequest{
		Action: string(r.Action), FilterText: text, Rate: r.Rate, DryRun: r.DryRun, Ladder: r.Ladder,
		URL:   r.URL,
		DueAt: millis(r.DueAt), Delay: length(r.Delay),
	}
	// A field that the action ignores is an error: the caller expects it to have an effect.
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
	switch err := filter.Find(ctx, project, a.Store); {
	case errors.Is(err, store.ErrNotFound):
		d.add("filter.endpoint", "is not the id or external_id of an endpoint")
	case err != nil:
		return q, "", err
	}
	q.Filter, q.Invalid = filter.Filter, d.invalid
	return q, r.Reason, nil
}

// filter decodes the filter of a redrive, and returns its JSON text for responses. A filter without a
// condition counts as missing, which the engine rejects: a caller that wants all callbacks must name states.
func (f *fields) filter(raw []byte) (filter query.Filter, text store.JSONText) {
	if isNull(raw) {
		return filter, ""
	}
	before := len(f.invalid)
	filter = f.filterMembers(raw)
	if filter.Empty() && len(f.invalid) == before {
		return filter, ""
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, raw); err != nil {
		f.add("filter", "is not JSON") // not reached: checkJSON has accepted the request
	}
	return filter, store.JSONText(compact.String())
}

// maxFilter is the maximum size of a redrive's filter in bytes. The filter is stored, and responses repeat
// it.
const maxFilter = 16 << 10

// filterMembers reads the filter of a redrive: an object with the filters of GET /v1/callbacks. It converts
// the members to query parameters and reads those, so that both have the same names, meanings and limits.
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
		if len(values) == 0 && strings.HasPrefix(name, query.LabelPrefix) { // a label of null
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

// parameter converts a member of a filter to query parameters. For a null or invalid value it adds only the
// name. It also adds the name of an unknown member, so that the query rejects it.
func (f *fields) parameter(prefix, key string, raw []byte, to url.Values) {
	field := prefix + query.Printable(key)
	put := func(key string, values ...string) { to[key] = append(to[key], values...) }
	if key != "label" { // its members are parameters, it is none
		put(key)
	}
	if isNull(raw) {
		return
	}
	switch key {
	case "state":
		put(key, f.textOrTexts(field, raw, len(store.States))...)
	case "status_code", "min_attempts":
		if raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			f.add(field, "must be a whole number")
		} else {
			put(key, string(raw))
		}
	case "overdue":
		var yes bool
		f.boolean(field, raw, &yes)
		if yes {
			put(key, "true")
		}
	case "label":
		f.labelParameters(field, raw, put)
	case "kind", "topic", "ref", "lock_key", "endpoint", "lane", "class", "reason", "from", "to",
		"finished_from", "finished_to":
		put(key, f.textOrTexts(field, raw, 0)...)
	default:
		if strings.HasPrefix(key, query.LabelPrefix) {
			put(key, f.textOrTexts(field, raw, 0)...)
		}
	}
}

// labelParameters converts the members of "label": {NAME: VALUE}.
func (f *fields) labelParameters(field string, raw []byte, put func(key string, values ...string)) {
	n := 0
	f.object(field, field+".", raw, func(key, value []byte) bool {
		n++
		if n > accept.MaxLabels {
			if n == accept.MaxLabels+1 {
				f.add(field, fmt.Sprintf("has more than %d labels", accept.MaxLabels))
			}
			return true
		}
		put(query.LabelPrefix+string(key), f.textOrTexts(field+"."+query.Printable(string(key)), value, 0)...)
		return true
	})
}

// textOrTexts decodes a string or, if most is not zero, an array of 1 to most strings. Null has no strings.
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

// listRedrives handles GET /v1/redrives, newest first.
func (a *API) listRedrives() handler {
	parse := noParameters(func(
		ctx context.Context, who caller, after store.Cursor, limit int,
	) ([]store.Redrive, error) {
		return a.Store.Redrives(ctx, who.Project, after.ID, limit)
	})
	at := func(r *store.Redrive) store.Cursor { return store.Cursor{ID: r.ID} }
	return listOf(a, query.ListRedrives, parse, at, redriveOf)
}

// setRedrive handles POST /v1/redrives/{id}/pause, resume, approve and cancel. A cancel does not undo what
// the redrive has already changed.
func (a *API) setRedrive(find finder, to store.RedriveState) handler {
	set := func(ctx context.Context, project, id string, by store.Actor) (store.Redrive, error) {
		return a.Engine.SetRedrive(ctx, project, id, to, by)
	}
	return changeOne(a, find, http.StatusOK, set, redriveOf)
}

// deleteEndpoint handles DELETE /v1/endpoints/{id}: 204, or 202 with the redrive that deletes the endpoint.
func (a *API) deleteEndpoint(ctx context.Context, c *gin.Context, project, id string, by store.Actor) error {
	r, err := a.Engine.DeleteEndpoint(ctx, project, id, by)
	switch {
	case err != nil:
		return err
	case r.ID != "":
		return a.respond(c, http.StatusAccepted, redriveOf(&r))
	}
	c.Writer.WriteHeader(http.StatusNoContent)
	return nil
}

func redriveOf(r *store.Redrive) client.Redrive {
	out := client.Redrive{
		ID: store.RedrivePrefix + r.ID, RedriveAsked: askedOf(r), State: string(r.State), Matched: r.Matched,
		Done: r.Done, Failed: r.Failed, Actor: r.Actor, Reason: r.Reason,
		Approver: r.Approver, ApprovedAt: moment(r.ApprovedAt),
		CreatedAt: moment(r.CreatedAt), UpdatedAt: moment(r.UpdatedAt), FinishedAt: moment(r.FinishedAt),
	}
	if r.State == store.RedriveAwaiting {
		out.ApproveBy = moment(r.CreatedAt + store.ApprovalTime)
	}
	return out
}

// askedOf returns the settings of a redrive. A setting that does not belong to its action is null.
func askedOf(r *store.Redrive) client.RedriveAsked {
	out := client.RedriveAsked{
		Action: client.RedriveAction(r.Action), Filter: storedJSON(r.FilterText), Ladder: string(r.Ladder),
		URL: r.URL, DueAt: moment(r.DueAt), Rate: r.Rate.String(),
	}
	if r.Action == store.RedriveReschedule && r.DueAt == 0 {
		out.Delay = duration(time.Duration(r.Delay) * time.Millisecond)
	}
	return out
}
