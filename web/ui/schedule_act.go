package ui

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

func (u *UI) scheduleActs() []Route {
	enable := func(on bool) func(*request, string) error {
		return func(r *request, id string) error {
			ch := control.ScheduleChange{Enabled: &on}
			_, err := u.Engine.PatchSchedule(r.ctx, r.caller.Project, id, ch, r.by())
			return err
		}
	}
	return actsOn(u, kind[store.Schedule]{
		path: "/schedules/:id/", texts: "schedules.", section: "schedules", prefix: store.SchedulePrefix,
		find: from(u.Engine.Schedule), begin: (*form).beginSchedule,
	}, []actOn[store.Schedule]{
		{name: "enable", do: enable(true)},
		{name: "disable", do: enable(false)},
		{name: "run", respond: u.runSchedule},
		{name: "delete", danger: true, to: "/schedules", do: func(r *request, id string) error {
			return u.Engine.DeleteSchedule(r.ctx, r.caller.Project, id, r.by())
		}},
	})
}

// beginSchedule adds the facts of a schedule to a form.
func (f *form) beginSchedule(s store.Schedule) {
	zone := newScheduleRow(&s, f.now).CronZone
	f.addFacts("column.name", s.Name, "schedules.cron", s.Cron+" "+zone)
	f.addFacts("schedules.next", f.Absolute(s.NextAt))
}

const (
	// exampleTemplate and exampleCron are the values in the form of a new schedule.
	exampleTemplate = `{
  "url": "https://shop.example/settlement",
  "topic": "settlement.daily",
  "payload": {"report": "daily"},
  "policy": "payment"
}`
	exampleCron = "30 2 * * *"
	// previewTimes is the number of due times in a preview. templateRows is the height of the template's
	// field.
	previewTimes = 5
	templateRows = 12
)

// scheduleForm returns the form of a new or an existing schedule.
func (u *UI) scheduleForm(r *request, name, back string, s *store.Schedule) *form {
	f := u.form(r, "schedules", "schedules."+name, back)
	f.PreviewSubmit = f.T("schedules.preview")
	title := f.ask("name", lineField, "schedules.name")
	title.Label, title.Value, title.Required = f.T("column.name"), s.Name, true
	cron := f.askMono("cron", "schedules.cron", exampleCron)
	cron.Value, cron.Required = s.Cron, true
	zone := f.askZone("timezone", "schedules.timezone")
	zone.Label, zone.Value = f.T("frame.zone"), s.Timezone
	missed := f.ask("missed", choiceField, "schedules.missed")
	missed.Options = choose(&f.base, "schedules.missed.", cmp.Or(s.Missed, store.MissedOnce),
		store.MissedOnce, store.MissedSkip)
	enabled := f.ask("enabled", checkField, "schedules.enabled")
	enabled.Checked = s.Enabled
	template := f.ask("callback", textField, "schedules.template")
	template.Value, template.Required, template.Mono = string(s.Template), true, true
	template.Rows = templateRows
	f.Fields = []field{title, cron, zone, missed, enabled, template, f.askReason()}
	return f
}

// scheduleChange returns the schedule that the form describes.
func (u *UI) scheduleChange(r *request) (ch control.ScheduleChange, err error) {
	ch = control.ScheduleChange{
		Name: new(r.value("name")), Cron: new(r.value("cron")), Timezone: new(r.value("timezone")),
		Missed: new(r.value("missed")), Enabled: new(r.form.Has("enabled")),
		Template: []byte(strings.TrimSpace(r.text("callback"))),
	}
	if !json.Valid(ch.Template) {
		return ch, invalid("callback", r.lang.text("form.json"))
	}
	return ch, nil
}

