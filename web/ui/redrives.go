package ui

import (
	"html/template"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
	"github.com/seed-ff5a32d8/dispatcher/web/ui/picture"
)

// redrivesPage is the list of redrives.
type redrivesPage struct {
	base
	Rows []*redriveRow
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
}

// A redriveRow is a redrive in a list.
type redriveRow struct {
	store.Redrive
	// FullID has the prefix.
	FullID string
	// Tone is the colour of the state's badge.
	Tone string
	// Conditions are the first conditions of the filter, Hidden counts the rest.
	Conditions []fact
	Hidden     int
	Bar        template.HTML
	// PerSecond is the rate in the viewer's language.
	PerSecond string
}

// Bounds of a filter in the list: conditions, and bytes of a condition. The redrive's page shows the whole
// filter.
const (
	maxConditions = 3
	maxCondition  = 60
)

// redriveRows is less than pageSize, because a row has the conditions of its filter and a bar.
const redriveRows = 36

// redrives is GET /ui/redrives.
func (u *UI) redrives(r *request) (*response, error) {
	p := &redrivesPage{base: u.base(r, "redrives", "redrives.title")}
	after := ""
	if c := query.ReadPlace(r.query("cursor")); c != nil {
		after, p.First = c.ID, p.With()
	}
	found, err := u.Store.Redrives(r.ctx, r.caller.Project, after, redriveRows+1)
	if err != nil {
		return nil, err
	}
	found, last := query.Cut(found, redriveRows)
	if last != nil {
		p.Next = p.With("cursor", query.Place(store.Cursor{ID: last.ID}))
	}
	filters := make([]*filter, len(found))
	for i := range found {
		filters[i], _ = filterOf(r, &found[i])
	}
	if err := u.nameFilters(r, filters...); err != nil {
		return nil, err
	}
	for i := range found {
		row := newRedriveRow(&p.base, &found[i])
		row.Bar = p.bar(&row.Redrive)
		if filters[i] != nil {
			row.Conditions = filters[i].conditions(&p.base)
		}
		row.Hidden = max(len(row.Conditions)-maxConditions, 0)
		row.Conditions = row.Conditions[:len(row.Conditions)-row.Hidden]
		for j := range row.Conditions {
			if short, isShort := cut(row.Conditions[j].Value, maxCondition); isShort {
				row.Conditions[j].Value = short + "…"
			}
		}
		p.Rows = append(p.Rows, row)
	}
	return show("redrives", p)
}

// redriveTones are the colours of the states' badges. Other states have a plain badge.
var redriveTones = map[store.RedriveState]string{
	store.RedriveGathering: "busy", store.RedriveRunning: "busy", store.RedrivePaused: "warn",
	store.RedriveAwaiting: "warn", store.RedriveDone: "good",
}

func newRedriveRow(b *base, redrive *store.Redrive) *redriveRow {
	row := &redriveRow{Redrive: *redrive, FullID: store.RedrivePrefix + redrive.ID,
		Tone:      redriveTones[redrive.State],
		PerSecond: b.rate(redrive.Rate)}
	if redrive.Matched == 0 && redrive.State == store.RedriveDone {
		row.Tone = "" // nothing was done
	}
	return row
}

// By returns the name of the actor, without the id of the key.
func (row *redriveRow) By() string { return actorName(row.Actor) }

// actorName returns the name of an actor, without the id of the key.
func actorName(actor string) string {
	name, _, _ := strings.Cut(actor, " ("+store.KeyPrefix)
	return name
}

// Verb returns the catalogue key of the action.
func (row *redriveRow) Verb() string { return "redrives.action." + string(row.Action) }

// Label returns the catalogue key of the state. A redrive that was paused while it gathers has its own key.
func (row *redriveRow) Label() string {
	switch {
	case row.Paused && row.State == store.RedriveGathering:
		return "redrives.state.gathering_paused"
	case row.State == store.RedriveDone && row.Matched == 0:
		return "redrives.state.nothing"
	}
	return "redrives.state." + string(row.State)
}

// Says returns the catalogue key of the sentence about the state.
func (row *redriveRow) Says() string {
	if row.State == store.RedriveDone && row.Matched == 0 {
		return "redrives.state.nothing.says"
	}
	return "redrives.state." + string(row.State) + ".says"
}

// bar draws the progress of a redrive.
func (b *base) bar(redrive *store.Redrive) template.HTML {
	return picture.Progress{
		Frame: picture.Frame{
			ID: "bar-" + redrive.ID,
			Title: b.T("redrives.bar", "done", redrive.Done, "failed", redrive.Failed, "matched",
				redrive.Matched),
		},
		Parts: []picture.Part{
			{Name: b.T("redrives.done"), Value: float64(redrive.Done), Tone: picture.Good},
			{Name: b.T("redrives.failed"), Value: float64(redrive.Failed), Tone: picture.Bad},
		},
		Total: float64(redrive.Matched),
	}.HTML()
}

// defaultRate is the engine's rate, in callbacks per second, for redrives without a rate.
const defaultRate = 1000

