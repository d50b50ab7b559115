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
			_, err := u.Engine.PatchSchedule(r.ctx, r.caller.Project, id, control.ScheduleChange{Enabled: &on},
				r.by())
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

// beginSchedule says which schedule a form is about.
func (f *form) beginSchedule(s store.Schedule) {
	zone := newScheduleRow(&s, f.now).Zone
	f.addFacts("column.name", s.Name, "schedules.cron", s.Cron+" "+zone, "schedules.next", f.Absolute(s.NextAt))
}

const (
	// exampleTemplate is what a new schedule begins with.
	exampleTemplate = `{
  "url": "https://shop.example/settlement",
  "topic": "settlement.daily",
  "payload": {"report": "daily"},
  "policy": "payment"
}`
	exampleCron = "30 2 * * *"
	// previewTimes is how many due times a preview shows, templateRows how high the field of a template is.
	previewTimes = 5
	templateRows = 12
)

// scheduleForm is the form of a schedule that is to be made, or that is there.
func (u *UI) scheduleForm(r *request, name, back string, s *store.Schedule) *form {
	f := u.form(r, "schedules", "schedules."+name, back)
	f.PreviewSubmit = f.T("schedules.preview")
	title, cron := f.ask("name", lineField, "schedules.name"),
		f.askMono("cron", "schedules.cron", exampleCron)
	title.Label, title.Value, title.Required, cron.Value, cron.Required = f.T("column.name"), s.Name, true,
		s.Cron, true
	zone, missed := f.askMono("timezone", "schedules.timezone", "Asia/Shanghai"),
		f.ask("missed", choiceField, "schedules.missed")
	zone.Label, zone.Value = f.T("frame.zone"), s.Timezone
	missed.Options = choose(&f.base, "schedules.missed.", cmp.Or(s.Missed, store.MissedOnce),
		store.MissedOnce, store.MissedSkip)
	enabled, template := f.ask("enabled", checkField, "schedules.enabled"),
		f.ask("callback", textField, "schedules.template")
	enabled.Checked, template.Value, template.Required, template.Mono, template.Rows = s.Enabled,
		string(s.Template), true, true, templateRows
	f.Fields = []field{title, cron, zone, missed, enabled, template, f.askReason()}
	return f
}

// scheduleChange is the schedule as the form has it.
func (u *UI) scheduleChange(r *request) (ch control.ScheduleChange, err error) {
	name, cron, timezone, missed, enabled := r.value("name"), r.value("cron"), r.value("timezone"),
		r.value("missed"), r.form.Has("enabled")
	ch = control.ScheduleChange{Name: &name, Cron: &cron, Timezone: &timezone, Missed: &missed,
		Enabled: &enabled, Template: []byte(strings.TrimSpace(r.text("callback")))}
	if !json.Valid(ch.Template) {
		return ch, invalid("callback", r.lang.text("form.json"))
	}
	return ch, nil
}

// previewSchedule shows the form with the times at which the schedule would be due.
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
	own := cmp.Or(timezone, utc.name)
	says := []string{f.T("schedules.preview.says", "zone", r.zone.name)}
	for _, at := range next {
		line := f.Absolute(at) + " · " + f.relative(at)
		if own != r.zone.name {
			line = f.T("schedules.preview.own", "at", line, "own", scheduleLocalTime(timezone, at), "zone", own)
		}
		says = append(says, line)
	}
	return preview(f, says...)
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

// schedulePath is the page of the request's schedule.
func schedulePath(r *request) string { return Root + "/schedules/" + r.params["id"] }

func (u *UI) askEditSchedule(r *request) (*form, error) {
	s, err := load(r, store.SchedulePrefix, u.Engine.Schedule)
	if err != nil {
		return nil, err
	}
	s.Template = store.JSONText(indented(maskedTemplate(string(s.Template))))
	return u.scheduleForm(r, "edit", schedulePath(r), &s), nil
}

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
		ch.Template = nil // the bytes of its payload stay as they are
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

// A templatePart is a text in a template of a schedule that may carry a credential: its address, or a header.
// From and to are where it stands; shown is what of it may be seen.
type templatePart struct {
	name, masked string
	from, to     int
}

// templateParts finds them in JSON. Of what is no object there are none.
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

// eachMember reads the members of a JSON object that stands at the offset at; it ends where the text can no
// longer be read.
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

// maskedTemplate is a template without the credentials in its headers and its address. What is no JSON
// object, which only a damaged row can have, is not shown at all: what in it is a credential is unknown.
func maskedTemplate(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") || !json.Valid([]byte(text)) {
		return query.Mask
	}
	return replaceParts(text, templateParts(text), func(p templatePart) string { return jsonText(p.masked) })
}

// restoreMasked puts what was masked back into a template that was shown, and maybe changed beside it. All
// other bytes stay as they were typed. A header is not put back where the template goes to another receiver:
// its credential was given for the one that it had.
func restoreMasked(typed, kept string) string {
	known := make(map[string]templatePart)
	for _, p := range templateParts(kept) {
		known[p.name] = p
	}
	put := func(only string) {
		typed = replaceParts(typed, templateParts(typed), func(p templatePart) string {
			was, ok := known[p.name]
			now := typed[p.from:p.to]
			if !ok || !strings.HasPrefix(p.name, only) || now != jsonText(was.masked) {
				return now
			}
			return kept[was.from:was.to]
		})
	}
	put("url")
	if sameReceiver(typed, kept) {
		put("headers.")
	}
	return typed
}

// sameReceiver says whether two templates go to the same host and the same endpoint.
func sameReceiver(a, b string) bool {
	to := func(template string) (url, endpoint string) {
		eachMember(template, 0, func(name string, value json.RawMessage, _ int) {
			var text string
			if json.Unmarshal(value, &text) != nil {
				return // null, or what the engine refuses
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

// stillMasked names the first part of a template that has a mask in it which stands for nothing that is
// known: "url" or a header as "headers.NAME"; empty: there is none.
func stillMasked(template string) string {
	for _, p := range templateParts(template) {
		text := template[p.from:p.to]
		if p.name == "url" && strings.Contains(text, query.Mask) || text == jsonText(query.Mask) {
			return p.name
		}
	}
	return ""
}

// replaceParts puts other texts in the place of parts.
func replaceParts(text string, parts []templatePart, by func(p templatePart) string) string {
	var out strings.Builder
	at := 0
	for _, p := range parts {
		out.WriteString(text[at:p.from] + by(p))
		at = p.to
	}
	return out.String() + text[at:]
}

// jsonText writes a text as JSON.
func jsonText(s string) string {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		panic(err) // texts can always be encoded
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// sameJSON says whether two texts are the same but for the space in them.
func sameJSON(a, b string) bool {
	var one, other bytes.Buffer
	return json.Compact(&one, []byte(a)) == nil && json.Compact(&other, []byte(b)) == nil &&
		bytes.Equal(one.Bytes(), other.Bytes())
}