// previewSchedule shows the form with the schedule's next due times, in the viewer's zone and in the
// schedule's.
func (u *UI) previewSchedule(r *request, ask func(*request) (*form, error)) (*response, error) {
	cron, timezone := r.value("cron"), r.value("timezone")
	next, err := control.NextTimes(cron, timezone, r.now, previewTimes)
	if err != nil {
		return nil, err
	}
	f, err := ask(r)
	if err != nil {
		return nil, err
	}
	scheduleZone := cmp.Or(timezone, utc.name)
	lines := []string{f.T("schedules.preview.says", "zone", r.zone.name)}
	for _, at := range next {
		line := f.Absolute(at) + " · " + f.relative(at)
		if scheduleZone != r.zone.name {
			local := scheduleLocalTime(timezone, at)
			line = f.T("schedules.preview.own", "at", line, "own", local, "zone", scheduleZone)
		}
		lines = append(lines, line)
	}
	return preview(f, lines...)
}

func (u *UI) askNewSchedule(r *request) (*form, error) {
	return u.scheduleForm(r, "new", Root+"/schedules", &store.Schedule{
		Cron: exampleCron, Timezone: r.zone.name, Missed: store.MissedOnce, Enabled: true,
		Template: exampleTemplate,
	}), nil
}

func (u *UI) newSchedule(r *request) (*response, error) {
	ch, err := u.scheduleChange(r)
	if err != nil {
		return nil, err
	}
	if r.value("preview") != "" {
		return u.previewSchedule(r, u.askNewSchedule)
	}
	s, err := u.Engine.CreateSchedule(r.ctx, r.caller.Project, ch, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/schedules/"+store.SchedulePrefix+s.ID, "schedules.new.done")
}

// schedulePath returns the path of the page of the request's schedule.
func schedulePath(r *request) string { return Root + "/schedules/" + r.params["id"] }

func (u *UI) askEditSchedule(r *request) (*form, error) {
	s, err := load(r, store.SchedulePrefix, u.Engine.Schedule)
	if err != nil {
		return nil, err
	}
	s.Template = store.JSONText(indented(maskedTemplate(string(s.Template))))
	return u.scheduleForm(r, "edit", schedulePath(r), &s), nil
}

// editSchedule changes a schedule. Masked credentials in the typed template are restored from the stored one.
// It is an error if a mask remains, since a mask must never be stored.
func (u *UI) editSchedule(r *request) (*response, error) {
	s, err := load(r, store.SchedulePrefix, u.Engine.Schedule)
	if err != nil {
		return nil, err
	}
	ch, err := u.scheduleChange(r)
	if err != nil {
		return nil, err
	}
	typed := restoreMasked(string(ch.Template), string(s.Template))
	switch masked := stillMasked(typed); masked {
	case "":
	case "url":
		return nil, invalid("callback", r.lang.text("schedules.masked"))
	default:
		name := strings.TrimPrefix(masked, "headers.")
		return nil, invalid("callback", r.lang.text("schedules.masked.header", "name", name))
	}
	ch.Template = []byte(typed)
	if sameJSON(typed, string(s.Template)) {
		ch.Template = nil // unchanged: keep the stored bytes of the payload
	}
	if r.value("preview") != "" {
		return u.previewSchedule(r, u.askEditSchedule)
	}
	if _, err := u.Engine.PatchSchedule(r.ctx, r.caller.Project, s.ID, ch, r.by()); err != nil {
		return nil, err
	}
	return u.returnDone(r, schedulePath(r), r.lang.text("schedules.edit.done"))
}

func (u *UI) runSchedule(r *request, id string) (*response, error) {
	made, err := u.Engine.RunSchedule(r.ctx, r.caller.Project, id, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/callbacks/"+store.CallbackPrefix+made.ID, "schedules.run.done")
}

// A templatePart is a JSON string in the template of a schedule that may contain a credential: the URL or a
// header. from and to are its byte offsets. masked is the value without the credential.
type templatePart struct {
	name, masked string
	from, to     int
}

// templateParts returns the parts of a template. It returns none for a text that is not a JSON object.
func templateParts(text string) (parts []templatePart) {
	eachMember(text, 0, func(name string, value json.RawMessage, from int) {
		switch name {
		case "url":
			var address string
			if json.Unmarshal(value, &address) == nil {
				parts = append(parts, templatePart{name, store.MaskURL(address), from, from + len(value)})
			}
		case "headers":
			eachMember(string(value), from, func(header string, value json.RawMessage, from int) {
				if store.IsSensitiveHeader(header) {
					parts = append(parts, templatePart{"headers." + header, query.Mask, from,
						from + len(value)})
				}
			})
		}
	})
	return parts
}

// eachMember calls each for every member of a JSON object, with the byte offset of the value. at is the
// offset of the object. eachMember stops at a syntax error.
func eachMember(text string, at int, each func(name string, value json.RawMessage, from int)) {
	d := json.NewDecoder(strings.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return
		}
		key, ok := name.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil || !ok {
			return
		}
		each(key, value, at+int(d.InputOffset())-len(value))
	}
}

// maskedTemplate returns a template with the credentials of its headers and its URL masked. A damaged row may
// have a template that is not a JSON object. Then maskedTemplate masks all of it, since it cannot find the
// credentials.
func maskedTemplate(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || !json.Valid([]byte(text)) {
		return query.Mask
	}
	return replaceParts(text, templateParts(text), func(p templatePart) string { return jsonText(p.masked) })
}

// restoreMasked replaces masked values in a typed template with those of the stored template. All other bytes
// stay as typed. It does not restore headers if the template has another receiver: a credential must not go
// to a receiver that it was not meant for.
func restoreMasked(typed, stored string) string {
	known := make(map[string]templatePart)
	for _, p := range templateParts(stored) {
		known[p.name] = p
	}
	restore := func(prefix string) {
		typed = replaceParts(typed, templateParts(typed), func(p templatePart) string {
			was, ok := known[p.name]
			now := typed[p.from:p.to]
			if !ok || !strings.HasPrefix(p.name, prefix) || now != jsonText(was.masked) {
				return now
			}
			return stored[was.from:was.to]
		})
	}
	restore("url") // first: sameReceiver compares the real URLs
	if sameReceiver(typed, stored) {
		restore("headers.")
	}
	return typed
}

// sameReceiver reports whether two templates have the same endpoint and the same host.
func sameReceiver(a, b string) bool {
	to := func(template string) (url, endpoint string) {
		eachMember(template, 0, func(name string, value json.RawMessage, _ int) {
			var text string
			if json.Unmarshal(value, &text) != nil {
				return // null, or invalid: the engine reports it
			}
			switch name {
			case "url":
				url = text
			case "endpoint":
				endpoint = text
			}
		})
		return url, endpoint
	}
	urlA, endpointA := to(a)
	urlB, endpointB := to(b)
	return endpointA == endpointB && (urlA == urlB || store.SameHost(urlA, urlB))
}

// stillMasked returns the name of the first part that still contains a mask: "url" or "headers.NAME". It
// returns "" if there is none.
func stillMasked(template string) string {
	for _, p := range templateParts(template) {
		text := template[p.from:p.to]
		if p.name == "url" && strings.Contains(text, query.Mask) || text == jsonText(query.Mask) {
			return p.name
		}
	}
	return ""
}

// replaceParts replaces each part of a text with the result of by.
func replaceParts(text string, parts []templatePart, by func(p templatePart) string) string {
	var out strings.Builder
	at := 0
	for _, p := range parts {
		out.WriteString(text[at:p.from] + by(p))
		at = p.to
	}
	return out.String() + text[at:]
}

// jsonText formats a string as JSON without HTML escapes.
func jsonText(s string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // strings always encode
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// sameJSON reports whether two JSON texts differ only in whitespace.
func sameJSON(a, b string) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, []byte(a)) == nil && json.Compact(&other, []byte(b)) == nil &&
		bytes.Equal(one.Bytes(), other.Bytes())
}
