package ui

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) redriveActs() []Route {
	set := func(to store.RedriveState) func(*request, string) error {
		return func(r *request, id string) error {
			_, err := u.Engine.SetRedrive(r.ctx, r.caller.Project, id, to, r.by())
			return err
		}
	}
	return actsOn(u, kind[store.Redrive]{
		path: "/redrives/:id/", texts: "redrives.", section: "redrives", prefix: store.RedrivePrefix,
		find: from(u.Store.Redrive), begin: (*form).beginRedrive,
	}, []actOn[store.Redrive]{
		{name: "pause", do: set(store.RedrivePaused)},
		{name: "resume", do: set(store.RedriveRunning)},
		{name: "approve", do: set(store.RedriveApproved), ask: (*form).askApprove},
		{name: "cancel", do: set(store.RedriveCanceled), danger: true},
	})
}

// beginRedrive adds the facts of a redrive to a form.
func (f *form) beginRedrive(redrive store.Redrive) {
	row := newRedriveRow(&f.base, &redrive)
	f.addFacts("column.id", row.FullID)
	f.Facts = append(f.Facts, fact{Name: f.T("redrives.action"), Value: f.T(row.Verb())},
		fact{Name: f.T("column.state"), Value: f.T(row.Label())})
	f.addFacts("redrives.left", f.N(redrive.Matched-redrive.Done-redrive.Failed))
}

// askApprove shows what the second person must know: the number, the filter, and who asks for what reason.
func (f *form) askApprove(redrive store.Redrive) error {
	f.Facts = []fact{{Name: f.T("redrives.action"), Value: f.T("redrives.one." + string(redrive.Action))}}
	f.addFacts("redrives.matched", f.N(redrive.Matched))
	if conditions, ok := filterOf(f.r, &redrive); ok {
		if err := f.ui.nameFilters(f.r, conditions); err != nil {
			return err
		}
		f.Facts = append(f.Facts, conditions.conditions(&f.base)...)
	}
	f.Facts = append(f.Facts, f.settings(&redrive)[1:]...)
	by := fact{Name: f.T("redrives.requester"), Value: redrive.Actor, Data: true}
	if key, ok := programNames[redrive.Actor]; ok {
		by.Value, by.Data = f.T(key), false
	}
	f.Facts = append(f.Facts, by)
	if redrive.Reason != "" {
		f.addFacts("redrives.requester.reason", redrive.Reason)
	}
	return nil
}

const (
	// countLimit and countTimeout bound the count of the callbacks that an act would change.
	countLimit   = 10_000
	countTimeout = 3 * time.Second
	// carefulRate is the suggested rate. It protects a receiver that has just recovered.
	carefulRate = "100/s"
)

// A bulk is an action on all callbacks that match a filter, from the form.
type bulk struct {
	action store.RedriveAction
	filter *filter
}

// statesOf returns the states that an action selects if its filter has no state. The engine has the same
// rule.
func statesOf(action store.RedriveAction) []store.State {
	switch action {
	case store.RedriveRetry:
		return []store.State{store.Dead}
	case store.RedriveCancel, store.RedriveReschedule:
		return []store.State{store.Scheduled}
	case store.RedriveSetURL:
		return []store.State{store.Scheduled, store.Dead}
	}
	return nil
}

// bulkOf parses the action and the filter. In a URL the filter is parameters. In a submitted form it is one
// field, because the form's own field "reason" (for the audit log) would collide with the filter's parameter
// "reason". bulkOf adds the action's states to a filter without states, so that the form shows them.
func (u *UI) bulkOf(r *request) (*bulk, error) {
	from, action := r.url.Query(), r.query("action")
	if r.form != nil {
		var err error
		from, err = url.ParseQuery(r.form.Get("filter"))
		if err != nil {
			return nil, invalid("filter", r.lang.text("redrives.unreadable"))
		}
		action = r.value("action")
	}
	b := &bulk{action: store.RedriveAction(action), filter: r.readFilter(from)}
	states := statesOf(b.action)
	if states == nil {
		return nil, invalid("action", `must be "retry", "cancel", "reschedule" or "set_url"`)
	}
	if b.filter.Empty() {
		return nil, invalid("filter", r.lang.text("redrives.nofilter"))
	}
	if err := u.findEndpoint(r, b.filter); err != nil {
		return nil, err
	}
	if len(b.filter.invalid) > 0 {
		fields := slices.Clone(b.filter.invalid)
		for i := range fields {
			fields[i].Message = r.lang.text("redrives.badcondition", "value", fields[i].Message)
		}
		return nil, &store.InvalidError{Fields: fields}
	}
	if len(b.filter.States) == 0 {
		b.filter.States = states
		for _, s := range states {
			b.filter.Values.Add("state", string(s))
		}
	}
	return b, nil
}

