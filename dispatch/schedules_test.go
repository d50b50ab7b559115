package dispatch_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestAScheduleFiresAtEachDueTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), withTemplates)
		untilMinute(30 * time.Second)
		s := b.schedule(everyMinute("sweep"))
		if s.NextAt != time.Now().Truncate(time.Minute).Add(time.Minute).UnixMilli() || !s.Enabled || s.Missed != store.MissedOnce {
			t.Fatalf("made %+v", s)
		}
		began := time.Now()
		time.Sleep(time.Hour)
		at := b.arrivals()
		if len(at) != 60 {
			t.Fatalf("%d callbacks in an hour, want 60", len(at))
		}
		for i, when := range at {
			if want := began.Truncate(time.Minute).Add(time.Duration(i+1) * time.Minute).UTC(); !when.Equal(want) {
				t.Errorf("callback %d came at %s, want %s", i, when, want)
			}
		}
		now := b.scheduleNow(s.ID)
		if now.LastAt != at[59].UnixMilli() || now.NextAt != at[59].Add(time.Minute).UnixMilli() || now.LastError != "" {
			t.Errorf("then it is %+v", now)
		}
		c := b.get(now.LastID)
		if c.Kind != store.Notify || c.State != store.Succeeded || c.FirstDueAt != now.LastAt {
			t.Errorf("its callback is %+v", c)
		}
	})
}

// What came due while no process ran is made up for once or skipped, however short the stop was. The rhythm stays.
func TestWhatAScheduleMissed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		cron, missed string
		stop         time.Duration
		want         int
	}{
		{"* * * * *", "once", 10 * time.Minute, 1}, {"* * * * *", "skip", 10 * time.Minute, 0},
		{"@every 7s", "once", 30 * time.Second, 1}, {"@every 7s", "skip", 30 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := databasePath(t)
			b := startFixture(t, path, always(200, ""), withTemplates)
			untilMinute(30 * time.Second)
			ch := everyMinute("sweep")
			ch.Cron, ch.Missed = &c.cron, &c.missed
			s := b.schedule(ch)
			time.Sleep(time.Until(time.UnixMilli(s.NextAt)) + time.Second)
			before := len(b.arrivals())
			b.stop()
			time.Sleep(c.stop)
			b = startFixture(t, path, always(200, ""), withTemplates)
			time.Sleep(time.Second)
			if before != 1 || len(b.arrivals()) != c.want {
				t.Errorf("%s, %s: %d callbacks before, %d to make up for those missed", c.cron, c.missed, before, len(b.arrivals()))
			}
			now := b.scheduleNow(s.ID)
			if period := map[string]int64{"* * * * *": 60_000, "@every 7s": 7000}[c.cron]; (now.NextAt-s.NextAt)%period != 0 {
				t.Errorf("%s, %s: the rhythm began at %d and is at %d", c.cron, c.missed, s.NextAt, now.NextAt)
			}
			time.Sleep(time.Until(time.UnixMilli(now.NextAt)) + 100*time.Millisecond)
			if got := len(b.arrivals()); got != c.want+1 || now.LastError != "" {
				t.Errorf("%s, %s: %d callbacks after the next due time, want %d; %s", c.cron, c.missed, got, c.want+1, now.LastError)
			}
		})
	}
}

func TestAScheduleIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), withTemplates)
		untilMinute(30 * time.Second)
		s := b.schedule(everyMinute("sweep"))
		patch := func(ch control.ScheduleChange) store.Schedule {
			t.Helper()
			got, err := b.engine.PatchSchedule(t.Context(), store.DefaultProject, s.ID, ch, store.Actor{Name: "test"})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if off := patch(control.ScheduleChange{Enabled: new(false)}); off.NextAt != 0 {
			t.Errorf("disabled, it is due at %d", off.NextAt)
		}
		time.Sleep(5 * time.Minute)
		if n := len(b.arrivals()); n != 0 {
			t.Errorf("disabled, it fired %d times", n)
		}
		c, err := b.engine.RunSchedule(t.Context(), store.DefaultProject, s.ID, store.Actor{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		b.await(c.ID, time.Second)
		if now := b.scheduleNow(s.ID); now.LastID != c.ID || now.NextAt != 0 {
			t.Errorf("after a run by hand it is %+v", now)
		}
		if on := patch(control.ScheduleChange{Enabled: new(true), Cron: new("@every 2h"), Name: new("other")}); on.NextAt < time.Now().Add(2*time.Hour-time.Second).UnixMilli() || on.Name != "other" {
			t.Errorf("enabled again, it is %+v", on)
		}
		next := patch(control.ScheduleChange{Cron: new("0 12 * * *"), Timezone: new("Asia/Shanghai")}).NextAt
		if at := time.UnixMilli(next).UTC(); at.Hour() != 4 || at.Minute() != 0 {
			t.Errorf("noon in Shanghai is %s", at)
		}
		if renamed := patch(control.ScheduleChange{Name: new("third")}); renamed.NextAt != next {
			t.Error("another name moved its due time")
		}
		b.ok(b.engine.DeleteSchedule(t.Context(), store.DefaultProject, s.ID, store.Actor{Name: "test"}))
		time.Sleep(time.Until(time.UnixMilli(next)) + time.Hour)
		if n := len(b.arrivals()); n != 1 {
			t.Errorf("%d callbacks in all, want the one by hand", n)
		}
	})
}

// A due time at which the template cannot be meant any more is not lost without a word, and the schedule goes on.
func TestAScheduleWhoseCallbackCannotBeMade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), withTemplates)
		untilMinute(30 * time.Second)
		ep, err := b.engine.CreateEndpoint(t.Context(), store.DefaultProject, control.EndpointChange{URL: new("https://shop.example/"), ExternalID: new("shop")}, store.Actor{Name: "test"})
		if err != nil {
			t.Fatal(err)
		}
		ch := everyMinute("sweep")
		ch.Template = []byte(`{"endpoint": "shop"}`)
		s := b.schedule(ch)
		time.Sleep(time.Minute)
		b.ok(b.engine.DeleteEndpoint(t.Context(), store.DefaultProject, ep.Endpoint.ID, store.Actor{Name: "test"}))
		time.Sleep(3 * time.Minute)
		now := b.scheduleNow(s.ID)
		if !strings.Contains(now.LastError, "endpoint") || now.NextAt <= time.Now().UnixMilli() || len(b.arrivals()) != 1 {
			t.Errorf("it is %+v after %d callbacks", now, len(b.arrivals()))
		}
		_, err = b.engine.RunSchedule(t.Context(), store.DefaultProject, s.ID, store.Actor{Name: "test"})
		if _, ok := errors.AsType[*store.InvalidError](err); !ok {
			t.Errorf("a run by hand: %v", err)
		}
		b.must(b.engine.PatchSchedule(t.Context(), store.DefaultProject, s.ID, control.ScheduleChange{Template: everyMinute("").Template}, store.Actor{Name: "test"}))
		time.Sleep(time.Minute)
		if now := b.scheduleNow(s.ID); now.LastError != "" || len(b.arrivals()) != 2 {
			t.Errorf("mended, it is %+v after %d callbacks", now, len(b.arrivals()))
		}
	})
}

// A template's delay and expiry run from the due time, also where the callback is made a moment after it.
func TestATemplateHasItsDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withTemplates)
		untilMinute(30 * time.Second)
		ch := everyMinute("sweep")
		ch.Template = []byte(`{"url": "https://shop.example/", "delay": 5000000000, "expires": 60000000000}`)
		s := b.schedule(ch)
		b.stop()
		untilMinute(500 * time.Millisecond)
		b = startFixture(t, path, always(200, ""), withTemplates)
		time.Sleep(time.Second)
		now := b.scheduleNow(s.ID)
		c := b.get(now.LastID)
		if now.LastAt != s.NextAt || c.FirstDueAt != now.LastAt+5000 || c.DueAt != c.FirstDueAt || c.ExpiresAt != now.LastAt+65_000 {
			t.Errorf("due at %d, its callback at %d until %d", now.LastAt, c.FirstDueAt, c.ExpiresAt)
		}
		if c.CreatedAt < now.LastAt+500 {
			t.Errorf("it was made at %d, before anybody ran", c.CreatedAt)
		}
	})
}

