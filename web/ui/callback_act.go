package ui

import (
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) callbackActRoutes() []Route {
	const one = "/callbacks/:id"
	return u.acts(
		act{one + "/retry", store.ScopeOperate, u.askRetry, u.retry},
		act{one + "/cancel", store.ScopeOperate, u.askCancel, u.cancel},
		act{one + "/reschedule", store.ScopeOperate, u.askReschedule, u.reschedule},
		act{one + "/mend", store.ScopeOperate, u.askMend, u.mend},
	)
}

// callbackForm begins the form of an act on one callback. The texts are those of "act.NAME.*".
func (u *UI) callbackForm(r *request, name string) (*form, *store.Callback, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, nil, err
	}
	c, err := u.Store.Get(r.ctx, r.who.Project, id)
	if err != nil {
		return nil, nil, err
	}
	f := &form{base: u.base(r, "callbacks", "act."+name+".title"), Back: r.back(Root + "/callbacks/" + store.CallbackPrefix + id)}
	f.Says = []string{f.T("act." + name + ".says")}
	f.Submit = f.T("act." + name + ".submit")
	row := newRow(&c, r.now)
	f.Facts = []fact{{Name: f.T("column.id"), Value: row.FullID, Data: true}}
	if c.Ref != "" {
		f.Facts = append(f.Facts, fact{Name: f.T("column.ref"), Value: c.Ref, Data: true})
	}
	f.Facts = append(f.Facts, fact{Name: f.T("column.to"), Value: row.Address, Data: true}, fact{Name: f.T("column.state"), Value: f.T("state." + string(row.State))})
	return f, &c, nil
}

// did goes back to where the act was asked for, and says that it was done.
func (u *UI) did(r *request, otherwise, text string) (*answer, error) {
	u.say(r, text)
	return redirect(r.back(otherwise))
}

// callbackPath is the page of the request's callback.
func callbackPath(r *request) string { return Root + "/callbacks/" + r.params["id"] }

func (u *UI) askRetry(r *request) (*form, error) {
	f, c, err := u.callbackForm(r, "retry")
	if err != nil {
		return nil, err
	}
	if c.State.Terminal() {
		restart := r.value("ladder") == string(store.Restart)
		f.Fields = append(f.Fields, field{
			Name: "ladder", Kind: choiceField,
			Label: f.T("act.retry.ladder"), Help: f.T("act.retry.ladder.help"),
			Options: []option{
				{Value: string(store.Once), Text: f.T("ladder.once"), Chosen: !restart},
				{Value: string(store.Restart), Text: f.T("ladder.restart"), Chosen: restart},
			},
		})
	}
	f.Hidden = append(f.Hidden, named{"was", string(c.StateAt(r.now))})
	if c.State == store.Succeeded {
		f.Warnings = append(f.Warnings, f.T("act.retry.received"))
	}
	f.Fields = append(f.Fields,
		field{Name: "url", Kind: lineField, Label: f.T("act.retry.url"), Help: f.T("act.retry.url.help"), Mono: true, Suggest: "https://"},
		f.reasonField())
	return f, nil
}

func (u *UI) retry(r *request) (*answer, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	// Who asked for a retry of what was open does not mean to send again what was received meanwhile.
	if was := store.State(r.value("was")); was != "" && was != store.Succeeded {
		c, err := u.Store.Get(r.ctx, r.who.Project, id)
		if err != nil {
			return nil, err
		}
		if c.State == store.Succeeded {
			return nil, store.ErrTerminal
		}
	}
	q := dispatch.RetryRequest{Ladder: store.Ladder(r.value("ladder")), URL: r.value("url")}
	if _, err := u.Engine.Retry(r.ctx, r.who.Project, id, q, r.by()); err != nil {
		return nil, err
	}
	return u.did(r, callbackPath(r), r.lang.text("act.retry.done"))
}

func (u *UI) askCancel(r *request) (*form, error) {
	f, c, err := u.callbackForm(r, "cancel")
	if err != nil {
		return nil, err
	}
	f.Danger = true
	if c.StateAt(r.now) == store.Attempting {
		f.Says = append(f.Says, f.T("act.cancel.inflight"))
	}
	f.Fields = append(f.Fields, f.reasonField())
	return f, nil
}

func (u *UI) cancel(r *request) (*answer, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	done, err := u.Engine.Cancel(r.ctx, r.who.Project, id, r.by())
	if err != nil {
		return nil, err
	}
	if done.Result == store.CancelAlreadyTerminal {
		u.warn(r, r.lang.text("act.cancel.already_terminal"))
		return redirect(r.back(callbackPath(r)))
	}
	return u.did(r, callbackPath(r), r.lang.text("act.cancel."+string(done.Result)))
}