// effectiveRate returns the rate of a redrive, or the default for a zero rate.
func effectiveRate(rate store.Rate) store.Rate {
	if rate.Count <= 0 {
		return store.Rate{Count: defaultRate, Per: time.Second}
	}
	return rate
}

// rate formats the rate of a redrive in the viewer's language.
func (b *base) rate(rate store.Rate) string {
	redrive := effectiveRate(rate)
	unit := map[time.Duration]string{time.Second: "s", time.Minute: "m", time.Hour: "h",
		24 * time.Hour: "d"}[redrive.Per]
	if unit == "" {
		return redrive.String()
	}
	return b.T("redrives.per."+unit, "n", redrive.Count)
}

// redrivePage is the page of one redrive.
type redrivePage struct {
	base
	*redriveRow
	Bar template.HTML
	// Left counts the callbacks that are still to be done. Takes estimates the duration; empty if unknown.
	Left  int64
	Takes string
	// Settings are the redrive's settings besides the filter. RawFilter is the filter's text if it cannot be
	// parsed.
	Settings  []fact
	RawFilter string
	// All is the URL of the list of callbacks that match the filter now.
	All   string
	Audit []store.AuditEntry
	// CanPause, CanResume and CanCancel are true if the state and the viewer's key allow the act. Awaiting is
	// true if the redrive awaits an approval, and CanApprove if the viewer may give it.
	CanPause, CanResume, CanCancel, Awaiting, CanApprove bool
	// ApproveBy is when a redrive that awaits an approval is canceled, in Unix milliseconds.
	ApproveBy int64
}

// maxObjectAudit bounds the audit entries on the page of an object.
const maxObjectAudit = 20

// redrive is GET /ui/redrives/{id}.
func (u *UI) redrive(r *request) (*response, error) {
	redrive, err := load(r, store.RedrivePrefix, u.Store.Redrive)
	if err != nil {
		return nil, err
	}
	audit, err := u.Store.Audit(r.ctx, r.caller.Project,
		store.AuditFilter{Object: redrive.ID, Limit: maxObjectAudit})
	if err != nil {
		return nil, err
	}
	p := &redrivePage{base: u.base(r, "redrives", "redrives.one."+string(redrive.Action)),
		Audit: audit.Entries}
	p.redriveRow = newRedriveRow(&p.base, &redrive)
	p.Bar = p.bar(&redrive)
	p.Left = redrive.Matched - redrive.Done - redrive.Failed
	if redrive.State == store.RedriveRunning {
		p.Takes = p.takes(p.Left, redrive.Rate)
	}
	p.Settings = p.settings(&redrive)
	if f, ok := filterOf(r, &redrive); ok {
		if err := u.nameFilters(r, f); err != nil {
			return nil, err
		}
		p.Conditions = f.conditions(&p.base)
		p.All = Root + "/callbacks?" + f.query()
	} else {
		p.RawFilter = indented(string(redrive.FilterText))
	}
	p.Awaiting = redrive.State == store.RedriveAwaiting
	p.ApproveBy = redrive.CreatedAt + store.ApprovalTime
	if p.Can(string(store.ScopeOperate)) && redrive.Open() {
		p.CanCancel = true
		p.CanApprove = p.Awaiting && r.by().ID != redrive.ActorID
		p.CanResume = redrive.Paused && !p.Awaiting
		p.CanPause = !redrive.Paused && !p.Awaiting && redrive.Action != store.RedriveDelete
	}
	return show("redrive", p)
}

// takes estimates the duration of n callbacks at a rate. It is empty up to a second and beyond 1,000 days.
func (b *base) takes(n int64, rate store.Rate) string {
	const longest = 1000 * 24 * time.Hour
	every := effectiveRate(rate).Every()
	if n <= 0 || every > 0 && n > int64(longest/every) {
		return ""
	}
	if d := (time.Duration(n) * every).Round(time.Second); d > time.Second {
		return b.duration(d)
	}
	return ""
}

// settings returns the settings of a redrive besides its filter.
func (b *base) settings(redrive *store.Redrive) []fact {
	facts := []fact{{Name: b.T("redrives.action"), Value: b.T("redrives.action." + string(redrive.Action))},
		{Name: b.T("redrives.rate"), Value: b.rate(redrive.Rate)}}
	switch redrive.Action {
	case store.RedriveDelete:
		facts = facts[:1] // one step deletes the endpoint
	case store.RedriveRetry:
		facts = append(facts, fact{Name: b.T("ladder.title"), Value: b.Or("ladder.", string(redrive.Ladder))})
	case store.RedriveSetURL:
		facts = append(facts, fact{Name: b.T("act.edit.url"), Value: store.MaskURL(redrive.URL), Data: true})
	case store.RedriveReschedule:
		to := fact{Name: b.T("redrives.moveby"),
			Value: b.duration(time.Duration(redrive.Delay) * time.Millisecond)}
		if redrive.DueAt != 0 {
			to = fact{Name: b.T("redrives.moveto"), Value: b.Absolute(redrive.DueAt), Data: true}
		}
		facts = append(facts, to)
	case store.RedriveCancel:
	}
	return facts
}