func TestWrongSchedules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""), withTemplates)
		b.schedule(everyMinute("taken"))
		for _, c := range []struct {
			field  string
			change func(*control.ScheduleChange)
		}{
			{"name", func(ch *control.ScheduleChange) { ch.Name = nil }},
			{"name", func(ch *control.ScheduleChange) { ch.Name = new("") }},
			{"cron", func(ch *control.ScheduleChange) { ch.Cron = nil }},
			{"cron", func(ch *control.ScheduleChange) { ch.Cron = new("0 0 31 2 *") }},
			{"cron", func(ch *control.ScheduleChange) { ch.Cron = new("TZ=UTC * * * * *") }},
			{"timezone", func(ch *control.ScheduleChange) { ch.Timezone = new("Mars/Olympus") }},
			{"missed", func(ch *control.ScheduleChange) { ch.Missed = new("twice") }},
			{"callback", func(ch *control.ScheduleChange) { ch.Template = nil }},
			{"callback.url", func(ch *control.ScheduleChange) { ch.Template = []byte(`{"url": "nowhere"}`) }},
			{"callback.endpoint", func(ch *control.ScheduleChange) { ch.Template = []byte(`{"endpoint": "nobody"}`) }},
		} {
			ch := everyMinute("new")
			c.change(&ch)
			_, err := b.engine.CreateSchedule(t.Context(), store.DefaultProject, ch, store.Actor{Name: "test"})
			wrong, ok := errors.AsType[*store.InvalidError](err)
			if !ok || !slices.ContainsFunc(wrong.Fields, func(f store.FieldError) bool { return f.Field == c.field }) {
				t.Errorf("want %s, got %v", c.field, err)
			}
		}
		if _, err := b.engine.CreateSchedule(t.Context(), store.DefaultProject, everyMinute("taken"), store.Actor{Name: "test"}); !errors.Is(err, store.ErrExists) {
			t.Errorf("a name that is taken: %v", err)
		}
	})
}

// What a schedule that is being written would do is shown before it is made.
func TestNextTimesOfASpec(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC) // the night after it, Berlin has no 02:30
	next, err := control.NextTimes("30 2 * * *", "Europe/Berlin", from.UnixMilli(), 3)
	want := []int64{
		time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC).UnixMilli(), time.Date(2026, 3, 30, 0, 30, 0, 0, time.UTC).UnixMilli(),
		time.Date(2026, 3, 31, 0, 30, 0, 0, time.UTC).UnixMilli(),
	}
	if err != nil || !slices.Equal(next, want) {
		t.Errorf("got %v, %v; want %v", next, err, want)
	}
	if next, err := control.NextTimes("@every 90s", "", from.UnixMilli(), 2); err != nil || !slices.Equal(next, []int64{from.UnixMilli() + 90_000, from.UnixMilli() + 180_000}) {
		t.Errorf("got %v, %v", next, err)
	}
	if next, err := control.NextTimes("* * * * *", "", from.UnixMilli(), 1_000_000); err != nil || len(next) != control.MaxNextTimes {
		t.Errorf("%d times, %v", len(next), err)
	}
	for _, c := range []struct{ cron, zone, field string }{
		{"* * *", "", "cron"}, {"* * * * *", "Mars/Olympus", "timezone"}, {"0 0 31 2 *", "Mars/Olympus", "timezone"}, {"0 0 31 2 *", "Mars/Olympus", "cron"},
	} {
		if next, err := control.NextTimes(c.cron, c.zone, from.UnixMilli(), 3); next != nil || !isInvalid(err, c.field) {
			t.Errorf("%q in %q: %v, %v; want an error of %s", c.cron, c.zone, next, err, c.field)
		}
	}
}
