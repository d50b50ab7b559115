package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createSchedule handles POST /v1/schedules: 201 with the schedule.
func (a *API) createSchedule(ctx context.Context, c *gin.Context, who caller) error {
	ch, reason, err := readSchedule(c, false)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusCreated, scheduleOf)(
		a.Engine.CreateSchedule(ctx, who.Project, ch, who.By(reason)))
}

// patchSchedule handles PATCH /v1/schedules/{id}.
func (a *API) patchSchedule(ctx context.Context, c *gin.Context, who caller, id string) error {
	ch, reason, err := readSchedule(c, true)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, scheduleOf)(
		a.Engine.PatchSchedule(ctx, who.Project, id, ch, who.By(reason)))
}

// readSchedule reads a schedule and a reason. Invalid fields are in the change's Invalid. The engine checks
// what the values and the template mean.
func readSchedule(c *gin.Context, patch bool) (ch control.ScheduleChange, reason string, err error) {
	var (
		d decoder
		r client.ScheduleChange
	)
	d.custom = map[string]func(string, []byte){
		"callback": func(name string, raw []byte) { d.verbatim(name, raw, anObject, &ch.Template) },
	}
	if err := d.read(c, false, &r); err != nil {
		return ch, "", err
	}
	ch.Name, ch.Cron, ch.Missed, ch.Enabled = r.Name, r.Cron, r.Missed, r.Enabled
	ch.Timezone, ch.Invalid = orDefault(r.Timezone, patch, ""), d.invalid // a time zone of null is UTC
	return ch, r.Reason, nil
}

// listSchedules handles GET /v1/schedules.
func (a *API) listSchedules() handler {
	parse := func(q *query.Values) reader[store.Schedule] {
		f := store.ScheduleFilter{Search: q.One("search")}
		if s := q.OneOf("enabled", "true", "false"); s != "" {
			f.Enabled = new(s == "true")
		}
		return func(
			ctx context.Context, who caller, after store.Cursor, limit int,
		) ([]store.Schedule, error) {
			f.After, f.Limit = after.ID, limit
			return a.Engine.Schedules(ctx, who.Project, f)
		}
	}
	at := func(s *store.Schedule) store.Cursor { return store.Cursor{ID: s.ID} }
	return listOf(a, query.ListSchedules, parse, at, scheduleOf)
}

// scheduleOf converts a schedule. Credentials in the headers of its template are masked.
func scheduleOf(s *store.Schedule) client.Schedule {
	return client.Schedule{
		ID: store.SchedulePrefix + s.ID, Name: s.Name, Cron: s.Cron, Timezone: cmp.Or(s.Timezone, "UTC"),
		Callback: templateOf([]byte(s.Template)), Missed: string(cmp.Or(s.Missed, store.MissedOnce)),
		Enabled: s.Enabled,
		NextAt:  moment(s.NextAt), LastAt: moment(s.LastAt),
		LastCallbackID: prefixed(store.CallbackPrefix, s.LastID), LastError: s.LastError,
		CreatedAt: moment(s.CreatedAt), UpdatedAt: moment(s.UpdatedAt),
	}
}

// runsOf converts the runs of a schedule, newest first. There are few, so the response has all of them.
func runsOf(runs *[]store.ScheduleRun) map[string][]client.ScheduleRun {
	return map[string][]client.ScheduleRun{
		"data": each(*runs, func(r *store.ScheduleRun) client.ScheduleRun {
			return client.ScheduleRun{
				CallbackID: store.CallbackPrefix + r.CallbackID,
				DueAt:      moment(r.DueAt), FiredAt: moment(r.FiredAt), Trigger: string(r.Trigger),
			}
		}),
	}
}

// ReadTemplate decodes the template of a schedule: the body of a POST /v1/callbacks as the caller wrote it.
// The result refers to raw, because the payload is a part of it. Invalid fields are in the submission's
// Invalid, named as in the template ("headers.X-Shop"). These include the fields of a callback that a
// template must not have.
//
// The error is a *store.InvalidError with one field. The field is "" if the template is not a JSON object. If
// the payload is too large, the field is the name of the payload's field ("payload").
func ReadTemplate(raw []byte) (accept.Submission, error) {
	if !isObject(raw) {
		return accept.Submission{}, invalid("", notAnObject)
	}
	var d submissionDecoder
	d.object(request, "", raw, d.without(refusedInTemplate))
	d.refuseMask(d.sub.Headers, "leave callback out to keep it as it is")
	sub, err := d.done()
	if err != nil {
		return accept.Submission{}, invalid(d.sub.BodyField, "is larger than 256 KiB after decoding")
	}
	return sub, nil
}

// refusedInTemplate has the fields of a callback that a template must not have, with the error message of
// each.
var refusedInTemplate = map[string]string{
	"due_at": "is not allowed: each callback is due at the time of its run; " +
		"use delay to send it later",
	"idempotency_key": "is not allowed: each run creates a new callback",
}

// templateOf returns a stored template with the credentials in its headers masked. If it is not an object,
// which only happens in a damaged row, it returns null, because it cannot find the credentials in it.
func templateOf(raw []byte) json.RawMessage {
	if !isObject(raw) {
		return nil
	}
	o := jsonObject{[]byte("{")}
	for key, value := range members(raw) {
		if string(key) != "headers" || value[0] != '{' {
			o.member(key, value)
			continue
		}
		o.open("headers")
		for header, text := range members(value) {
			if store.IsSensitiveHeader(string(header)) && !bytes.Equal(text, []byte(`""`)) {
				text = []byte(`"` + query.Mask + `"`)
			}
			o.member(header, text)
		}
		o.close()
	}
	o.close()
	return o.b
}
