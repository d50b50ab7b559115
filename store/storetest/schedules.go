package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newSchedule is one that is due at the next second; change may be nil.
func (f *fixture) newSchedule(name string, change func(*store.Schedule)) store.Schedule {
	s := store.Schedule{
		ID: f.id(), Project: project, Name: name, Cron: "*/5 * * * *", Timezone: "Asia/Shanghai", Template: `{"url": "https://a.example", "n":1}`,
		Missed: store.MissedSkip, Enabled: true, NextAt: f.now + 1000, CreatedAt: f.now, UpdatedAt: f.now,
	}
	if change != nil {
		change(&s)
	}
	return s
}

func (f *fixture) schedule(name string, change func(*store.Schedule)) store.Schedule {
	return must(f.CreateSchedule(f.ctx(), f.newSchedule(name, change), actor))
}

func (f *fixture) getSchedule(id string) store.Schedule {
	return must(f.Schedule(f.ctx(), project, id))
}

func (f *fixture) changeSchedule(id string, change func(*store.Schedule)) store.Schedule {
	return must(f.ChangeSchedule(f.ctx(), project, id, func(s *store.Schedule) error {
		change(s)
		return nil
	}, f.now, actor))
}

func (f *fixture) runs(id string) []store.ScheduleRun {
	return must(f.ScheduleRuns(f.ctx(), project, id))
}

// scheduleNames reads a list in pages.
func (f *fixture) scheduleNames(filter store.ScheduleFilter) (names []string) {
	f.Helper()
	for {
		page, err := f.Schedules(f.ctx(), project, filter)
		if err != nil || len(page) > filter.Limit {
			f.Fatalf("schedules: %v, %d of %d", err, len(page), filter.Limit)
		}
		for _, s := range page {
			names = append(names, s.Name)
			filter.After = s.ID
		}
		if len(page) == 0 {
			return names
		}
	}
}

