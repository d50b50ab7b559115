package ui

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) callbackActs() []Route {
	return actsOn(u, kind[store.Callback]{
		path: "/callbacks/:id/", texts: "act.", section: "callbacks", prefix: store.CallbackPrefix,
		find: from(u.Store.Get), begin: (*form).beginCallback,
	}, []actOn[store.Callback]{
		{name: "retry", ask: (*form).askRetry, do: u.retry},
		{name: "cancel", ask: (*form).askCancel, respond: u.cancel, danger: true},
		{name: "reschedule", ask: (*form).askReschedule, respond: u.reschedule},
		{name: "edit", ask: (*form).askEditCallback, do: u.editCallback},
		{name: "resolve", scope: store.ScopeSend, ask: (*form).askResolve, do: u.resolve},
	})
}

// beginCallback adds the facts of a callback to a form.
func (f *form) beginCallback(c store.Callback) {
	row := newRow(&c, f.now)
	f.addFacts("column.id", row.FullID)
	if c.Ref != "" {
		f.addFacts("column.ref", c.Ref)
	}
	f.addFacts("column.to", row.Address)
	f.Facts = append(f.Facts, fact{Name: f.T("column.state"), Value: f.T("state." + string(row.State))})
}

// askRetry asks how to retry: the ladder of a finished callback, and another URL. The hidden field "was" has
// the state at this moment, which retry compares.
func (f *form) askRetry(c store.Callback) error {
	if c.State.Terminal() {
		ladder := f.ask("ladder", choiceField, "act.retry.ladder")
		chosen := store.Once
		if f.r.value("ladder") == string(store.Restart) {
			chosen = store.Restart
		}
		ladder.Options = choose(&f.base, "ladder.", chosen, store.Once, store.Restart)
		f.Fields = append(f.Fields, ladder)
	}
	f.Hidden = append(f.Hidden, named{"was", string(c.StateAt(f.now))})
	if c.State == store.Succeeded {
		f.Warnings = append(f.Warnings, f.T("act.retry.received"))
	}
	f.Fields = append(f.Fields, f.askMono("url", "act.retry.url", "https://"))
	return nil
}

// retry makes the callback due now. The "retry now" button posts without the form, with only "was".
func (u *UI) retry(r *request, id string) error {
	// The callback may have ended since the page was rendered: it was delivered, or another operator has
	// canceled it. Then the page must be looked at again.
	if was := store.State(r.value("was")); was != "" {
		c, err := u.Store.Get(r.ctx, r.caller.Project, id)
		if err != nil {
			return err
		}
		if c.State.Terminal() && c.State != was {
			return store.ErrTerminal
		}
	}
	q := control.RetryRequest{Ladder: store.Ladder(r.value("ladder")), URL: r.value("url")}
	_, err := u.Engine.Retry(r.ctx, r.caller.Project, id, q, r.by())
	return err
}

func (f *form) askCancel(c store.Callback) error {
	if c.StateAt(f.now) == store.Attempting {
		f.Effects = append(f.Effects, f.T("act.cancel.inflight"))
	}
	return nil
}

// cancel cancels the callback. The message says whether it is canceled, whether an attempt in flight may
// still deliver it, or whether it had finished before.
func (u *UI) cancel(r *request, id string) (*response, error) {
	done, err := u.Engine.Cancel(r.ctx, r.caller.Project, id, r.by())
	if err != nil {
		return nil, err
	}
	page := Root + "/callbacks/" + r.params["id"]
	if done.Result == store.CancelAlreadyTerminal {
		u.flashFailed(r, r.lang.text("act.cancel.already_terminal"))
		return redirect(r.back(page))
	}
	return u.returnDone(r, page, r.lang.text("act.cancel."+string(done.Result)))
}

// moveFields returns the fields for a new due time. moveTo accepts exactly one of them.
func (f *form) moveFields(help string) []field {
	delay := f.askMono("delay", "act.reschedule.delay", "10m")
	delay.Help = f.T(help)
	return []field{delay, f.askMoment("due_at", "act.reschedule.due_at")}
}

