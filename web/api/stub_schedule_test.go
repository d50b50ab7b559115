package api_test

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	bareSchedule = "01JD6QZ000000000000000000S"
	oneSchedule  = "sc_" + bareSchedule
)

func someSchedule() store.Schedule {
	return store.Schedule{
		ID: bareSchedule, Project: store.DefaultProject, Name: "daily-books", Cron: "30 1 * * *", Timezone: "Asia/Shanghai",
		Template: `{"url":"https://books.example/close","headers":{"X-Shop":"7","authorization":"Basic cGFzcw==","X-Api-Key":""},"payload":{ "kind" : "daily", "n": 1.0 }}`,
		Missed:   store.MissedSkip, Enabled: true, NextAt: nowMS + dayMS, LastAt: nowMS, LastID: bareID, Version: 3, CreatedAt: nowMS - 1, UpdatedAt: nowMS,
	}
}

func (e *engine) CreateSchedule(_ context.Context, project string, ch dispatch.ScheduleChange, by store.Actor) (store.Schedule, error) {
	if len(ch.Invalid) > 0 {
		return store.Schedule{}, &store.InvalidError{Fields: ch.Invalid}
	}
	return e.schedule, e.noted("CreateSchedule", project, "", by, ch)
}

func (e *engine) PatchSchedule(_ context.Context, project, id string, ch dispatch.ScheduleChange, by store.Actor) (store.Schedule, error) {
	if len(ch.Invalid) > 0 {
		return store.Schedule{}, &store.InvalidError{Fields: ch.Invalid}
	}
	return e.schedule, e.noted("PatchSchedule", project, id, by, ch)
}

func (e *engine) DeleteSchedule(_ context.Context, project, id string, by store.Actor) error {
	return e.noted("DeleteSchedule", project, id, by, nil)
}

func (e *engine) RunSchedule(_ context.Context, project, id string, by store.Actor) (store.Callback, error) {
	return e.callback, e.noted("RunSchedule", project, id, by, nil)
}

func (e *engine) Schedule(_ context.Context, project, id string) (store.Schedule, error) {
	if id != bareSchedule {
		return store.Schedule{}, store.ErrNotFound
	}
	return e.schedule, e.noted("Schedule", project, id, store.Actor{}, nil)
}

// Schedules are three, with the ids 3, 2 and 1.
func (e *engine) Schedules(_ context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error) {
	var schedules []store.Schedule
	for _, id := range []string{"3", "2", "1"} {
		one := e.schedule
		one.ID = id
		schedules = append(schedules, one)
	}
	schedules = behind(schedules, f.After, f.Limit, func(one store.Schedule) string { return one.ID })
	return schedules, e.noted("Schedules", project, "", store.Actor{}, f)
}

func (e *engine) ScheduleRuns(_ context.Context, project, id string) ([]store.ScheduleRun, error) {
	if id != bareSchedule {
		return nil, store.ErrNotFound
	}
	return []store.ScheduleRun{
		{CallbackID: bareEndpoint, DueAt: nowMS, FiredAt: nowMS, Trigger: store.Manual},
		{CallbackID: bareID, DueAt: nowMS - dayMS, FiredAt: nowMS - dayMS + 12, Trigger: store.BySchedule},
	}, e.noted("ScheduleRuns", project, id, store.Actor{}, nil)
}