func testScheduleChange(f *fixture) {
	given := f.newSchedule("nightly", nil)
	s, err := f.CreateSchedule(f.ctx(), given, actor)
	given.Version = 1
	if err != nil || !cmp.Equal(s, given) || !cmp.Equal(f.getSchedule(s.ID), given) {
		f.Fatalf("created %+v, %v; want %+v", s, err, given)
	}
	f.fails(store.ErrExists, "a second one of the name", errOf(f.CreateSchedule(f.ctx(), f.newSchedule("nightly", nil), actor)))
	theirs := f.schedule("nightly", func(s *store.Schedule) { s.Project = "other" })
	hourly := f.schedule("hourly", nil)
	f.now += 500
	got := f.changeSchedule(s.ID, func(s *store.Schedule) {
		s.Name, s.Cron, s.Timezone, s.Template, s.Missed, s.Enabled, s.NextAt = "daily", "@daily", "", `{}`, store.MissedOnce, false, 0
		// None of these is to be changed.
		s.ID, s.Project, s.Version, s.CreatedAt, s.UpdatedAt, s.LastAt, s.LastID, s.LastError = "x", "y", 9, 9, 9, 9, "z", "w"
	})
	want := given
	want.Name, want.Cron, want.Timezone, want.Template, want.Missed, want.Enabled, want.NextAt = "daily", "@daily", "", `{}`, store.MissedOnce, false, 0
	want.Version, want.UpdatedAt = 2, f.now
	same(f, "changed", []store.Schedule{want, want}, []store.Schedule{got, f.getSchedule(s.ID)})
	if same := f.changeSchedule(s.ID, func(*store.Schedule) {}); !cmp.Equal(same, want) {
		f.Errorf("what changes nothing: %+v", same)
	}
	refused := errors.New("refused")
	for _, c := range []struct {
		name      string
		err, want error
	}{{"hourly", nil, store.ErrExists}, {"x", refused, refused}} {
		change := func(s *store.Schedule) error { s.Name = c.name; return c.err }
		f.fails(c.want, "changed to "+c.name, errOf(f.ChangeSchedule(f.ctx(), project, s.ID, change, f.now, actor)))
	}
	never := func(*store.Schedule) error { f.Error("called for what is not there"); return nil }
	for _, c := range [][2]string{{"other", s.ID}, {project, theirs.ID}, {project, f.id()}} {
		_, read := f.Schedule(f.ctx(), c[0], c[1])
		_, runs := f.ScheduleRuns(f.ctx(), c[0], c[1])
		_, change := f.ChangeSchedule(f.ctx(), c[0], c[1], never, f.now, actor)
		_, ran := f.RanSchedule(f.ctx(), c[0], c[1], f.draft(nil), f.now, actor)
		for i, err := range []error{read, runs, change, ran, f.DeleteSchedule(f.ctx(), c[0], c[1], f.now, actor)} {
			if !errors.Is(err, store.ErrNotFound) {
				f.Errorf("%v, call %d: %v", c, i, err)
			}
		}
	}
	f.changeSchedule(s.ID, func(s *store.Schedule) { s.Enabled, s.NextAt = true, f.now })
	must(f.RanSchedule(f.ctx(), project, s.ID, f.draft(nil), f.now, actor))
	f.ok(f.DeleteSchedule(f.ctx(), project, s.ID, f.now, actor))
	f.fails(store.ErrNotFound, "deleted", errOf(f.Schedule(f.ctx(), project, s.ID)))
	same(f, "callbacks that it has made", 1, f.counts().States[store.Scheduled])
	f.wantAudit("schedule.delete "+s.ID, "schedule.run "+s.ID, "schedule.update "+s.ID, "schedule.update "+s.ID, "schedule.create "+hourly.ID,
		"schedule.create "+s.ID)
	entries := must(f.AuditEntries(f.ctx(), project, "", 4))
	var detail map[string][]string
	f.ok(json.Unmarshal([]byte(entries[3].Detail), &detail))
	changed := []string{"name", "cron", "timezone", "callback", "missed", "enabled", "next_at"}
	same(f, "changed, by the audit", changed, detail["changed"])
	for _, e := range entries {
		if strings.Contains(e.Detail, "a.example") {
			f.Errorf("the template is in the audit: %+v", e)
		}
	}
	again := f.schedule("daily", nil)
	none(f, "runs of a new one", f.runs(again.ID))
}

func testScheduleList(f *fixture) {
	for i, name := range []string{"Orders 100%", "orders_eu", "refunds", "Ordersxeu"} {
		f.schedule(name, func(s *store.Schedule) { s.Enabled, s.NextAt = i != 2, (f.now+int64(9-i))*int64(min(1, i)) })
	}
	f.schedule("orders of others", func(s *store.Schedule) { s.Project, s.NextAt = "other", f.now+7 })
	yes, no := true, false
	for _, c := range []struct {
		filter store.ScheduleFilter
		want   []string
	}{
		{store.ScheduleFilter{}, []string{"Ordersxeu", "refunds", "orders_eu", "Orders 100%"}},
		{store.ScheduleFilter{Search: "oRders"}, []string{"Ordersxeu", "orders_eu", "Orders 100%"}},
		{store.ScheduleFilter{Search: "s_e"}, []string{"orders_eu"}},
		{store.ScheduleFilter{Search: "%"}, []string{"Orders 100%"}},
		{store.ScheduleFilter{Enabled: &no}, []string{"refunds"}},
		{store.ScheduleFilter{Enabled: &yes, Search: "EU"}, []string{"Ordersxeu", "orders_eu"}},
		{store.ScheduleFilter{Search: "others"}, nil},
	} {
		for _, c.filter.Limit = range []int{1, 2, 100} {
			same(f, fmt.Sprintf("%+v", c.filter), c.want, f.scheduleNames(c.filter))
		}
	}
	next := must(f.NextSchedules(f.ctx(), f.now+7, 10))
	var names []string
	for _, s := range next {
		names = append(names, s.Name)
		want := f.newSchedule("", nil).Template
		if s.NextAt > f.now+7 {
			want = "" // it is read when it is due
		}
		if s.Template != want {
			f.Errorf("the template of %s is %q, want %q", s.Name, s.Template, want)
		}
	}
	same(f, "next", []string{"Ordersxeu", "orders of others", "orders_eu"}, names)
	if next = must(f.NextSchedules(f.ctx(), f.now, 1)); len(next) != 1 || next[0].Name != "Ordersxeu" {
		f.Errorf("the next one: %v", next)
	}
}

