package ui

import (
	"cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// stopActs returns the routes that stop all sending of the installation and start it again.
func (u *UI) stopActs() []Route {
	set := func(r *request, until int64) error {
		_, err := u.Engine.StopSending(r.ctx, until, r.by())
		return err
	}
	return actsOn(u, kind[store.Stop]{
		path: "/system/", texts: "system.", section: "system", begin: (*form).beginStop,
		id:   func(*request) (string, error) { return "", nil },
		find: func(r *request, _ string) (store.Stop, error) { return u.Engine.SendingStop(r.ctx) },
	}, []actOn[store.Stop]{
		{name: "stop", scope: store.ScopeAdmin, ask: (*form).askStop, danger: true,
			do: func(r *request, _ string) error {
				until, err := r.pauseEnd()
				if err != nil {
					return err
				}
				if r.value("reason") == "" {
					return invalid("reason", r.lang.text("system.pause.reason"))
				}
				return set(r, until)
			}},
		{name: "start", scope: store.ScopeAdmin, ask: (*form).askStart,
			do: func(r *request, _ string) error { return set(r, 0) }},
	})
}

// beginStop adds the facts of the present stop to a form.
func (f *form) beginStop(stop store.Stop) {
	if stop.At == 0 {
		return
	}
	until := fact{Name: f.T("system.stopped.until"), Value: f.T("system.stopped.forever")}
	if stop.Until < store.Forever {
		until.Value, until.Data = f.Absolute(stop.Until), true
	}
	f.addFacts("system.stopped.since", f.Absolute(stop.At), "system.stopped.by", f.actorText(stop.By))
	f.Facts = append(f.Facts, until)
	f.addFacts("form.reason", stop.Reason)
}

func (f *form) askStop(stop store.Stop) error {
	f.Effects = append(f.Effects, f.T("system.stop.accepts"), f.T("system.stop.inflight"))
	if stop.At != 0 {
		f.Effects = append(f.Effects, f.T("system.stop.again"))
	}
	reason := f.askReason()
	reason.Required, reason.Help = true, f.T("system.stop.reason.help")
	reason.Value = cmp.Or(reason.Value, stop.Reason)
	f.Fields = []field{
		reason, f.askMono("for", "system.pause.for", "30m"), f.askMoment("until", "system.pause.until"),
	}
	return nil
}

func (f *form) askStart(stop store.Stop) error {
	f.Effects = append(f.Effects, f.T("system.start.own"))
	if stop.At == 0 {
		f.Effects = []string{f.T("system.start.not")}
	}
	return nil
}
