package ui

import (
	"cmp"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// schedulesPage is the list of schedules.
type schedulesPage struct {
	base
	Search string
	// Enabled are the choices of that filter.
	Enabled []option
	Rows    []*scheduleRow
	// Next is the address of the next page, First of the first; empty: there is none, or this is it.
	Next, First string
	// Narrow: conditions narrow the list.
	Narrow bool
}

// A scheduleRow is a schedule in a list.
type scheduleRow struct {
	store.Schedule
	// FullID and LastFullID have their prefixes; LastFullID is empty where no callback was made yet.
	FullID, LastFullID string
	// Zone is the name of its time zone, which is never empty.
	Zone string
	// Late: it should have made a callback, and has not.
	Late bool
}

// lateAfter is how long after its due time a schedule is late, in milliseconds: a dispatcher looks every few
// seconds.
const lateAfter = 15_000

func newScheduleRow(s *store.Schedule, now int64) *scheduleRow {
	row := &scheduleRow{
		Schedule: *s, FullID: store.SchedulePrefix + s.ID, Zone: cmp.Or(s.Timezone, "UTC"),
		Late: s.Enabled && s.NextAt != 0 && s.NextAt < now-lateAfter,
	}
	if s.LastID != "" {
		row.LastFullID = store.CallbackPrefix + s.LastID
	}
	return row
}

// schedules is GET /ui/schedules.
func (u *UI) schedules(r *request) (*response, error) {
	p := &schedulesPage{base: u.base(r, "schedules", "schedules.title"), Search: r.query("search")}
	f := store.ScheduleFilter{Search: p.Search, Limit: pageSize + 1}
	chosen := r.query("enabled")
	switch chosen {
	case "true", "false":
		f.Enabled = new(chosen == "true")
	default:
		chosen = ""
	}
	p.Narrow = chosen != "" || p.Search != ""
	p.Enabled = p.orAny(chosen, []option{
		{Value: "true", Text: p.T("schedules.enabled"), Chosen: chosen == "true"},
		{Value: "false", Text: p.T("schedules.disabled"), Chosen: chosen == "false"},
	})
	if c := query.ReadPlace(r.query("cursor")); c != nil {
		f.After, p.First = c.ID, p.With()
	}
	found, err := u.Engine.Schedules(r.ctx, r.caller.Project, f)
	if err != nil {
		return nil, err
	}
	found, last := query.Cut(found, pageSize)
	if last != nil {
		p.Next = p.With("cursor", query.Place(store.Cursor{ID: last.ID}))
	}
	for i := range found {
		p.Rows = append(p.Rows, newScheduleRow(&found[i], r.now))
	}
	return show("schedules", p)
}

// Bounds of what the page of a schedule shows.
const (
	maxTimes    = 10
	maxRuns     = 20
	maxTemplate = 8 << 10
)

// schedulePage is one schedule.
type schedulePage struct {
	base
	*scheduleRow
	// Template is JSON over several lines, without what is not to be shown. Cut: it goes on.
	Template string
	Cut      bool
	// Times are its next due times. OtherZone: its clocks are not the viewer's.
	Times     []dueTime
	OtherZone bool
	Runs      []store.ScheduleRun
	// Older is how many runs are not shown.
	Older int
	Audit []store.AuditEntry
}

// A dueTime is when a schedule is due, and what its own clocks show then.
type dueTime struct {
	At  int64
	Own string
}

// schedule is GET /ui/schedules/{id}.
func (u *UI) schedule(r *request) (*response, error) {
	s, err := load(r, store.SchedulePrefix, u.Engine.Schedule)
	if err != nil {
		return nil, err
	}
	runs, err := u.Engine.ScheduleRuns(r.ctx, r.caller.Project, s.ID)
	if err != nil {
		return nil, err
	}
	audit, err := u.Store.Audit(r.ctx, r.caller.Project, store.AuditFilter{Object: s.ID, Limit: maxObjectAudit})
	if err != nil {
		return nil, err
	}
	p := &schedulePage{base: u.baseTitled(r, "schedules", s.Name), scheduleRow: newScheduleRow(&s, r.now),
		Audit: audit.Entries}
	p.Template, p.Cut = cut(indented(maskedTemplate(string(s.Template))), maxTemplate)
	p.OtherZone = p.scheduleRow.Zone != r.zone.name
	if s.Enabled && s.NextAt != 0 {
		p.Times = dueTimes(&s, maxTimes)
	}
	if len(runs) > maxRuns && r.query("runs") != "all" {
		p.Older = len(runs) - maxRuns
		runs = runs[:maxRuns]
	}
	p.Runs = runs
	return show("schedule", p)
}

// dueTimes are the next due times of an enabled schedule, the first of which the store knows. What the store
// keeps can be read.
func dueTimes(s *store.Schedule, n int) []dueTime {
	times := []dueTime{{At: s.NextAt}}
	if next, err := control.NextTimes(s.Cron, s.Timezone, s.NextAt, n-1); err == nil {
		for _, at := range next {
			times = append(times, dueTime{At: at})
		}
	}
	for i := range times {
		times[i].Own = scheduleLocalTime(s.Timezone, times[i].At)
	}
	return times
}

// scheduleLocalTime is what the clocks of a schedule show. The moment with its year stands beside it.
func scheduleLocalTime(timezone string, at int64) string {
	zone, err := schedule.ParseZone(timezone)
	if err != nil {
		return "–"
	}
	return time.UnixMilli(at).In(zone).Format("01-02 15:04:05" + noBreak + "-07:00")
}