// testScheduleNames: many that want the same name at once agree on one; and a project has at most so many.
func testScheduleNames(f *fixture) {
	const crowd = 10
	moving := make([]store.Schedule, crowd)
	for i := range moving {
		moving[i] = f.schedule(fmt.Sprint("moving ", i), nil)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := make(map[string]int)
	note := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			won[what]++
		case !errors.Is(err, store.ErrExists):
			f.Errorf("%s: %v", what, err)
		}
	}
	for i := range crowd {
		wg.Go(func() {
			_, err := f.CreateSchedule(f.ctx(), f.newSchedule("made", nil), actor)
			note("made", err)
		})
		wg.Go(func() {
			_, err := f.ChangeSchedule(f.ctx(), project, moving[i].ID, func(s *store.Schedule) error { s.Name = "moved"; return nil }, f.now, actor)
			note("moved", err)
		})
	}
	wg.Wait()
	if won["made"] != 1 || won["moved"] != 1 {
		f.Errorf("won: %v", won)
	}
	for i := range store.MaxSchedules - crowd - 3 {
		f.schedule(fmt.Sprint("many ", i), nil)
	}
	created := 0
	for range 6 { // two places are left
		wg.Go(func() {
			_, err := f.CreateSchedule(f.ctx(), f.newSchedule(f.id(), nil), actor)
			mu.Lock()
			defer mu.Unlock()
			var full *store.InvalidError
			switch {
			case err == nil:
				created++
			case !errors.As(err, &full) || full.Fields[0].Field != "name":
				f.Errorf("one too many: %v", err)
			}
		})
	}
	wg.Wait()
	if created != 2 {
		f.Errorf("%d were made where there was room for two", created)
	}
	f.schedule("of another", func(s *store.Schedule) { s.Project = "other" })
}

// firing is the next due time of a schedule, with a callback.
func (f *fixture) firing(s store.Schedule) store.Firing {
	d := f.draft(nil)
	return store.Firing{Schedule: s, Next: s.NextAt + 60_000, Draft: &d, Due: s.NextAt, Now: f.now}
}

func (f *fixture) fire(firings ...store.Firing) []store.Fired {
	f.Helper()
	fired := must(f.Fire(f.ctx(), firings))
	if len(fired) != len(firings) {
		f.Fatalf("fired %d of %d", len(fired), len(firings))
	}
	return fired
}

