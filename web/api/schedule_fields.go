package api

import (
	"bytes"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A scheduleDecoder decodes a schedule as a caller asks for it. What it cannot decode is named in the change's Invalid; what the values
// mean, and what the template says, is the engine's to judge.
type scheduleDecoder struct {
	fields
	change control.ScheduleChange
	// patch: a time zone of null is UTC. Otherwise, and for all other fields, null is not given.
	patch bool
}

// done returns what was decoded.
func (d *scheduleDecoder) done() control.ScheduleChange {
	d.change.Invalid = d.invalid
	return d.change
}

// with returns member for requests that have a reason too.
func (d *scheduleDecoder) with(reason *string) func(key, raw []byte) bool {
	return func(key, raw []byte) bool { return d.member(key, raw) || d.reason(key, raw, reason) }
}

// member decodes one field, and says whether there is such a field.
func (d *scheduleDecoder) member(key, raw []byte) bool {
	ch, name := &d.change, string(key)
	switch name {
	case "name":
		d.line(name, raw, &ch.Name)
	case "cron":
		d.line(name, raw, &ch.Cron)
	case "timezone":
		if isNull(raw) && d.patch {
			ch.Timezone = new("")
		}
		d.line(name, raw, &ch.Timezone)
	case "missed":
		d.line(name, raw, &ch.Missed)
	case "enabled":
		if on := false; !isNull(raw) {
			d.boolean(name, raw, &on)
			ch.Enabled = &on
		}
	case "callback":
		d.verbatim(name, raw, anObject, &ch.Template)
	default:
		return false
	}
	return true
}

// ReadTemplate decodes a schedule's template, the body of a POST /v1/callbacks as its caller wrote it, which stays referenced: the payload
// is a part of it. Wrong fields are named in the submission's Invalid as they stand in the template ("headers.X-Shop"), among them those
// that a callback has and a template has not. Its error is a *store.InvalidError: the template is no JSON object, where the field is "",
// which is the template itself, or its payload is too large, which is named by the field that it stands in ("payload").
func ReadTemplate(raw []byte) (accept.Submission, error) {
	if !isObject(raw) {
		return accept.Submission{}, invalid("", notAnObject)
	}
	var d submissionDecoder
	d.object(request, "", raw, d.without(notOfATemplate))
	d.refuseMask(d.sub.Headers, "leave callback out to keep it as it is")
	sub, err := d.done()
	if err != nil {
		return accept.Submission{}, invalid(d.sub.BodyField, "is larger than 256 KiB when decoded")
	}
	return sub, nil
}

// notOfATemplate says why a field of a callback is none of a template, or nothing.
func notOfATemplate(name string) string {
	switch name {
	case "due_at":
		return "may not be given: a schedule makes a new callback each time, due at that time; give delay to have it later"
	case "idempotency_key":
		return "may not be given: a schedule makes a new callback each time"
	}
	return ""
}

// schedule writes the members of a schedule.
func (o *jsonObject) schedule(s *store.Schedule) {
	o.id("id", store.SchedulePrefix, s.ID)
	o.str("name", s.Name)
	o.str("cron", s.Cron)
	timezone, missed := s.Timezone, s.Missed
	if timezone == "" {
		timezone = "UTC"
	}
	if missed == "" {
		missed = store.MissedOnce
	}
	o.str("timezone", timezone)
	o.template("callback", []byte(s.Template))
	o.str("missed", string(missed))
	o.boolean("enabled", s.Enabled)
	o.instant("next_at", s.NextAt)
	o.instant("last_at", s.LastAt)
	o.id("last_callback_id", store.CallbackPrefix, s.LastID)
	o.orNull("last_error", s.LastError)
	o.instant("created_at", s.CreatedAt)
	o.instant("updated_at", s.UpdatedAt)
}

// template writes a template as it was given, without the credentials in its headers. One that is no object, which only a damaged row can
// have, is null: nobody can tell what in it is a credential.
func (o *jsonObject) template(name string, raw []byte) {
	if !isObject(raw) {
		o.orNull(name, "")
		return
	}
	o.open(name)
	for key, value := range members(raw) {
		if string(key) == "headers" && value[0] == '{' {
			o.open("headers")
			for header, text := range members(value) {
				if store.IsSensitiveHeader(string(header)) && !bytes.Equal(text, []byte(`""`)) {
					text = []byte(`"` + query.Mask + `"`)
				}
				o.verbatim(header, text)
			}
			o.close()
			continue
		}
		o.verbatim(key, value)
	}
	o.close()
}

// verbatim writes a member of kept JSON with its value as it stands there.
func (o *jsonObject) verbatim(key, value []byte) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(append(appendString(o.b, string(key)), ':'), value...)
}

// run writes the members of one callback that a schedule has made.
func (o *jsonObject) run(r *store.ScheduleRun) {
	o.id("callback_id", store.CallbackPrefix, r.CallbackID)
	o.instant("due_at", r.DueAt)
	o.instant("fired_at", r.FiredAt)
	o.str("trigger", string(r.Trigger))
}
