package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
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