// testFire: a due time is made by one, with its callback, and what came between has its way.
func testFire(f *fixture) {
	var all []store.Schedule
	var firings []store.Firing
	for i := range 7 {
		s := f.schedule(fmt.Sprint("s", i), nil)
		all = append(all, s)
		firings = append(firings, f.firing(s))
	}
	// Whoever reads them now, and is not the first.
	slow := slices.Clone(firings)
	for i := range slow {
		slow[i] = f.firing(all[i])
	}
	f.now += 1200
	for i := range firings {
		firings[i].Now = f.now
	}
	f.changeSchedule(all[1].ID, func(s *store.Schedule) { s.Template = `{}` })
	f.changeSchedule(all[2].ID, func(s *store.Schedule) { s.Enabled, s.NextAt = false, 0 })
	f.ok(f.DeleteSchedule(f.ctx(), project, all[3].ID, f.now, actor))
	firings[4].Draft, firings[4].Why = nil, "the endpoint is gone"
	firings[5].Draft, firings[5].Next = nil, 0
	taken := f.accept(nil)
	firings[6].Draft.Callback.ID = taken.ID
	fired := f.fire(firings[6], firings[5], firings[4], firings[3], firings[2], firings[1], firings[0])
	slices.Reverse(fired)
	for i, got := range fired {
		if got.Won != slices.Contains([]int{0, 4, 5}, i) || (got.Err != nil) != (i == 6) {
			f.Errorf("firing %d: %+v", i, got)
		}
	}
	made := fired[0].Accepted.Callback
	same(f, "the callback", f.get(firings[0].Draft.Callback.ID), made)
	same(f, "callbacks", 2, f.counts().States[store.Scheduled])
	want := all[0]
	want.NextAt, want.LastAt, want.LastID = firings[0].Next, firings[0].Due, made.ID
	failed := all[4]
	failed.NextAt, failed.LastError = firings[4].Next, firings[4].Why
	skipped := all[5]
	skipped.NextAt = 0
	for i, want := range map[int]store.Schedule{0: want, 4: failed, 5: skipped, 6: all[6]} {
		same(f, fmt.Sprint("schedule ", i), want, f.getSchedule(all[i].ID))
	}
	if got := f.getSchedule(all[1].ID); got.Version != 2 || got.NextAt != all[1].NextAt || got.LastAt != 0 {
		f.Errorf("the one that was changed: %+v", got)
	}
	if got := f.getSchedule(all[2].ID); got.NextAt != 0 || got.LastAt != 0 {
		f.Errorf("the one that was disabled: %+v", got)
	}
	same(f, "runs", []store.ScheduleRun{{
		CallbackID: made.ID, DueAt: all[0].NextAt, FiredAt: f.now, Trigger: store.BySchedule,
	}}, f.runs(all[0].ID))
	none(f, "runs of one that made no callback", f.runs(all[4].ID))
	for i, got := range f.fire(slow...) {
		if got.Won != (i == 6) || got.Err != nil {
			f.Errorf("second firing %d: %+v", i, got)
		}
	}
	// What went wrong is forgotten when a callback is made; what was made last stays when none is.
	f.now += 60_000
	ok := f.firing(f.getSchedule(all[4].ID))
	skip := f.firing(f.getSchedule(all[0].ID))
	skip.Draft = nil
	for _, got := range f.fire(ok, skip) {
		if !got.Won || got.Err != nil {
			f.Errorf("fired: %+v", got)
		}
	}
	if got := f.getSchedule(all[4].ID); got.LastError != "" || got.LastAt != ok.Due || got.LastID != ok.Draft.Callback.ID || got.Version != 1 {
		f.Errorf("after a callback: %+v", got)
	}
	if got := f.getSchedule(all[0].ID); got.LastAt != all[0].NextAt || got.LastID != made.ID || got.NextAt != skip.Next {
		f.Errorf("after a skip: %+v", got)
	}
	// It is a callback as any other.
	f.win(f.succeeded(f.claim(made.ID)))
	f.fold()
	if events, _ := f.outcomes(store.OutcomeCursor{}, 10); len(events) != 1 || events[0].ID != made.ID {
		f.Errorf("in the feed: %+v", events)
	}
	// Two due times of one schedule in one call, the second after the first.
	s := f.getSchedule(all[6].ID)
	first := f.firing(s)
	s.NextAt = first.Next
	if fired := f.fire(first, f.firing(s)); !fired[0].Won || !fired[1].Won || len(f.runs(s.ID)) != 3 {
		f.Errorf("one after the other: %+v", fired)
	}
	none(f, "nothing was fired", must(f.Fire(f.ctx(), nil)))
}

