package ui

import (
	"html/template"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// redrivePage is one redrive.
type redrivePage struct {
	base
	*redriveRow
	Bar template.HTML
	// Left is how many are still to be done, Takes about how long that takes at its rate; empty: that is not known.
	Left  int64
	Takes string
	// Asked is what it was told, Conditions its filter. Shown is the filter where it cannot be read.
	Asked []fact
	Shown string
	// All lists what the filter picks now.
	All   string
	Audit []store.AuditEntry
	// CanPause, CanResume and CanCancel: that is possible now, and the viewer may.
	CanPause, CanResume, CanCancel bool
}

// shownOwnAudit is how many entries of the audit a page of one thing shows.
const shownOwnAudit = 20

// redrive is GET /ui/redrives/{id}.
func (u *UI) redrive(r *request) (*answer, error) {
	id, err := r.bareID(store.RedrivePrefix)
	if err != nil {
		return nil, err
	}
	of, err := u.Redrives.Redrive(r.ctx, r.who.project, id)
	if err != nil {
		return nil, err
	}
	audit, err := u.Audit.Audit(r.ctx, r.who.project, store.AuditFilter{Object: id, Limit: shownOwnAudit})
	if err != nil {
		return nil, err
	}
	p := &redrivePage{base: u.base(r, "redrives", "redrives.one."+string(of.Action)), Audit: audit.Entries}
	p.redriveRow = newRedriveRow(&p.base, &of)
	p.Bar = p.bar(&of)
	if p.Left = of.Matched - of.Done - of.Failed; of.State == store.RedriveRunning {
		p.Takes = p.takes(p.Left, of.Rate)
	}
	p.Asked = p.asked(&of)
	if f, ok := filterOf(r, &of); ok {
		p.Conditions = f.says(&p.base)
		p.All = Root + "/callbacks?" + f.query()
	} else {
		p.Shown = indented(string(of.Shown))
	}
	if p.Can(string(store.ScopeOperate)) && of.Open() {
		p.CanCancel = true
		p.CanResume = of.Paused
		p.CanPause = !p.CanResume
	}
	return show("redrive", p)
}

// takes says how long so many take at a rate; empty: no time worth speaking of.
func (b *base) takes(n int64, asked store.Rate) string {
	const longest = 1000 * 24 * time.Hour
	every := paceOf(asked).Every()
	if n <= 0 || every > 0 && n > int64(longest/every) {
		return ""
	}
	if d := (time.Duration(n) * every).Round(time.Second); d > time.Second {
		return b.Duration(d)
	}
	return ""
}

// asked is what a redrive was told beside its filter.
func (b *base) asked(of *store.Redrive) []fact {
	facts := []fact{{Name: b.T("redrives.action"), Value: b.T("redrives.action." + string(of.Action))}, {Name: b.T("redrives.rate"), Value: b.rate(of.Rate)}}
	switch of.Action {
	case store.RedriveRetry:
		facts = append(facts, fact{Name: b.T("ladder.title"), Value: b.Or("ladder.", string(of.Ladder))})
	case store.RedriveSetURL:
		facts = append(facts, fact{Name: b.T("act.mend.url"), Value: dispatch.ShownURL(of.URL), Data: true})
	case store.RedriveReschedule:
		to := fact{Name: b.T("redrives.moveby"), Value: b.Duration(time.Duration(of.Delay) * time.Millisecond), Data: true}
		if of.DueAt != 0 {
			to = fact{Name: b.T("redrives.moveto"), Value: b.Absolute(of.DueAt), Data: true}
		}
		facts = append(facts, to)
	case store.RedriveCancel:
	}
	return facts
}
