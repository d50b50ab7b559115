package ui

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// chosen returns a choice of the first form: a value of the form or of the page's URL.
func (r *request) chosen(name string) string { return cmp.Or(r.value(name), r.query(name)) }

// askAlertKind adds the fields of the first form: what an alert watches, and where it sends to. The second
// form has the fields of these.
func (f *form) askAlertKind(v alert.View) error {
	row := f.alertRow(&v)
	kinds := f.ask("kind", choiceField, "alerts.condition")
	kinds.Options = choose(&f.base, "alerts.kind.", row.When.Kind, store.AlertKinds()...)
	sinks := f.ask("type", choiceField, "alerts.sink")
	sinks.Options = choose(&f.base, "alerts.sink.", row.Sink.Type, sink.Types()...)
	f.Fields = []field{kinds, sinks}
	return nil
}

// askChooseAlert is the first form for an alert that exists.
func (u *UI) askChooseAlert(r *request) (*form, error) {
	v, err := load(r, store.AlertPrefix, u.Engine.Alert)
	if err != nil {
		return nil, err
	}
	f := u.form(r, "alerts", "alerts.choose", Root+"/alerts/"+r.params["id"])
	return f, f.askAlertKind(v)
}

// chooseAlert redirects to the form with the fields of the chosen kinds.
func chooseAlert(r *request) (*response, error) {
	path := "/alerts/new"
	if id := r.params["id"]; id != "" {
		path = "/alerts/" + id + "/edit"
	}
	return redirect(link(path, "kind", r.value("kind"), "type", r.value("type")))
}

// askNewAlert asks for the kinds first. Their fields are on the next form.
func (u *UI) askNewAlert(r *request) (*form, error) {
	rule, known := alert.RuleOf(store.AlertKind(r.chosen("kind")))
	if !known || !slices.Contains(sink.Types(), r.chosen("type")) {
		f := u.form(r, "alerts", "alerts.choose", Root+"/alerts")
		f.Title = f.T("alerts.new.title")
		return f, f.askAlertKind(alert.View{})
	}
	f := u.form(r, "alerts", "alerts.new", Root+"/alerts")
	v := alert.View{Alert: store.Alert{Name: f.T("alerts.kind." + string(rule.Kind)), When: store.AlertWhen{
		Kind: rule.Kind, Above: int64(rule.Default), Below: rule.Default, For: rule.For, Window: rule.Window,
		MinAttempts: rule.MinAttempts,
	}}}
	err := u.alertFields(f, &v, &sink.Config{Type: r.chosen("type"), Language: r.lang.code}, true)
	f.Fields = append(f.Fields, f.askReason())
	return f, err
}

