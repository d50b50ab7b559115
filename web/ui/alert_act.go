package ui

import (
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) alertActs() []Route {
	patch := func(change func(r *request) (alert.Change, error)) func(*request, string) error {
		return func(r *request, id string) error {
			ch, err := change(r)
			if err != nil {
				return err
			}
			_, err = u.Engine.PatchAlert(r.ctx, r.caller.Project, id, ch, r.by())
			return err
		}
	}
	set := func(ch alert.Change) func(*request, string) error {
		return patch(func(*request) (alert.Change, error) { return ch, nil })
	}
	return slices.Concat(
		u.acts(
			act{"/alerts/new", store.ScopeOperate, u.askNewAlert, u.newAlert},
			act{"/alerts/:id/choose", store.ScopeOperate, u.askChooseAlert, chooseAlert},
		),
		actsOn(u, kind[alert.View]{
			path: "/alerts/:id/", texts: "alerts.", section: "alerts", prefix: store.AlertPrefix,
			find: from(u.Engine.Alert), begin: (*form).beginAlert,
		}, []actOn[alert.View]{
			{name: "edit", ask: u.askEditAlert, do: patch((*request).alertChange)},
			{name: "test", respond: u.testAlert},
			{name: "silence", ask: askSilence, do: patch((*request).silence)},
			{name: "unsilence", do: set(alert.Change{SilenceUntil: new(int64)})},
			{name: "enable", do: set(alert.Change{Enabled: new(true)})},
			{name: "disable", do: set(alert.Change{Enabled: new(false)})},
			{name: "delete", danger: true, to: "/alerts", do: func(r *request, id string) error {
				return u.Engine.DeleteAlert(r.ctx, r.caller.Project, id, r.by())
			}},
		}),
	)
}

// beginAlert adds the facts of an alert to a form.
func (f *form) beginAlert(v alert.View) {
	row := f.alertRow(&v)
	f.addFacts("column.name", v.Name)
	f.Facts = append(f.Facts, fact{Name: f.T("alerts.condition"), Value: row.Says},
		fact{Name: f.T("alerts.sink"), Value: row.SinkName + " " + row.SinkTo, Data: true})
}

// testAlert sends a test message, and shows its callback.
func (u *UI) testAlert(r *request, id string) (*response, error) {
	c, err := u.Engine.TestAlert(r.ctx, r.caller.Project, id, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/callbacks/"+store.CallbackPrefix+c.ID, "alerts.test.done")
}

// morningHour is the hour at which a silence until the morning ends, in the viewer's zone.
const morningHour = 9

// morning returns the next morning in the viewer's zone.
func (r *request) morning() int64 {
	now := time.UnixMilli(r.now).In(r.zone.Location)
	at := time.Date(now.Year(), now.Month(), now.Day(), morningHour, 0, 0, 0, r.zone.Location)
	if !at.After(now) {
		at = time.Date(now.Year(), now.Month(), now.Day()+1, morningHour, 0, 0, 0, r.zone.Location)
	}
	return at.UnixMilli()
}

// silences are the lengths that the form offers besides the morning and a time.
var silences = []string{"1h", "4h"}

func askSilence(f *form, _ alert.View) error {
	length := f.ask("for", choiceField, "alerts.silence.for")
	for i, text := range silences {
		d, err := schedule.ParseDuration(text)
		if err != nil {
			return err
		}
		length.Options = append(length.Options, option{Value: text, Text: f.duration(d), Chosen: i == 0})
	}
	length.Options = append(length.Options, option{Value: "morning",
		Text: f.T("alerts.silence.morning", "at", f.Absolute(f.r.morning()))})
	f.Fields = []field{length, f.askMoment("silence_until", "alerts.silence.until")}
	return nil
}

// silence returns the silence of the form. A typed time wins over the choice.
func (r *request) silence() (alert.Change, error) {
	until, err := r.moment("silence_until")
	switch {
	case err != nil:
		return alert.Change{}, err
	case until != nil && *until <= r.now:
		return alert.Change{}, invalid("silence_until", r.lang.text("system.pause.future"))
	case until != nil:
		return alert.Change{SilenceUntil: until}, nil
	case r.value("for") == "morning":
		return alert.Change{SilenceUntil: new(r.morning())}, nil
	case !slices.Contains(silences, r.value("for")):
		return alert.Change{}, invalid("for", r.lang.text("form.duration"))
	}
	d, err := schedule.ParseDuration(r.value("for"))
	return alert.Change{SilenceUntil: new(r.now + d.Milliseconds())}, err
}