func (f *form) askReschedule(c store.Callback) error {
	if c.DueAt != 0 {
		f.addFacts("column.due", f.Absolute(c.DueAt))
	}
	f.Fields = f.moveFields("act.reschedule.delay.help")
	return nil
}

func (u *UI) reschedule(r *request, id string) (*response, error) {
	due, delay, err := r.moveTo()
	if err != nil {
		return nil, err
	}
	c, err := u.Engine.Reschedule(r.ctx, r.caller.Project, id, due, delay, r.by())
	if err != nil {
		return nil, err
	}
	b := u.base(r, "", "app")
	text := b.T("act.reschedule.done", "at", b.Absolute(c.DueAt))
	return u.returnDone(r, Root+"/callbacks/"+r.params["id"], text)
}

// moveTo parses the fields due_at and delay. Exactly one of them must be filled in.
func (r *request) moveTo() (due *int64, delay *time.Duration, err error) {
	delay, due, err = r.lengthOrMoment("delay", "due_at")
	if err == nil && delay == nil && due == nil {
		err = invalid("delay", r.lang.text("act.reschedule.neither"))
	}
	return due, delay, err
}

func (f *form) askEditCallback(c store.Callback) error {
	headers := f.ask("headers", textField, "act.edit.headers")
	headers.Mono, headers.Rows = true, 3
	f.Fields = []field{
		f.askMono("url", "act.edit.url", store.MaskURL(c.URL)),
		f.askMono("policy", "act.edit.policy", c.Policy.Name), headers,
		f.askMono("expires_in", "act.edit.expires", "6h"),
	}
	return nil
}

// editCallback changes the fields that are filled in. "-" as the only header removes all headers, and "never"
// removes the expiry.
func (u *UI) editCallback(r *request, id string) (err error) {
	var q control.EditRequest
	q.PolicyName = r.value("policy")
	if s := r.value("url"); s != "" {
		q.URL = &s
	}
	if s := r.text("headers"); strings.TrimSpace(s) != "" {
		headers, err := headerLines(s, r.lang)
		if err != nil {
			return err
		}
		q.Headers = &headers
	}
	q.NoExpiry = r.value("expires_in") == "never"
	if !q.NoExpiry {
		q.ExpiresIn, err = r.duration("expires_in")
		if err != nil {
			return err
		}
	}
	if q.URL == nil && q.PolicyName == "" && q.Headers == nil && q.ExpiresIn == nil && !q.NoExpiry {
		return invalid("url", r.lang.text("act.edit.nothing"))
	}
	_, err = u.Engine.Edit(r.ctx, r.caller.Project, id, q, r.by())
	return err
}

// headerLines parses headers, one a line. It skips empty lines and lines of a single "-"; the latter let a
// form remove all headers.
func headerLines(s string, lang *language) ([]store.Header, error) {
	headers := []store.Header{}
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" || line == "-" {
			continue
		}
		// Chinese keyboards type a full-width colon.
		name, value, ok := strings.Cut(strings.Replace(line, "：", ":", 1), ":")
		if !ok {
			return nil, invalid("headers", lang.text("form.headerline", "line", line))
		}
		headers = append(headers, store.Header{Name: strings.TrimSpace(name),
			Value: strings.TrimSpace(value)})
	}
	return headers, nil
}

func (f *form) askResolve(store.Callback) error {
	data := f.ask("data", textField, "act.resolve.data")
	data.Mono, data.Rows, data.Suggest = true, 4, `{"trade_state": "SUCCESS"}`
	f.Fields = []field{data}
	return nil
}

// resolve ends a poll with a result that the operator gives.
func (u *UI) resolve(r *request, id string) error {
	var q control.ResolveRequest
	if text := strings.TrimSpace(r.text("data")); text != "" {
		if !json.Valid([]byte(text)) {
			return invalid("data", r.lang.text("form.json"))
		}
		q.Data = []byte(text)
	}
	_, err := u.Engine.ResolvePoll(r.ctx, r.caller.Project, id, q, r.by())
	return err
}
