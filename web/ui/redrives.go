package ui

import (
	"html/template"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// redrivesPage is the list of redrives.
type redrivesPage struct {
	base
	Rows []*redriveRow
	// Next is the address of the next page, First of the first; empty: there is none, or this is it.
	Next, First string
}

// A redriveRow is a redrive in a list.
type redriveRow struct {
	store.Redrive
	// FullID has its prefix.
	FullID string
	// Tone is the kind of badge that its state has.
	Tone string
	// Conditions are what its filter says, Unsaid how many of them are not shown.
	Conditions []fact
	Unsaid     int
	Bar        template.HTML
	// PerSecond is its rate, in the viewer's words.
	PerSecond string
}

// Bounds of what a list shows of a filter; the redrive's own page has all of it.
const (
	maxConditions = 3
	maxCondition  = 60
)

// redrives is GET /ui/redrives.
func (u *UI) redrives(r *request) (*response, error) {
	p := &redrivesPage{base: u.base(r, "redrives", "redrives.title")}
	after := ""
	if c := query.ReadPlace(r.query("cursor")); c != nil {
		after, p.First = c.ID, p.With()
	}
	found, err := u.Store.Redrives(r.ctx, r.caller.Project, after, pageSize+1)
	if err != nil {
		return nil, err
	}
	found, last := query.Cut(found, pageSize)
	if last != nil {
		p.Next = p.With("cursor", query.Place(store.Cursor{ID: last.ID}))
	}
	for i := range found {
		row := newRedriveRow(&p.base, &found[i])
		row.Bar = p.bar(&row.Redrive)
		if f, ok := filterOf(r, &row.Redrive); ok {
			row.Conditions = f.conditions(&p.base)
		}
		row.Unsaid = max(len(row.Conditions)-maxConditions, 0)
		row.Conditions = row.Conditions[:len(row.Conditions)-row.Unsaid]
		for j := range row.Conditions {
			if short, isShort := cut(row.Conditions[j].Value, maxCondition); isShort {
				row.Conditions[j].Value = short + "…"
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return show("redrives", p)
}

// redriveTones are the kinds of badge that states have; none: a plain one.
var redriveTones = map[store.RedriveState]string{
	store.RedriveGathering: "busy", store.RedriveRunning: "busy", store.RedrivePaused: "warn",
	store.RedriveDone: "good",
}

func newRedriveRow(b *base, of *store.Redrive) *redriveRow {
	return &redriveRow{Redrive: *of, FullID: store.RedrivePrefix + of.ID, Tone: redriveTones[of.State],
		PerSecond: b.rate(of.Rate)}
}

// Verb is its action as the catalogue names it.
func (row *redriveRow) Verb() string { return "redrives.action." + string(row.Action) }

// Label is its state as the catalogue names it. One that was paused while it is being gathered says so.
func (row *redriveRow) Label() string {
	if row.Paused && row.State == store.RedriveGathering {
		return "redrives.state.gathering_paused"
	}
	return "redrives.state." + string(row.State)
}

// bar draws how far a redrive is.
func (b *base) bar(of *store.Redrive) template.HTML {
	return picture.Progress{
		Frame: picture.Frame{
			ID:    "bar-" + of.ID,
			Title: b.T("redrives.bar", "done", of.Done, "failed", of.Failed, "matched", of.Matched),
		},
		Parts: []picture.Part{
			{Name: b.T("redrives.done"), Value: float64(of.Done), Tone: picture.Good},
			{Name: b.T("redrives.failed"), Value: float64(of.Failed), Tone: picture.Bad},
		},
		Total: float64(of.Matched),
	}.HTML()
}

// defaultRate is the rate, in callbacks a second, at which the engine does redrives that ask for none.
const defaultRate = 1000

// effectiveRate is the rate at which a redrive is done.
func effectiveRate(asked store.Rate) store.Rate {
	if asked.Count <= 0 {
		return store.Rate{Count: defaultRate, Per: time.Second}
	}
	return asked
}

// rate says how often a redrive does something.
func (b *base) rate(asked store.Rate) string {
	of := effectiveRate(asked)
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h",
		24 * time.Hour: "d"}[of.Per]
	if unit == "" {
		return of.String()
	}
	return b.T("redrives.per."+unit, "n", of.Count)
}

// redrivePage is one redrive.
type redrivePage struct {
	base
	*redriveRow
	Bar template.HTML
	// Left is how many are still to be done, Takes about how long that takes at its rate; empty: that is not
	// known.
	Left  int64
	Takes string
	// Asked is what it was told, Conditions its filter. Shown is the filter where it cannot be read.
	Asked     []fact
	RawFilter string
	// All lists what the filter picks now.
	All   string
	Audit []store.AuditEntry
	// CanPause, CanResume and CanCancel: that is possible now, and the viewer may.
	CanPause, CanResume, CanCancel bool
}

// maxObjectAudit is how many entries of the audit a page of one thing shows.
const maxObjectAudit = 20

// redrive is GET /ui/redrives/{id}.
func (u *UI) redrive(r *request) (*response, error) {
	of, err := load(r, store.RedrivePrefix, u.Store.Redrive)
	if err != nil {
		return nil, err
	}
	audit, err := u.Store.Audit(r.ctx, r.caller.Project, store.AuditFilter{Object: of.ID, Limit: maxObjectAudit})
	if err != nil {
		return nil, err
	}
	p := &redrivePage{base: u.base(r, "redrives", "redrives.one."+string(of.Action)), Audit: audit.Entries}
	p.redriveRow = newRedriveRow(&p.base, &of)
	p.Bar = p.bar(&of)
	p.Left = of.Matched - of.Done - of.Failed
	if of.State == store.RedriveRunning {
		p.Takes = p.takes(p.Left, of.Rate)
	}
	p.Asked = p.asked(&of)
	if f, ok := filterOf(r, &of); ok {
		p.Conditions = f.conditions(&p.base)
		p.All = Root + "/callbacks?" + f.query()
	} else {
		p.RawFilter = indented(string(of.Shown))
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
	every := effectiveRate(asked).Every()
	if n <= 0 || every > 0 && n > int64(longest/every) {
		return ""
	}
	if d := (time.Duration(n) * every).Round(time.Second); d > time.Second {
		return shortDuration(d)
	}
	return ""
}

// asked is what a redrive was told beside its filter.
func (b *base) asked(of *store.Redrive) []fact {
	facts := []fact{{Name: b.T("redrives.action"), Value: b.T("redrives.action." + string(of.Action))},
		{Name: b.T("redrives.rate"), Value: b.rate(of.Rate)}}
	switch of.Action {
	case store.RedriveRetry:
		facts = append(facts, fact{Name: b.T("ladder.title"), Value: b.Or("ladder.", string(of.Ladder))})
	case store.RedriveSetURL:
		facts = append(facts, fact{Name: b.T("act.edit.url"), Value: store.MaskURL(of.URL), Data: true})
	case store.RedriveReschedule:
		to := fact{Name: b.T("redrives.moveby"),
			Value: shortDuration(time.Duration(of.Delay) * time.Millisecond), Data: true}
		if of.DueAt != 0 {
			to = fact{Name: b.T("redrives.moveto"), Value: b.Absolute(of.DueAt), Data: true}
		}
		facts = append(facts, to)
	case store.RedriveCancel:
	}
	return facts
}