func (u *UI) newAlert(r *request) (*response, error) {
	if !r.form.Has("name") {
		return chooseAlert(r)
	}
	ch, err := r.alertChange()
	if err != nil {
		return nil, err
	}
	if ch.Digest.At == "" {
		ch.Digest = nil
	}
	made, err := u.Engine.CreateAlert(r.ctx, r.caller.Project, ch, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/alerts/"+store.AlertPrefix+made.ID, "alerts.new.done")
}

// askEditAlert adds the fields of an alert. Other kinds come from the form before.
func (u *UI) askEditAlert(f *form, v alert.View) error {
	f.Facts = nil // the fields show the same
	c := f.alertRow(&v).Sink
	if rule, known := alert.RuleOf(store.AlertKind(f.r.chosen("kind"))); known && rule.Kind != v.When.Kind {
		v.When = store.AlertWhen{Kind: rule.Kind, Above: int64(rule.Default), Below: rule.Default,
			For: rule.For, Window: rule.Window, MinAttempts: rule.MinAttempts}
	}
	to := f.r.chosen("type")
	if !slices.Contains(sink.Types(), to) {
		to = c.Type
	}
	other := to != c.Type || to == ""
	if other {
		c = sink.Config{Type: cmp.Or(to, sink.Webhook), Language: c.Language}
	}
	return u.alertFields(f, &v, &c, other)
}

// alertFields sets the fields of an alert: those that its kind and the type of its sink take. other is true
// if no credential of this sink is stored yet.
func (u *UI) alertFields(f *form, v *alert.View, c *sink.Config, other bool) error {
	f.Hidden = append(f.Hidden, named{"kind", string(v.When.Kind)}, named{"type", c.Type})
	choose := Root + "/alerts/new"
	if v.ID != "" {
		choose = Root + "/alerts/" + store.AlertPrefix + v.ID + "/choose"
	}
	f.Facts = []fact{
		{Name: f.T("alerts.condition"), Value: f.Or("alerts.kind.", string(v.When.Kind)), Link: choose},
		{Name: f.T("alerts.sink"), Value: f.Or("alerts.sink.", c.Type), Link: choose},
	}
	name := f.ask("name", lineField, "alerts.name")
	name.Label, name.Value, name.Required = f.T("column.name"), v.Name, true
	f.Fields = append(f.Fields, name)
	f.thresholdField(v)
	if err := u.scopeField(f, &v.When); err != nil {
		return err
	}
	f.sinkFields(c, other)
	f.timingFields(&v.When)
	at := f.ask("digest.at", timeField, "alerts.digest")
	at.Value, at.Group = v.DigestAt, "alerts.group.digest"
	zone := f.askZone("digest.timezone", "alerts.zone")
	zone.Label, zone.Group, zone.Value = f.T("frame.zone"), at.Group, f.zone.name
	if v.DigestAt != "" {
		zone.Value = cmp.Or(v.DigestZone, utc.name)
	}
	f.Fields = append(f.Fields, at, zone)
	return nil
}

// thresholdField adds the threshold, in the unit of the kind.
func (f *form) thresholdField(v *alert.View) {
	rule, _ := alert.RuleOf(v.When.Kind)
	x := f.askMono("when.above", "alerts.above."+string(rule.Kind), "")
	x.Required = true
	switch rule.Unit {
	case alert.Duration:
		x.Value = durationText(time.Duration(v.When.Above) * time.Millisecond)
	case alert.Count:
		x.Value = strconv.FormatInt(v.When.Above, 10)
	case alert.Percent:
		x.Name, x.Value = "when.below", strconv.FormatFloat(v.When.Below, 'g', -1, 64)
	default:
		return
	}
	f.Fields = append(f.Fields, x)
}

func durationText(d time.Duration) string { return schedule.FormatDuration(d) }

// timingFields adds the times of a condition.
func (f *form) timingFields(w *store.AlertWhen) {
	rule, _ := alert.RuleOf(w.Kind)
	add := func(name, value string) {
		x := f.askMono("when."+name, "alerts."+name, "")
		x.Value, x.Group = value, "alerts.group.timing"
		f.Fields = append(f.Fields, x)
	}
	if rule.Window != 0 {
		add("window", durationText(w.Window))
	}
	if rule.MinAttempts != 0 {
		add("min_attempts", strconv.FormatInt(w.MinAttempts, 10))
	}
	add("for", durationText(w.For))
}

// scopeChoices bounds the options of a select. With more objects the field takes an id.
const scopeChoices = 100

// scopeField adds the field that restricts an alert to one endpoint, lane or schedule.
func (u *UI) scopeField(f *form, w *store.AlertWhen) error {
	rule, _ := alert.RuleOf(w.Kind)
	if rule.Scope == "" {
		return nil
	}
	options, err := u.scopeOptions(f.r, rule.Scope)
	if err != nil {
		return err
	}
	chosen := w.Lane
	if w.Endpoint != "" {
		chosen = store.EndpointPrefix + w.Endpoint
	} else if w.Schedule != "" {
		chosen = store.SchedulePrefix + w.Schedule
	}
	x := f.ask("when."+rule.Scope, choiceField, "alerts.only."+rule.Scope)
	if len(options) > scopeChoices {
		x.Kind, x.Mono, x.Value, x.Help = lineField, true, chosen, f.T("alerts.only.id")
		f.Fields = append(f.Fields, x)
		return nil
	}
	x.Options = []option{{Text: f.T("alerts.only.all"), Chosen: chosen == ""}}
	known := chosen == ""
	for _, o := range options {
		o.Data, o.Chosen = true, o.Value == chosen
		known = known || o.Chosen
		x.Options = append(x.Options, o)
	}
	if !known { // it was deleted
		x.Options = append(x.Options, option{Value: chosen, Text: chosen, Data: true, Chosen: true})
	}
	f.Fields = append(f.Fields, x)
	return nil
}

// scopeOptions returns the endpoints, lanes or schedules of the project by their names, or the first ones if
// there are more than scopeChoices.
func (u *UI) scopeOptions(r *request, scope string) (options []option, err error) {
	add := func(value, text string) { options = append(options, option{Value: value, Text: text}) }
	switch scope {
	case "endpoint":
		var found []store.Endpoint
		found, err = u.Store.Endpoints(r.ctx, r.caller.Project,
			store.EndpointFilter{NoSinks: true, Now: r.now, Limit: scopeChoices + 1})
		for i := range found {
			row := newEndpointRow(found[i])
			add(row.FullID, row.Label)
		}
	case "schedule":
		var found []store.Schedule
		found, err = u.Engine.Schedules(r.ctx, r.caller.Project,
			store.ScheduleFilter{Limit: scopeChoices + 1})
		for i := range found {
			add(store.SchedulePrefix+found[i].ID, found[i].Name)
		}
	case "lane":
		found, failed := u.Engine.Lanes(r.ctx, r.caller.Project,
			store.LaneFilter{Now: r.now, DueBy: r.now, Limit: scopeChoices + 1})
		if failed != nil {
			return nil, failed
		}
		keys := make([]string, len(found))
		for i := range found {
			keys[i] = found[i].Key
		}
		var labels map[string]string
		labels, err = u.endpointLabels(r, keys)
		for _, key := range keys {
			add(key, cmp.Or(labels[key], key))
		}
	}
	slices.SortStableFunc(options, func(a, b option) int { return strings.Compare(a.Text, b.Text) })
	return options, err
}

// sinkFields adds the fields of a type of sink. Credentials stay empty: an empty one keeps the stored one.
func (f *form) sinkFields(c *sink.Config, other bool) {
	add := func(name, value string, required bool) *field {
		x := f.askMono("sink."+name, "alerts.sink."+name, "")
		x.Value, x.Required = value, required
		f.Fields = append(f.Fields, x)
		return &f.Fields[len(f.Fields)-1]
	}
	// secret makes a field one whose value never appears in a page.
	secret := func(x *field) {
		x.Secret, x.Value = true, ""
		if !other {
			x.Required, x.Help = false, f.T("alerts.sink.kept")
		}
	}
	if c.Type == sink.Email {
		add("server", c.Server, true).Suggest = "smtps://mail.example:465"
		add("username", c.Username, false)
		password := add("password", "", false)
		secret(password)
		password.Kind = passwordField
		add("from", c.From, true).Suggest = "alerts@shop.example"
		to := add("to", strings.Join(c.To, "\n"), true)
		to.Kind, to.Rows, to.Suggest = textField, 3, "ops@shop.example"
	} else {
		address := add("url", "", true)
		address.Suggest = "https://…"
		if key := "alerts.sink.url." + c.Type; f.Has(key) {
			address.Help = f.T(key)
		}
		secret(address)
		if !other {
			address.Suggest, address.Help = c.URL, f.T("alerts.sink.url.kept")
		}
	}
	switch c.Type {
	case sink.DingTalk, sink.Feishu, sink.Webhook:
		x := add("secret", "", false)
		x.Help = f.T("alerts.sink.secret." + c.Type)
		secret(x)
		x.Kind = passwordField
	}
	switch c.Type {
	case sink.DingTalk, sink.WeCom, sink.Feishu, sink.Slack:
		add("mentions", strings.Join(c.Mentions, " "), false)
	}
	language := f.ask("sink.lang", choiceField, "alerts.sink.language")
	for _, l := range f.ui.languages {
		language.Options = append(language.Options, option{Value: l.code, Text: l.name, Data: true,
			Chosen: l.code == cmp.Or(c.Language, sink.English)})
	}
	f.Fields = append(f.Fields, language)
}

// alertChange returns the alert that the form describes. Wrong fields are in its Invalid.
func (r *request) alertChange() (alert.Change, error) {
	ch := alert.Change{Name: new(r.value("name")), Sink: &sink.Config{
		Type: r.value("type"), URL: r.value("sink.url"), Secret: r.value("sink.secret"),
		Mentions: words(r.text("sink.mentions")), Language: r.value("sink.lang"),
		Server: r.value("sink.server"), Username: r.value("sink.username"),
		Password: r.form.Get("sink.password"), From: r.value("sink.from"), To: words(r.text("sink.to")),
	}, Digest: &alert.Digest{At: r.value("digest.at")}}
	if ch.Digest.At != "" {
		ch.Digest.Timezone = r.value("digest.timezone")
	}
	r.alertWhen(&ch)
	return ch, nil
}

// alertWhen sets the condition of a change. Empty and wrong fields get the defaults of the kind.
func (r *request) alertWhen(ch *alert.Change) {
	w := &alert.When{Kind: r.value("kind"), Endpoint: r.value("when.endpoint"), Lane: r.value("when.lane"),
		Schedule: r.value("when.schedule")}
	ch.When = w
	read := func(name, wrong string, parse func(text string) error) {
		if text := r.value(name); text != "" && parse(text) != nil {
			ch.Invalid = append(ch.Invalid, store.FieldError{Field: name, Message: r.lang.text(wrong)})
		}
	}
	duration := func(name string, to **time.Duration) {
		read(name, "form.duration", func(text string) error {
			d, err := schedule.ParseDuration(text)
			if err == nil {
				*to = &d
			}
			return err
		})
	}
	whole := func(name string, to **int64) {
		read(name, "form.number", func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err == nil {
				*to = &n
			}
			return err
		})
	}
	if rule, _ := alert.RuleOf(store.AlertKind(w.Kind)); rule.Unit == alert.Duration {
		duration("when.above", &w.AboveTime)
	} else {
		whole("when.above", &w.AboveCount)
	}
	read("when.below", "form.number", func(text string) error {
		n, err := strconv.ParseFloat(text, 64)
		if err == nil {
			w.Below = &n
		}
		return err
	})
	whole("when.min_attempts", &w.MinAttempts)
	duration("when.window", &w.Window)
	duration("when.for", &w.For)
}

// words splits a text at spaces, commas and line ends.
func words(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool {
		return unicode.IsSpace(c) || strings.ContainsRune(",;，；、", c)
	})
}