// request returns the redrive that the form describes.
func (b *bulk) request(r *request) (q control.RedriveRequest, err error) {
	q = control.RedriveRequest{Action: string(b.action), Filter: b.filter.Filter.Filter,
		FilterText: b.filter.JSON(), Rate: r.value("rate"), Most: countLimit}
	switch b.action {
	case store.RedriveRetry:
		q.Ladder = r.value("ladder")
	case store.RedriveSetURL:
		q.URL = r.value("url")
	case store.RedriveReschedule:
		q.DueAt, q.Delay, err = r.moveTo()
	case store.RedriveCancel:
	}
	return q, err
}

// has reports whether the filter selects one of the states.
func (b *bulk) has(states ...store.State) bool {
	return slices.ContainsFunc(states, func(s store.State) bool {
		return slices.Contains(b.filter.States, s)
	})
}

// A tally is the number of callbacks that match a filter.
type tally struct {
	n int64
	// more is true if there are more than n. unknown is true if the count has timed out.
	more, unknown bool
}

// countBulk counts the callbacks that match the filter. It counts for the action cancel, which needs no other
// field: the form may be incomplete, and the number does not depend on the action.
func (u *UI) countBulk(r *request, b *bulk) (tally, error) {
	q := control.RedriveRequest{Action: string(store.RedriveCancel), Filter: b.filter.Filter.Filter,
		FilterText: b.filter.JSON(), Most: countLimit}
	return u.count(r, q)
}

// count counts the callbacks that a redrive would change. If countTimeout or the store's own deadline passes,
// it returns an unknown tally and no error.
func (u *UI) count(r *request, q control.RedriveRequest) (t tally, err error) {
	ctx, cancel := context.WithTimeout(r.ctx, countTimeout)
	defer cancel()
	t.n, t.more, err = u.Engine.CountRedrive(ctx, r.caller.Project, q)
	storeTimedOut := errors.Is(err, context.DeadlineExceeded) && r.ctx.Err() == nil
	if err != nil && (r.timedOut(ctx) || storeTimedOut) {
		return tally{unknown: true}, nil
	}
	return t, err
}

// what describes the counted callbacks in the viewer's language.
func (t tally) what(b *base) string {
	switch {
	case t.unknown:
		return b.T("redrives.what.all")
	case t.more:
		return b.T("redrives.what.more", "n", t.n)
	}
	return b.T("redrives.what", "n", t.n)
}

// askRedrive returns the form of an action on all callbacks that match a filter: the filter's conditions, the
// number of callbacks now, and the fields of the action. It is also the form after an error or a preview.
func (u *UI) askRedrive(r *request) (*form, error) {
	b, err := u.bulkOf(r)
	if err != nil {
		return nil, err
	}
	t, err := u.countBulk(r, b)
	if err != nil {
		return nil, err
	}
	name := string(b.action)
	f := &form{base: u.base(r, "redrives", "redrives.one."+name), Action: Root + "/redrives/new",
		Danger: b.action == store.RedriveCancel || b.action == store.RedriveSetURL}
	list := Root + "/callbacks?" + b.filter.query()
	f.Back = r.back(list)
	f.Hidden = []named{{"action", name}, {"filter", b.filter.query()}}
	f.Submit, f.PreviewSubmit = f.T("redrives.submit."+name), f.T("redrives.recount")
	f.Facts = append(b.filter.conditions(&f.base),
		fact{Name: f.T("redrives.matching"), Value: f.T("redrives.see"), Link: list})
	rate, ladder := r.value("rate"), store.Ladder(r.value("ladder"))
	if r.form == nil {
		rate = carefulRate
	}
	f.describeBulk(b, t, rate, ladder)
	switch b.action {
	case store.RedriveRetry:
		x := f.ask("ladder", choiceField, "redrives.ladder")
		x.Label, x.Options = f.T("ladder.title"),
			choose(&f.base, "ladder.", cmp.Or(ladder, store.Restart), store.Restart, store.Once)
		f.Fields = []field{x}
	case store.RedriveSetURL:
		x := f.askMono("url", "act.edit.url", "https://")
		x.Help, x.Required = f.T("redrives.url.help"), true
		f.Fields = []field{x}
	case store.RedriveReschedule:
		f.Fields = f.moveFields("redrives.delay.help")
	case store.RedriveCancel:
	}
	pace := f.askMono("rate", "redrives.rate", "")
	pace.Value = carefulRate
	f.Fields = append(f.Fields, pace, f.askReason())
	return f, nil
}

