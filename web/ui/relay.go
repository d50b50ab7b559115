package ui

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// relayPage is the list of outbox sources: those with a problem first.
type relayPage struct {
	base
	Rows []*relayRow
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
}

// The states of a source. Pages list the sources in this order.
const (
	relayUnheld  = "unheld"
	relayFailing = "error"
	relayDelayed = "delayed"
	relayOK      = "ok"
)

// relayColours are the colours of the states, in the order of the list.
var relayColours = []named{
	{relayUnheld, "bad"}, {relayFailing, "bad"}, {relayDelayed, "warn"}, {relayOK, "good"},
}

const (
	// delayedAfter is the lag in milliseconds above which a source is delayed.
	delayedAfter = 60_000
	// missedAfter is how long a source may be without a report, in milliseconds, before the overview says
	// that no relay reads it. A restart and a takeover are over by then.
	missedAfter = 30_000
)

// A relayRow is a source in a list or at the top of its page.
type relayRow struct {
	store.RelaySource
	// State is one of the states above, Kind its colour.
	State, Kind string
	// Lag, Waiting, Speed and Refused are figures. Refused is empty if there are no refused rows.
	Lag, Waiting, Speed, Refused string
}

// Page returns the path of the source's page.
func (row *relayRow) Page() string { return Root + "/relay/" + row.Name }

// Free reports whether the source has no open act: only then a person can ask for another.
func (row *relayRow) Free() bool { return !row.Act.Open() }

func (b *base) relayRow(s *store.RelaySource) *relayRow {
	lag := s.LagMs(b.now)
	row := &relayRow{
		RelaySource: *s, State: relayOK, Lag: b.duration(time.Duration(lag) * time.Millisecond),
		Waiting: b.rowCount(s.Report.Waiting), Speed: rate(s.Report.RowsPerSecond),
	}
	switch {
	case !s.Held(b.now):
		row.State, row.Speed = relayUnheld, rate(0)
	case s.Report.Error != "":
		row.State = relayFailing
	case lag > delayedAfter:
		row.State = relayDelayed
	}
	row.Kind = relayColours[row.rank()].Value
	if s.Report.RefusedRows > 0 {
		row.Refused = b.rowCount(s.Report.RefusedRows)
	}
	return row
}

// rank is the place of the row's state in the list.
func (row *relayRow) rank() int {
	return slices.IndexFunc(relayColours, func(s named) bool { return s.Name == row.State })
}

// rowCount formats a number of rows, which a report counts to store.RelayCountLimit.
func (b *base) rowCount(n int) string {
	if n >= store.RelayCountLimit {
		return b.T("relay.over", "n", store.RelayCountLimit-1)
	}
	return grouped(int64(n))
}

// relay is GET /ui/relay.
func (u *UI) relay(r *request) (*response, error) {
	p := &relayPage{base: u.base(r, "relay", "relay.title")}
	found, err := u.Engine.RelaySources(r.ctx, r.caller.Project)
	if err != nil {
		return nil, err
	}
	rows := make([]*relayRow, len(found))
	for i := range found {
		rows[i] = p.relayRow(&found[i])
	}
	slices.SortStableFunc(rows, func(a, b *relayRow) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()),
			cmp.Compare(b.Report.RefusedRows, a.Report.RefusedRows), cmp.Compare(a.Name, b.Name))
	})
	after := r.query("cursor")
	at := slices.IndexFunc(rows, func(row *relayRow) bool { return row.Name == after })
	if at >= 0 {
		p.First = p.With()
	}
	shown, last := query.Cut(rows[at+1:], pageSize)
	if last != nil {
		p.Next = p.With("cursor", (*last).Name)
	}
	p.Rows = shown
	return show("relay", p)
}

// relaySourcePage is the page of one source.
type relaySourcePage struct {
	base
	*relayRow
	// Groups are the refused rows of the report by code, the largest first. Refusals are these rows.
	Groups   []refusalGroup
	Refusals []refusalRow
	// More is true if the source has more refused rows than the report names.
	More bool
	// LastAct is the newest act; nil if there was none.
	LastAct *relayActView
	History []change
}

// A refusalGroup is the refused rows with one code. Cure says how to fix it. Retry and Drop are forms.
type refusalGroup struct {
	Code, Cure  string
	Count       int
	Retry, Drop string
	// NewestAt is when the newest of them was refused, in Unix milliseconds.
	NewestAt int64
}

// A refusalRow is a refused row. Retry is the form that retries it.
type refusalRow struct {
	store.RelayRefusal
	Retry string
}

// maxProblem bounds the bytes of a refused row's problem in the list. The row's form shows all of it.
const maxProblem = 200

