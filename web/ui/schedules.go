package ui

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Schedules is what pages ask of the store for schedules.
type Schedules interface {
	Schedule(ctx context.Context, project, id string) (store.Schedule, error)
	Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error)
	// ScheduleRuns returns those that are kept of one schedule, newest first.
	ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error)
}

// ScheduleActs is what pages ask of the engine for schedules.
type ScheduleActs interface {
	CreateSchedule(ctx context.Context, project string, ch dispatch.ScheduleChange, by store.Actor) (store.Schedule, error)
	PatchSchedule(ctx context.Context, project, id string, ch dispatch.ScheduleChange, by store.Actor) (store.Schedule, error)
	DeleteSchedule(ctx context.Context, project, id string, by store.Actor) error
	RunSchedule(ctx context.Context, project, id string, by store.Actor) (store.Callback, error)
}

func (u *UI) scheduleRoutes() []Route {
	return append([]Route{page("/schedules", u.schedules), page("/schedules/:id", u.schedule)}, u.scheduleActRoutes()...)
}

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

// lateAfter is how long after its due time a schedule is late, in milliseconds: a dispatcher looks every few seconds.
const lateAfter = 15_000

func newScheduleRow(s *store.Schedule, now int64) *scheduleRow {
	row := &scheduleRow{Schedule: *s, FullID: store.SchedulePrefix + s.ID, Zone: s.Timezone, Late: s.Enabled && s.NextAt != 0 && s.NextAt < now-lateAfter}
	if row.Zone == "" {
		row.Zone = "UTC"
	}
	if s.LastID != "" {
		row.LastFullID = store.CallbackPrefix + s.LastID
	}
	return row
}

// schedules is GET /ui/schedules.
func (u *UI) schedules(r *request) (*answer, error) {
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
	p.Enabled = []option{
		{Text: p.T("filter.any"), Chosen: chosen == ""}, {Value: "true", Text: p.T("schedules.enabled"), Chosen: chosen == "true"},
		{Value: "false", Text: p.T("schedules.disabled"), Chosen: chosen == "false"},
	}
	if c := readCursor(r.query("cursor")); c != nil {
		f.After, p.First = c.ID, p.With()
	}
	found, err := u.Schedules.Schedules(r.ctx, r.who.project, f)
	if err != nil {
		return nil, err
	}
	if len(found) > pageSize {
		found = found[:pageSize]
		p.Next = p.With("cursor", cursorOf(&store.Cursor{ID: found[pageSize-1].ID}))
	}
	for i := range found {
		p.Rows = append(p.Rows, newScheduleRow(&found[i], r.now))
	}
	return show("schedules", p)
}