// testFireCrowd: many fire the same due times at once, each in an order of its own; each is made once.
func testFireCrowd(f *fixture) {
	const crowd, schedules, rounds = 8, 10, 3
	var all []store.Schedule
	for i := range schedules {
		all = append(all, f.schedule(fmt.Sprint("s", i), nil))
	}
	made := make(map[string]int)
	for range rounds {
		var wg sync.WaitGroup
		var mu sync.Mutex
		for n := range crowd {
			var firings []store.Firing
			for i := range all {
				firings = append(firings, f.firing(all[(i*7+n)%schedules]))
			}
			wg.Go(func() {
				fired, err := f.Fire(f.ctx(), firings)
				if err != nil {
					f.Errorf("fire: %v", err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				for i, got := range fired {
					if got.Err != nil {
						f.Errorf("firing: %v", got.Err)
					}
					if got.Won {
						made[firings[i].Schedule.ID]++
					}
				}
			})
		}
		wg.Wait()
		f.now += 60_000
		for i := range all {
			all[i] = f.getSchedule(all[i].ID)
		}
	}
	for i := range all {
		if n, runs := made[all[i].ID], f.runs(all[i].ID); n != rounds || len(runs) != rounds {
			f.Errorf("schedule %d was fired %d times, with %d runs", i, n, len(runs))
		}
	}
	same(f, "callbacks", rounds*schedules, f.counts().States[store.Scheduled])
}

// testScheduleRuns: a person runs a schedule, and only so many runs are kept.
func testScheduleRuns(f *fixture) {
	s := f.schedule("by hand", func(s *store.Schedule) { s.Enabled, s.NextAt = false, 0 })
	f.now += 10
	d := f.draft(keyed("k", "one"))
	a, err := f.RanSchedule(f.ctx(), project, s.ID, d, f.now, actor)
	if err != nil || a.Replayed || a.Callback.ID != d.Callback.ID || !cmp.Equal(a.Callback, f.get(d.Callback.ID)) {
		f.Fatalf("ran: %+v, %v", a, err)
	}
	want := s
	want.LastAt, want.LastID = f.now, a.Callback.ID
	same(f, "after a run by hand", want, f.getSchedule(s.ID))
	run := store.ScheduleRun{CallbackID: a.Callback.ID, DueAt: f.now, FiredAt: f.now, Trigger: store.Manual}
	same(f, "runs", []store.ScheduleRun{run}, f.runs(s.ID))
	f.wantAudit("schedule.run " + s.ID)
	bad := f.draft(keyed("k", "two"))
	if _, err := f.RanSchedule(f.ctx(), project, s.ID, bad, f.now, actor); err == nil {
		f.Error("a draft that is refused ran")
	}
	if got := f.getSchedule(s.ID); got.LastID != a.Callback.ID || len(f.runs(s.ID)) != 1 {
		f.Errorf("after one that was refused: %+v", got)
	}

	// A firing that was read before a run by hand takes effect; what was wrong is forgotten by the run.
	s = f.changeSchedule(s.ID, func(s *store.Schedule) { s.Enabled, s.NextAt = true, f.now+1000 })
	wrong := f.firing(s)
	wrong.Draft, wrong.Why = nil, "wrong"
	f.fire(wrong)
	s = f.getSchedule(s.ID)
	read := f.firing(s)
	must(f.RanSchedule(f.ctx(), project, s.ID, f.draft(nil), f.now, actor))
	if got := f.getSchedule(s.ID); got.LastError != "" || got.NextAt != s.NextAt || got.Version != s.Version {
		f.Errorf("after a run by hand: %+v", got)
	}
	if fired := f.fire(read); !fired[0].Won {
		f.Errorf("the firing that was read before it: %+v", fired)
	}
	other := f.schedule("other", nil)
	f.fire(f.firing(other))
	var last []string
	for range store.KeptRuns + 5 {
		firing := f.firing(f.getSchedule(s.ID))
		last = append(last, firing.Draft.Callback.ID)
		f.fire(firing)
	}
	last = last[5:]
	slices.Reverse(last)
	var got []string
	for _, r := range f.runs(s.ID) {
		got = append(got, r.CallbackID)
	}
	if !slices.Equal(got, last) {
		f.Errorf("%d runs are kept; want the last %d", len(got), store.KeptRuns)
	}
	if len(f.runs(other.ID)) != 1 {
		f.Error("runs of another schedule were removed")
	}
}