func (u *UI) askReschedule(r *request) (*form, error) {
	f, c, err := u.callbackForm(r, "reschedule")
	if err != nil {
		return nil, err
	}
	if c.DueAt != 0 {
		f.Facts = append(f.Facts, fact{Name: f.T("column.due"), Value: f.Absolute(c.DueAt), Data: true})
	}
	f.Fields = append(f.Fields,
		field{Name: "delay", Kind: lineField, Label: f.T("act.reschedule.delay"), Help: f.T("act.reschedule.delay.help"), Suggest: "10m", Mono: true},
		field{Name: "due_at", Kind: "datetime-local", Label: f.T("act.reschedule.due_at"), Help: f.T("form.zone", "zone", r.zone.name)},
		f.reasonField())
	return f, nil
}

func (u *UI) reschedule(r *request) (*answer, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	due, delay, err := r.moveTo()
	if err != nil {
		return nil, err
	}
	c, err := u.Engine.Reschedule(r.ctx, r.who.Project, id, due, delay, r.by())
	if err != nil {
		return nil, err
	}
	b := u.base(r, "", "app")
	return u.did(r, callbackPath(r), r.lang.text("act.reschedule.done", "at", b.Absolute(c.DueAt)))
}

// moveTo reads the fields due_at and delay, of which exactly one says something.
func (r *request) moveTo() (due *int64, delay *time.Duration, err error) {
	at, wait := r.value("due_at"), r.value("delay")
	switch {
	case at != "" && wait != "":
		return nil, nil, invalid("delay", r.lang.text("act.reschedule.both"))
	case wait != "":
		d, err := schedule.ParseDuration(wait)
		if err != nil {
			return nil, nil, invalid("delay", r.lang.text("form.duration"))
		}
		return nil, &d, nil
	case at != "":
		ms, ok := r.parseInput(at)
		if !ok {
			return nil, nil, invalid("due_at", r.lang.text("form.moment"))
		}
		return &ms, nil, nil
	}
	return nil, nil, invalid("delay", r.lang.text("act.reschedule.neither"))
}

func (u *UI) askMend(r *request) (*form, error) {
	f, c, err := u.callbackForm(r, "mend")
	if err != nil {
		return nil, err
	}
	f.Fields = append(f.Fields,
		field{Name: "url", Kind: lineField, Label: f.T("act.mend.url"), Help: f.T("act.mend.url.help"), Mono: true, Suggest: dispatch.ShownURL(c.URL)},
		field{Name: "policy", Kind: lineField, Label: f.T("act.mend.policy"), Help: f.T("act.mend.policy.help"), Mono: true, Suggest: c.Policy.Name},
		field{Name: "headers", Kind: textField, Label: f.T("act.mend.headers"), Help: f.T("act.mend.headers.help"), Mono: true, Rows: 3},
		field{Name: "expires_in", Kind: lineField, Label: f.T("act.mend.expires"), Help: f.T("act.mend.expires.help"), Mono: true, Suggest: "6h"},
		f.reasonField())
	return f, nil
}

func (u *UI) mend(r *request) (*answer, error) {
	id, err := r.bareID(store.CallbackPrefix)
	if err != nil {
		return nil, err
	}
	var q dispatch.MendRequest
	if s := r.value("url"); s != "" {
		q.URL = &s
	}
	q.PolicyName = r.value("policy")
	if s := r.text("headers"); strings.TrimSpace(s) != "" {
		headers, err := headerLines(s, r.lang)
		if err != nil {
			return nil, err
		}
		q.Headers = &headers
	}
	switch s := r.value("expires_in"); s {
	case "":
	case "never":
		q.NoExpiry = true
	default:
		d, err := schedule.ParseDuration(s)
		if err != nil {
			return nil, invalid("expires_in", r.lang.text("form.duration"))
		}
		q.ExpiresIn = &d
	}
	if q.URL == nil && q.PolicyName == "" && q.Headers == nil && q.ExpiresIn == nil && !q.NoExpiry {
		return nil, invalid("url", r.lang.text("act.mend.nothing"))
	}
	if _, err := u.Engine.Mend(r.ctx, r.who.Project, id, q, r.by()); err != nil {
		return nil, err
	}
	return u.did(r, callbackPath(r), r.lang.text("act.mend.done"))
}

// headerLines reads headers, one a line; a line of a single "-" is none at all.
func headerLines(s string, lang *language) ([]store.Header, error) {
	headers := []store.Header{}
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line == "" || line == "-" {
			continue
		}
		name, value, ok := strings.Cut(strings.Replace(line, "：", ":", 1), ":") // as Chinese keyboards write it
		if !ok {
			return nil, invalid("headers", lang.text("form.headerline", "line", line))
		}
		headers = append(headers, store.Header{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)})
	}
	return headers, nil
}
