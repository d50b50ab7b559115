package storetest

import (
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newSchedule returns a schedule that is not created yet. It is due in a second.
func (f *fixture) newSchedule(name string) store.Schedule {
	return store.Schedule{
		ID: f.id(), Project: project, Name: name, Cron: "*/5 * * * *", Timezone: "Asia/Shanghai",
		Template: `{"url": "https://a.example", "n":1}`, Missed: store.MissedSkip, Enabled: true,
		NextAt:    f.now + 1000,
		CreatedAt: f.now, UpdatedAt: f.now,
	}
}

func (f *fixture) schedule(name string) store.Schedule {
	return must(f.CreateSchedule(f.ctx(), f.newSchedule(name), actor))
}

func (f *fixture) schedules(n int) (all []store.Schedule) {
	for i := range n {
		all = append(all, f.schedule(fmt.Sprint("s", i)))
	}
	return all
}

func (f *fixture) getSchedule(id string) store.Schedule {
	return must(f.Schedule(f.ctx(), project, id))
}

func (f *fixture) runs(id string) []store.ScheduleRun {
	return must(f.ScheduleRuns(f.ctx(), project, id))
}

// testScheduleNameCrowd gives many schedules the same name concurrently, of which one may succeed. It also
// checks the limit of schedules in a project.
func testScheduleNameCrowd(f *fixture) {
	const many = 10
	moving := f.schedules(many)
	create := func(name string) error {
		return errOf(f.CreateSchedule(f.ctx(), f.newSchedule(name), actor))
	}
	won := f.winners(2*many, store.ErrExists, func(i int) error {
		if i%2 == 0 {
			return create("made")
		}
		move := infallible(func(s *store.Schedule) { s.Name = "moved" })
		return errOf(f.ChangeSchedule(f.ctx(), project, moving[i/2].ID, move, f.now, actor))
	})
	f.check(len(won) == 2 && won[0]%2 != won[1]%2, "won: %v", won)
	for i := range store.MaxSchedules - many - 3 {
		f.schedule(fmt.Sprint("many ", i))
	}
	created := 0
	var full *store.InvalidError
	for _, err := range crowd(f, 6, func(int) error { return create(f.id()) }) { // the limit allows two more
		if err == nil {
			created++
			continue
		}
		f.check(errors.As(err, &full) && full.Fields[0].Field == "name", "schedule above the limit: %v", err)
	}
	same(f, "schedules created up to the limit", 2, created)
	theirs := f.newSchedule("of another")
	theirs.Project = "other"
	must(f.CreateSchedule(f.ctx(), theirs, actor))
}

// plannedRun returns the run of a schedule at its next due time, with a callback.
func (f *fixture) plannedRun(s store.Schedule) store.PlannedRun {
	d := f.draft()
	return store.PlannedRun{Schedule: s, Next: s.NextAt + 60_000, Draft: &d, Due: s.NextAt, Now: f.now}
}

func (f *fixture) runAll(planned ...store.PlannedRun) []store.PlannedRunResult {
	results := must(f.RunSchedules(f.ctx(), planned))
	f.require(len(results) == len(planned), "%d results of %d runs", len(results), len(planned))
	return results
}

// testRunCrowd runs the same due times concurrently, each caller in another order. Each due time must be run
// once.
func testRunCrowd(f *fixture) {
	const crowds, schedules, rounds = 8, 10, 3
	all := f.schedules(schedules)
	made := make(map[string]int)
	for range rounds {
		for _, won := range crowd(f, crowds, func(n int) (won []string) {
			planned := make([]store.PlannedRun, schedules)
			for i := range planned {
				planned[i] = f.plannedRun(all[(i*7+n)%schedules])
			}
			for i, got := range f.runAll(planned...) {
				f.ok(got.Err)
				if got.Won {
					won = append(won, planned[i].Schedule.ID)
				}
			}
			return won
		}) {
			for _, id := range won {
				made[id]++
			}
		}
		f.now += 60_000
		for i := range all {
			all[i] = f.getSchedule(all[i].ID)
		}
	}
	for i, s := range all {
		n, runs := made[s.ID], f.runs(s.ID)
		f.check(n == rounds && len(runs) == rounds, "schedule %d won %d times and has %d runs", i, n,
			len(runs))
	}
	f.wantOpen(rounds * schedules)
}

// testRunsKept checks that the store keeps the last KeptRuns runs of a schedule.
func testRunsKept(f *fixture) {
	s, other := f.schedule("by hand"), f.schedule("other")
	f.runAll(f.plannedRun(other))
	var last []string
	for range store.KeptRuns + 5 {
		planned := f.plannedRun(f.getSchedule(s.ID))
		last = append([]string{planned.Draft.Callback.ID}, last...)
		f.runAll(planned)
	}
	same(f, "kept runs", last[:store.KeptRuns],
		each(f.runs(s.ID), func(r store.ScheduleRun) string { return r.CallbackID }))
	same(f, "runs of another schedule", 1, len(f.runs(other.ID)))
}
