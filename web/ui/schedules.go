package ui

import (
	"cmp"
	"errors"
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
	// Enabled are the options of the filter by state.
	Enabled []option
	Rows    []*scheduleRow
	// Next is the URL of the next page; empty on the last. First is the URL of the first; empty on the first.
	Next, First string
	// Narrow is true if the filter has a condition. Conditions is their number.
	Narrow     bool
	Conditions int
}

// A scheduleRow is a schedule in a list.
type scheduleRow struct {
	store.Schedule
	// FullID and LastFullID have their prefixes. LastFullID is the last callback; empty before the first run.
	FullID, LastFullID string
	// CronZone is the name of the time zone of its cron expression, UTC by default. The viewer's is Zone.
	CronZone string
	// Late is true if the schedule is enabled and overdue by more than lateAfter.
	Late bool
}

// lateSchedules is the choice of schedules that are late, or whose last run created no callback.
const lateSchedules = "late"

// lateAfter is how long a schedule may be overdue before it counts as late, in milliseconds. A dispatcher
// looks for due schedules every few seconds.
const lateAfter = 15_000

func newScheduleRow(s *store.Schedule, now int64) *scheduleRow {
	row := &scheduleRow{
		Schedule: *s, FullID: store.SchedulePrefix + s.ID, CronZone: cmp.Or(s.Timezone, "UTC"),
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
	case lateSchedules:
		f.LateBefore = r.now - lateAfter
	default:
		chosen = ""
	}
	p.Conditions = countTrue(chosen != "", p.Search != "")
	p.Narrow = p.Conditions > 0
	p.Enabled = p.orAny(chosen, []option{
		{Value: "true", Text: p.T("schedules.enabled"), Chosen: chosen == "true"},
		{Value: "false", Text: p.T("schedules.disabled"), Chosen: chosen == "false"},
		{Value: lateSchedules, Text: p.T("schedules.latest"), Chosen: chosen == lateSchedules},
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

// Bounds of the page of a schedule. maxTemplate is in bytes.
const (
	maxTimes    = 10
	maxRuns     = 20
	maxTemplate = 8 << 10
)

// schedulePage is the page of one schedule.
type schedulePage struct {
	base
	*scheduleRow
	// Template is indented JSON with credentials masked. Cut is true if it is only the beginning.
	Template string
	Cut      bool
	// Times are the next due times. OtherZone is true if the schedule's time zone is not the viewer's.
	Times     []dueTime
	OtherZone bool
	Runs      []scheduleRun
	// Older counts the runs that the page does not show.
	Older int
	Audit []store.AuditEntry
}

// A scheduleRun is a run with the row of its callback, which is nil after retention has deleted the callback.
type scheduleRun struct {
	store.ScheduleRun
	Callback *callbackRow
}

// A dueTime is a due time in Unix milliseconds. Local is the time in the schedule's time zone.
type dueTime struct {
	At    int64
	Local string
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
	audit, err := u.Store.Audit(r.ctx, r.caller.Project,
		store.AuditFilter{Object: s.ID, Limit: maxObjectAudit})
	if err != nil {
		return nil, err
	}
	p := &schedulePage{base: u.baseTitled(r, "schedules", s.Name), scheduleRow: newScheduleRow(&s, r.now),
		Audit: audit.Entries}
	p.Template, p.Cut = cut(indented(maskedTemplate(string(s.Template))), maxTemplate)
	p.OtherZone = p.CronZone != r.zone.name
	if s.Enabled && s.NextAt != 0 {
		p.Times = dueTimes(&s, maxTimes)
	}
	if len(runs) > maxRuns && r.query("runs") != "all" {
		p.Older = len(runs) - maxRuns
		runs = runs[:maxRuns]
	}
	p.Runs, err = u.scheduleRuns(r, runs)
	if err != nil {
		return nil, err
	}
	return show("schedule", p)
}

// scheduleRuns returns runs with their callbacks.
func (u *UI) scheduleRuns(r *request, runs []store.ScheduleRun) ([]scheduleRun, error) {
	all := make([]scheduleRun, len(runs))
	for i := range runs {
		all[i].ScheduleRun = runs[i]
		c, err := u.Store.Get(r.ctx, r.caller.Project, runs[i].CallbackID)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			all[i].Callback = newRow(&c, r.now)
		}
	}
	return all, nil
}

// dueTimes returns the next n due times of an enabled schedule. The first is stored, the others are computed
// from the cron expression.
func dueTimes(s *store.Schedule, n int) []dueTime {
	times := []dueTime{{At: s.NextAt}}
	if next, err := control.NextTimes(s.Cron, s.Timezone, s.NextAt, n-1); err == nil {
		for _, at := range next {
			times = append(times, dueTime{At: at})
		}
	}
	for i := range times {
		times[i].Local = scheduleLocalTime(s.Timezone, times[i].At)
	}
	return times
}

// scheduleLocalTime formats a time in a schedule's time zone. It omits the year: the page shows the absolute
// time next to it.
func scheduleLocalTime(timezone string, at int64) string {
	zone, err := schedule.ParseZone(timezone)
	if err != nil {
		return "–"
	}
	return time.UnixMilli(at).In(zone).Format("01-02 15:04:05" + noBreak + "-07:00")
}