// describeBulk sets the effects of the action, the number of callbacks and the warnings. rate is the typed
// rate.
func (f *form) describeBulk(b *bulk, t tally, rate string, ladder store.Ladder) {
	if t.n == 0 && !t.unknown {
		f.Effects = []string{f.T("redrives.nothing")}
		return
	}
	name := string(b.action)
	if b.action == store.RedriveRetry && ladder == store.Once {
		name = "once"
	}
	pace, per := store.Rate{}, "“"+rate+"”"
	// An invalid rate is an error of its field; here the typed text is shown.
	if parsed, err := store.ParseRate(rate); err == nil || rate == "" {
		pace, per = parsed, f.rate(parsed)
	}
	f.Effects = []string{f.T("redrives.says."+name, "what", t.what(&f.base), "rate", per)}
	if d := f.takes(t.n, pace); d != "" && t.more {
		f.Effects = append(f.Effects, f.T("redrives.takes.more", "d", d))
	} else if d != "" {
		f.Effects = append(f.Effects, f.T("redrives.takes", "d", d))
	}
	f.Effects = append(f.Effects, f.T("redrives.snapshot"))
	for _, warning := range []struct {
		key     string
		applies bool
	}{
		{"redrives.uncounted", t.unknown},
		{"redrives.warn.approval", f.ui.ApprovalAbove > 0 && (t.unknown || t.more ||
			t.n > int64(f.ui.ApprovalAbove))},
		{"redrives.warn.oneaddress", b.action == store.RedriveSetURL && b.filter.EndpointID == "" &&
			b.filter.Lane == "" && b.filter.Ref == ""},
		{"redrives.warn.succeeded", b.action == store.RedriveRetry && b.has(store.Succeeded)},
		{"redrives.warn.canceled", b.action == store.RedriveRetry && b.has(store.Canceled)},
		{"redrives.warn.ended", b.action == store.RedriveCancel &&
			b.has(store.Succeeded, store.Dead, store.Canceled)},
		{"redrives.warn.inflight", b.action == store.RedriveCancel && b.has(store.Attempting)},
		{"redrives.warn.final", (b.action == store.RedriveReschedule || b.action == store.RedriveSetURL) &&
			b.has(store.Succeeded, store.Canceled)},
	} {
		if warning.applies {
			f.Warnings = append(f.Warnings, f.T(warning.key))
		}
	}
}

// newRedrive starts the redrive that the form describes, or shows a preview.
func (u *UI) newRedrive(r *request) (*response, error) {
	b, err := u.bulkOf(r)
	if err != nil {
		return nil, err
	}
	q, err := b.request(r)
	if err != nil {
		return nil, err
	}
	if r.value("preview") != "" {
		return u.recount(r, q)
	}
	redrive, err := u.Engine.Redrive(r.ctx, r.caller.Project, q, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/redrives/"+store.RedrivePrefix+redrive.ID, "redrives.begun")
}

// recount shows the form with a new count as its preview. Invalid fields are errors of the form.
func (u *UI) recount(r *request, q control.RedriveRequest) (*response, error) {
	q.Most = 1 // this call only validates the fields; askRedrive counts
	if _, err := u.count(r, q); err != nil {
		return nil, err
	}
	f, err := u.askRedrive(r)
	if err != nil {
		return nil, err
	}
	return preview(f, f.T("redrives.recounted", "at", f.Absolute(r.now), "says", f.Effects[0]))
}
