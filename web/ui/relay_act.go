package ui

import (
	"slices"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) relayActs() []Route {
	order := func(read func(r *request) (store.RelayAct, error)) func(*request, string) error {
		return func(r *request, name string) error {
			act, err := read(r)
			if err != nil {
				return err
			}
			_, err = u.Engine.ActOnRelay(r.ctx, r.caller.Project, name, act, r.by())
			return err
		}
	}
	refused := func(action store.RelayAction) func(*request, string) error {
		return order(func(r *request) (store.RelayAct, error) {
			return store.RelayAct{Action: action, RowID: r.form.Get("row"), Code: r.form.Get("code")}, nil
		})
	}
	return actsOn(u, kind[store.RelaySource]{
		path: "/relay/:id/", texts: "relay.", section: "relay", id: relayName,
		find: from(u.Engine.RelaySource), begin: (*form).beginRelay,
	}, []actOn[store.RelaySource]{
		{name: "retry", ask: (*form).askRefusedRetry, do: refused(store.RelayRetry)},
		{name: "drop", ask: (*form).askRefusedDrop, danger: true, do: func(r *request, name string) error {
			if r.form.Get("row")+r.form.Get("code") == "" {
				return invalid("code", r.lang.text("relay.drop.which"))
			}
			return refused(store.RelayDrop)(r, name)
		}},
		{name: "replay", ask: (*form).askRelayReplay, do: order((*request).relayReplay)},
		{name: "cancel", ask: (*form).askRelayCancel, danger: true, do: func(r *request, name string) error {
			_, err := u.Engine.CancelRelayAct(r.ctx, r.caller.Project, name, r.by())
			return err
		}},
		{name: "forget", danger: true, to: "/relay", do: func(r *request, name string) error {
			_, err := u.Engine.ForgetRelay(r.ctx, r.caller.Project, name, r.by())
			return err
		}},
	})
}

// beginRelay adds the facts of a source to a form.
func (f *form) beginRelay(s store.RelaySource) {
	f.addFacts("relay.source", s.Name, "relay.origin", s.Origin)
	if row := f.relayRow(&s); row.Refused != "" {
		f.addFacts("relay.refused", row.Refused)
	}
}

// warnRelay warns of what keeps an act from its beginning.
func (f *form) warnRelay(s *store.RelaySource) {
	switch {
	case s.Act.Open():
		f.Warnings = append(f.Warnings, f.T("trouble.relay_acting"))
	case !s.Held(f.now):
		f.Warnings = append(f.Warnings, f.T("relay.act.unheld"))
	}
}

// typed returns a value of the submitted form or of the URL, with its spaces: the ID of a row may have some.
func (r *request) typed(name string) string {
	if r.form.Has(name) {
		return r.form.Get(name)
	}
	return r.url.Query().Get(name)
}

// askRefusedRetry asks which refused rows to retry: one row, those with a code, or all.
func (f *form) askRefusedRetry(s store.RelaySource) error {
	f.warnRelay(&s)
	if id := f.r.typed("row"); id != "" {
		f.addRefusal(&s, id)
		f.Instead = problemAct{Text: f.T("relay.drop.instead"),
			Link: link("/relay/"+s.Name+"/drop", "row", id)}
		return nil
	}
	f.Fields = []field{f.askCode("relay.retry.code", &s, option{Text: f.T("relay.retry.all")})}
	return nil
}

// askRefusedDrop asks which refused rows to drop: one row, or those with a code.
func (f *form) askRefusedDrop(s store.RelaySource) error {
	f.warnRelay(&s)
	if id := f.r.typed("row"); id != "" {
		f.addRefusal(&s, id)
		return nil
	}
	f.Fields = []field{f.askCode("relay.drop.code", &s, option{Text: f.T("relay.drop.choose")})}
	f.Fields[0].Required = true
	return nil
}

// askRelayCancel says which act is canceled, and how far it is.
func (f *form) askRelayCancel(s store.RelaySource) error {
	if s.Act.Open() {
		f.Facts = append(f.Facts, fact{Name: f.T("relay.action"), Value: f.relayActView(&s.Act).Says})
		f.addFacts("relay.matched", grouped(int64(s.Act.Matched)))
	}
	return nil
}

// addRefusal restricts a form to one refused row, and describes the row if the report names it.
func (f *form) addRefusal(s *store.RelaySource, id string) {
	f.Hidden = append(f.Hidden, named{"row", id})
	f.addFacts("relay.row", id)
	for i := range s.Report.Refusals {
		row := &s.Report.Refusals[i]
		if row.ID != id {
			continue
		}
		f.addFacts("relay.kind", row.Kind)
		f.Facts = append(f.Facts, fact{Name: f.T("relay.code"), Value: f.refusalText(row.Code),
			Data: !f.Has("relay.code." + row.Code)})
		problem, _ := cut(string(reportText(f.Engine(row.Problem))), maxTemplate)
		f.addFacts("relay.problem", problem, "relay.refusedat", f.Absolute(row.RefusedAt))
		return
	}
}

// askCode returns a field for the code of refused rows. It offers first, and the codes in the report.
func (f *form) askCode(key string, s *store.RelaySource, first option) field {
	x := f.ask("code", choiceField, key)
	chosen := f.r.typed("code")
	codes := []string{}
	for i := range s.Report.Refusals {
		if code := s.Report.Refusals[i].Code; !slices.Contains(codes, code) {
			codes = append(codes, code)
		}
	}
	if chosen != "" && !slices.Contains(codes, chosen) {
		codes = append(codes, chosen)
	}
	slices.Sort(codes)
	first.Chosen = chosen == ""
	x.Options = []option{first}
	for _, code := range codes {
		x.Options = append(x.Options, option{Value: code, Text: f.refusalText(code),
			Data: !f.Has("relay.code." + code), Chosen: code == chosen})
	}
	return x
}

// replayRate is the suggested rate of a replay, in rows per second.
const replayRate = 500

// askRelayReplay asks for the begin of a replay. It counts unless the viewer decides otherwise.
func (f *form) askRelayReplay(s store.RelaySource) error {
	f.warnRelay(&s)
	since := f.askMoment("since", "relay.replay.since")
	since.Required, since.Help = true, f.T("relay.replay.since.help", "zone", f.zone.name)
	dry := f.ask("dry_run", checkField, "relay.replay.dry_run")
	dry.Checked = true
	perSecond := f.askMono("rate", "relay.replay.rate", "")
	perSecond.Value = strconv.Itoa(replayRate)
	f.Fields = []field{since, dry, perSecond}
	return nil
}

// relayReplay returns the replay that the form describes.
func (r *request) relayReplay() (act store.RelayAct, err error) {
	act = store.RelayAct{Action: store.RelayReplay, DryRun: r.form.Has("dry_run")}
	since, err := r.moment("since")
	switch {
	case err != nil:
		return act, err
	case since == nil:
		return act, invalid("since", r.lang.text("form.moment"))
	}
	act.Since = *since
	if text := r.value("rate"); text != "" {
		act.Rate, err = strconv.Atoi(text)
		if err != nil {
			return act, invalid("rate", r.lang.text("form.number"))
		}
	}
	return act, nil
}