// relaySource is GET /ui/relay/{name}.
func (u *UI) relaySource(r *request) (*response, error) {
	name, err := relayName(r)
	if err != nil {
		return nil, err
	}
	s, err := u.Engine.RelaySource(r.ctx, r.caller.Project, name)
	if err != nil {
		return nil, err
	}
	p := &relaySourcePage{base: u.baseTitled(r, "relay", s.Name)}
	p.relayRow = p.base.relayRow(&s)
	p.More = s.Report.RefusedRows > len(s.Report.Refusals)
	p.addRefusals(s.Report.Refusals)
	if s.Act.ID != "" {
		p.LastAct = p.relayActView(&s.Act)
	}
	p.History, err = u.historyOf(r, relayObject(s.Name))
	if err != nil {
		return nil, err
	}
	return show("relaysource", p)
}

// relayObject is a source as the audit log names it.
func relayObject(name string) string { return "relay/" + name }

// relayName returns the name of a source in the path, or store.ErrNotFound if it cannot be one.
func relayName(r *request) (string, error) {
	name := r.params["id"]
	for i := range len(name) {
		c := name[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return "", store.ErrNotFound
		}
	}
	return name, nil
}

// addRefusals sets the refused rows and their groups.
func (p *relaySourcePage) addRefusals(refusals []store.RelayRefusal) {
	path := "/relay/" + p.Name
	for i := range refusals {
		row := refusalRow{refusals[i], link(path+"/retry", "row", refusals[i].ID)}
		if short, isShort := cut(row.Problem, maxProblem); isShort {
			row.Problem = short + "…"
		}
		p.Refusals = append(p.Refusals, row)
		at := slices.IndexFunc(p.Groups, func(g refusalGroup) bool { return g.Code == row.Code })
		if at < 0 {
			at = len(p.Groups)
			p.Groups = append(p.Groups, refusalGroup{
				Code: row.Code, Cure: p.T("relay.cure"), NewestAt: row.RefusedAt,
				Retry: link(path+"/retry", "code", row.Code), Drop: link(path+"/drop", "code", row.Code)})
			if key := "relay.cure." + row.Code; p.Has(key) {
				p.Groups[at].Cure = p.T(key)
			}
		}
		p.Groups[at].Count++
	}
	slices.SortStableFunc(p.Groups, func(a, b refusalGroup) int { return cmp.Compare(b.Count, a.Count) })
}

// A relayActView is an act on a source, as pages show it.
type relayActView struct {
	store.RelayAct
	// Says is what the act does, Kind the colour of its state.
	Says, Kind string
	Facts      []fact
}

// relayActKinds are the colours of the states of an act.
var relayActKinds = map[store.RelayActState]string{
	store.RelayActRunning: "busy", store.RelayActDone: "good", store.RelayActFailed: "bad",
}

func (b *base) relayActView(a *store.RelayAct) *relayActView {
	v := &relayActView{RelayAct: *a, Kind: relayActKinds[a.State],
		Says: b.Or("relay.act.", string(a.Action))}
	if a.DryRun {
		v.Says = b.T("relay.act.count")
	}
	add := func(key, value string) {
		v.Facts = append(v.Facts, fact{Name: b.T(key), Value: value, Data: true})
	}
	switch {
	case a.RowID != "":
		add("relay.row", a.RowID)
	case a.Code != "":
		v.Facts = append(v.Facts, fact{Name: b.T("relay.code"), Value: b.refusalText(a.Code),
			Data: !b.Has("relay.code." + a.Code)})
	case a.Since != 0:
		add("relay.since", b.Absolute(a.Since))
	}
	count := func(key string, n int) {
		if n > 0 {
			add(key, grouped(int64(n)))
		}
	}
	add("relay.matched", grouped(int64(a.Matched)))
	count("relay.accepted", a.Accepted)
	count("relay.replayed", a.Replayed)
	count("relay.refused", a.Refused)
	count("relay.dropped", a.Dropped)
	if a.Rate > 0 {
		add("relay.rate", strconv.Itoa(a.Rate)+"/s")
	}
	by := fact{Name: b.T("audit.actor"), Value: b.actorText(actorName(a.RequestedBy))}
	by.Data = by.Value == actorName(a.RequestedBy)
	v.Facts = append(v.Facts, by)
	add("relay.requested", b.Absolute(a.RequestedAt))
	return v
}

// refusalText returns the words for the code of a refused row, or the code itself.
func (b *base) refusalText(code string) string { return b.Or("relay.code.", code) }

// maxCode bounds the bytes of a code that has no words, in the list.
const maxCode = 24

// ShortCode returns the code of a refused row, or its beginning.
func (b *base) ShortCode(code string) string {
	if short, isShort := cut(code, maxCode); isShort {
		return short + "…"
	}
	return code
}
