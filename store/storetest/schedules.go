package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newSchedule is one that is due at the next second.
func (f *fixture) newSchedule(name string, changes ...func(*store.Schedule)) store.Schedule {
	s := store.Schedule{
		ID: f.id(), Project: project, Name: name, Cron: "*/5 * * * *", Timezone: "Asia/Shanghai",
		Template: `{"url": "https://a.example", "n":1}`, Missed: store.MissedSkip, Enabled: true,
		NextAt:    f.now + 1000,
		CreatedAt: f.now, UpdatedAt: f.now,
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func (f *fixture) schedule(name string, changes ...func(*store.Schedule)) store.Schedule {
	return must(f.CreateSchedule(f.ctx(), f.newSchedule(name, changes...), actor))
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

func (f *fixture) changeSchedule(id string, change func(*store.Schedule)) store.Schedule {
	return must(f.ChangeSchedule(f.ctx(), project, id, infallible(change), f.now, actor))
}

func (f *fixture) runs(id string) []store.ScheduleRun {
	return must(f.ScheduleRuns(f.ctx(), project, id))
}

// scheduleNames reads a list in pages.
func (f *fixture) scheduleNames(filter store.ScheduleFilter) []string {
	return scheduleNames(pages(f, filter.Limit, func(last *store.Schedule) ([]store.Schedule, error) {
		if last != nil {
			filter.After = last.ID
		}
		return f.Schedules(f.ctx(), project, filter)
	}))
}

func scheduleNames(schedules []store.Schedule) []string {
	return each(schedules, func(s store.Schedule) string { return s.Name })
}

func testScheduleChange(f *fixture) {
	given := f.newSchedule("nightly")
	s := must(f.CreateSchedule(f.ctx(), given, actor))
	given.Version = 1
	both(f, "created", given, s, f.getSchedule(s.ID))
	f.fails(store.ErrExists, "a second one of the name",
		errOf(f.CreateSchedule(f.ctx(), f.newSchedule("nightly"), actor)))
	theirs := f.schedule("nightly", func(s *store.Schedule) { s.Project = "other" })
	hourly := f.schedule("hourly")
	f.now += 500
	whole := func(s *store.Schedule) {
		s.Name, s.Cron, s.Timezone, s.Template, s.Missed = "daily", "@daily", "", `{}`, store.MissedOnce
		s.Enabled, s.NextAt = false, 0
	}
	got := f.changeSchedule(s.ID, func(s *store.Schedule) {
		whole(s)
		// None of these is to be changed.
		s.ID, s.Project, s.LastID, s.LastError = "x", "y", "z", "w"
		s.Version, s.CreatedAt, s.UpdatedAt, s.LastAt = 9, 9, 9, 9
	})
	want := given
	whole(&want)
	want.Version, want.UpdatedAt = 2, f.now
	both(f, "changed", want, got, f.getSchedule(s.ID))
	same(f, "what changes nothing", want, f.changeSchedule(s.ID, func(*store.Schedule) {}))
	rename := func(s *store.Schedule) { s.Name = "hourly" }
	for want, change := range map[error]func(*store.Schedule) error{
		store.ErrExists: infallible(rename), errRefused: refuse(rename),
	} {
		f.fails(want, "renamed", errOf(f.ChangeSchedule(f.ctx(), project, s.ID, change, f.now, actor)))
	}
	never := func(*store.Schedule) error { panic("called for what is not there") }
	for _, where := range [][2]string{{"other", s.ID}, {project, theirs.ID}, {project, f.id()}} {
		in, id := where[0], where[1]
		f.missing("read", errOf(f.Schedule(f.ctx(), in, id)))
		f.missing("runs", errOf(f.ScheduleRuns(f.ctx(), in, id)))
		f.missing("change", errOf(f.ChangeSchedule(f.ctx(), in, id, never, f.now, actor)))
		f.missing("run", errOf(f.RanSchedule(f.ctx(), in, id, f.draft(), f.now, actor)))
		f.missing("delete", f.DeleteSchedule(f.ctx(), in, id, f.now, actor))
	}
	f.changeSchedule(s.ID, func(s *store.Schedule) { s.Enabled, s.NextAt = true, f.now })
	must(f.RanSchedule(f.ctx(), project, s.ID, f.draft(), f.now, actor))
	f.ok(f.DeleteSchedule(f.ctx(), project, s.ID, f.now, actor))
	f.missing("deleted", errOf(f.Schedule(f.ctx(), project, s.ID)))
	f.wantOpen(1) // the callback that it has made
	f.wantAudit("schedule.delete "+s.ID, "schedule.run "+s.ID, "schedule.update "+s.ID, "schedule.update "+s.ID,
		"schedule.create "+hourly.ID, "schedule.create "+s.ID)
	entries := f.newest(4)
	var detail map[string][]string
	f.ok(json.Unmarshal([]byte(entries[3].Detail), &detail))
	same(f, "changed, by the audit",
		[]string{"name", "cron", "timezone", "callback", "missed", "enabled", "next_at"}, detail["changed"])
	for _, e := range entries {
		f.check(!strings.Contains(e.Detail, "a.example"), "the template is in the audit: %+v", e)
	}
	none(f, "runs of a new one", f.runs(f.schedule("daily").ID))
}

func testScheduleList(f *fixture) {
	for i, name := range []string{"Orders 100%", "orders_eu", "refunds", "Ordersxeu"} {
		f.schedule(name, func(s *store.Schedule) {
			s.Enabled, s.NextAt = i != 2, (f.now+int64(9-i))*int64(min(1, i))
		})
	}
	f.schedule("orders of others", func(s *store.Schedule) { s.Project, s.NextAt = "other", f.now+7 })
	yes, no := true, false
	for want, filter := range map[string]store.ScheduleFilter{
		"Ordersxeu, refunds, orders_eu, Orders 100%": {},
		"Ordersxeu, orders_eu, Orders 100%":          {Search: "oRders"},
		"orders_eu":                                  {Search: "s_e"},
		"Orders 100%":                                {Search: "%"},
		"refunds":                                    {Enabled: &no},
		"Ordersxeu, orders_eu":                       {Enabled: &yes, Search: "EU"},
		"":                                           {Search: "others"},
	} {
		for _, filter.Limit = range []int{1, 2, 100} {
			same(f, fmt.Sprintf("%+v", filter), want, strings.Join(f.scheduleNames(filter), ", "))
		}
	}
	next := must(f.NextSchedules(f.ctx(), f.now+7, 10))
	same(f, "next", []string{"Ordersxeu", "orders of others", "orders_eu"}, scheduleNames(next))
	for _, s := range next {
		want := f.newSchedule("").Template
		if s.NextAt > f.now+7 {
			want = "" // it is read when it is due
		}
		same(f, "template of "+s.Name, want, s.Template)
	}
	same(f, "the next one", []string{"Ordersxeu"}, scheduleNames(must(f.NextSchedules(f.ctx(), f.now, 1))))
}

// testScheduleNames: many that want the same name at once agree on one; and a project has at most so many.
func testScheduleNames(f *fixture) {
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
	for _, err := range crowd(f, 6, func(int) error { return create(f.id()) }) { // two places are left
		if err == nil {
			created++
			continue
		}
		f.check(errors.As(err, &full) && full.Fields[0].Field == "name", "one too many: %v", err)
	}
	same(f, "made where there was room for two", 2, created)
	f.schedule("of another", func(s *store.Schedule) { s.Project = "other" })
}

// firing is the next due time of a schedule, with a callback.
func (f *fixture) firing(s store.Schedule) store.Firing {
	d := f.draft()
	return store.Firing{Schedule: s, Next: s.NextAt + 60_000, Draft: &d, Due: s.NextAt, Now: f.now}
}

func (f *fixture) fire(firings ...store.Firing) []store.Fired {
	fired := must(f.Fire(f.ctx(), firings))
	f.require(len(fired) == len(firings), "fired %d of %d", len(fired), len(firings))
	return fired
}

// testFire: a due time is made by one, with its callback, and what came between has its way.
func testFire(f *fixture) {
	all := f.schedules(7)
	firings := each(all, f.firing)
	slow := each(all, f.firing) // read now too, and fired later
	f.now += 1200
	for i := range firings {
		firings[i].Now = f.now
	}
	f.changeSchedule(all[1].ID, func(s *store.Schedule) { s.Template = `{}` })
	f.changeSchedule(all[2].ID, func(s *store.Schedule) { s.Enabled, s.NextAt = false, 0 })
	f.ok(f.DeleteSchedule(f.ctx(), project, all[3].ID, f.now, actor))
	firings[4].Draft, firings[4].Why = nil, "the endpoint is gone"
	firings[5].Draft, firings[5].Next = nil, 0
	firings[6].Draft.Callback.ID = f.accept().ID // which is taken
	reversed := slices.Clone(firings)
	slices.Reverse(reversed)
	fired := f.fire(reversed...)
	slices.Reverse(fired)
	for i, got := range fired {
		f.check(got.Won == slices.Contains([]int{0, 4, 5}, i) && (got.Err != nil) == (i == 6), "firing %d: %+v",
			i, got)
	}
	made := fired[0].Accepted.Callback
	same(f, "the callback", f.get(firings[0].Draft.Callback.ID), made)
	f.wantOpen(2)
	want := slices.Clone(all)
	want[0].NextAt, want[0].LastAt, want[0].LastID = firings[0].Next, firings[0].Due, made.ID
	want[1].Version, want[1].Template = 2, `{}`
	want[2].Version, want[2].Enabled, want[2].NextAt = 2, false, 0
	want[1].UpdatedAt, want[2].UpdatedAt = f.now, f.now
	want[4].NextAt, want[4].LastError = firings[4].Next, firings[4].Why
	want[5].NextAt = 0
	for _, i := range []int{0, 1, 2, 4, 5, 6} {
		same(f, fmt.Sprint("schedule ", i), want[i], f.getSchedule(all[i].ID))
	}
	same(f, "runs", []store.ScheduleRun{{
		CallbackID: made.ID, DueAt: all[0].NextAt, FiredAt: f.now, Trigger: store.BySchedule,
	}}, f.runs(all[0].ID))
	none(f, "runs of one that made no callback", f.runs(all[4].ID))
	for i, got := range f.fire(slow...) {
		f.check(got.Won == (i == 6) && got.Err == nil, "second firing %d: %+v", i, got)
	}
	// What went wrong is forgotten when a callback is made; what was made last stays when none is.
	f.now += 60_000
	ok, skip := f.firing(f.getSchedule(all[4].ID)), f.firing(f.getSchedule(all[0].ID))
	skip.Draft = nil
	for _, got := range f.fire(ok, skip) {
		f.check(got.Won && got.Err == nil, "fired: %+v", got)
	}
	want[4].NextAt, want[4].LastAt, want[4].LastID, want[4].LastError = ok.Next, ok.Due, ok.Draft.Callback.ID, ""
	same(f, "after a callback", want[4], f.getSchedule(all[4].ID))
	want[0].NextAt = skip.Next
	same(f, "after a skip", want[0], f.getSchedule(all[0].ID))
	// It is a callback as any other.
	f.succeed(made.ID)
	events := f.feed()
	f.check(len(events) == 1 && events[0].ID == made.ID, "in the feed: %+v", events)
	// Two due times of one schedule in one call, the second after the first.
	s := f.getSchedule(all[6].ID)
	first := f.firing(s)
	s.NextAt = first.Next
	fired = f.fire(first, f.firing(s))
	f.check(fired[0].Won && fired[1].Won && len(f.runs(s.ID)) == 3, "one after the other: %+v", fired)
	none(f, "nothing was fired", f.fire())
}

// testFireCrowd: many fire the same due times at once, each in an order of its own; each is made once.
func testFireCrowd(f *fixture) {
	const crowds, schedules, rounds = 8, 10, 3
	all := f.schedules(schedules)
	made := make(map[string]int)
	for range rounds {
		for _, won := range crowd(f, crowds, func(n int) (won []string) {
			firings := make([]store.Firing, schedules)
			for i := range firings {
				firings[i] = f.firing(all[(i*7+n)%schedules])
			}
			for i, got := range f.fire(firings...) {
				f.ok(got.Err)
				if got.Won {
					won = append(won, firings[i].Schedule.ID)
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
		f.check(n == rounds && len(runs) == rounds, "schedule %d was fired %d times, with %d runs", i, n, len(runs))
	}
	f.wantOpen(rounds * schedules)
}

// testScheduleRuns: a person runs a schedule, and only so many runs are kept.
func testScheduleRuns(f *fixture) {
	s := f.schedule("by hand", func(s *store.Schedule) { s.Enabled, s.NextAt = false, 0 })
	run := func(options ...option) (store.Accepted, error) {
		return f.RanSchedule(f.ctx(), project, s.ID, f.draft(options...), f.now, actor)
	}
	f.now += 10
	c := f.fresh(must(run(keyed("k", "one"))))
	same(f, "the callback", f.get(c.ID), c)
	want := s
	want.LastAt, want.LastID = f.now, c.ID
	runs := []store.ScheduleRun{{CallbackID: c.ID, DueAt: f.now, FiredAt: f.now, Trigger: store.Manual}}
	check := func(what string) {
		same(f, what, want, f.getSchedule(s.ID))
		same(f, what+": runs", runs, f.runs(s.ID))
	}
	check("after a run by hand")
	f.wantAudit("schedule.run " + s.ID)
	f.check(errOf(run(keyed("k", "two"))) != nil, "a draft that is refused ran")
	check("after one that was refused")

	// A firing that was read before a run by hand takes effect; what was wrong is forgotten by the run.
	s = f.changeSchedule(s.ID, func(s *store.Schedule) { s.Enabled, s.NextAt = true, f.now+1000 })
	wrong := f.firing(s)
	wrong.Draft, wrong.Why = nil, "wrong"
	f.fire(wrong)
	s = f.getSchedule(s.ID)
	read := f.firing(s)
	must(run())
	got := f.getSchedule(s.ID)
	f.check(got.LastError == "" && got.NextAt == s.NextAt && got.Version == s.Version,
		"after a run by hand: %+v", got)
	f.check(f.fire(read)[0].Won, "the firing that was read before it had no effect")
	other := f.schedule("other")
	f.fire(f.firing(other))
	var last []string
	for range store.KeptRuns + 5 {
		firing := f.firing(f.getSchedule(s.ID))
		last = append([]string{firing.Draft.Callback.ID}, last...)
		f.fire(firing)
	}
	same(f, "runs that are kept", last[:store.KeptRuns],
		each(f.runs(s.ID), func(r store.ScheduleRun) string { return r.CallbackID }))
	same(f, "runs of another schedule", 1, len(f.runs(other.ID)))
}
