package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestAScheduleFiresAtEachDueTime(t *testing.T) {
	with(nil, withTemplates).run(t, func(b *fixture) {
		untilMinute(30 * time.Second)
		began := time.Now().Truncate(time.Minute)
		s := b.schedule(everyMinute("sweep"))
		b.check(s.NextAt == began.Add(time.Minute).UnixMilli() && s.Enabled && s.Missed == store.MissedOnce,
			"made %+v", s)
		time.Sleep(time.Hour)
		b.sent(60, "in an hour")
		for i, h := range b.hits("") {
			b.is("minutes until it came", h.at.Truncate(time.Second).Sub(began),
				time.Duration(i+1)*time.Minute)
		}
		now, last := b.scheduleNow(s.ID), began.Add(time.Hour)
		b.check(now.LastAt == last.UnixMilli() && now.NextAt == last.Add(time.Minute).UnixMilli() &&
			now.LastError == "", "then it is %+v", now)
		c := b.get(now.LastID)
		b.stands(c, "succeeded")
		b.check(c.Kind == store.Notify && c.FirstDueAt == now.LastAt, "its callback is %+v", c)
	})
}

// What came due while no process ran is made up for once or skipped, however short the stop was. The rhythm
// stays.
func TestWhatAScheduleMissed(t *testing.T) {
	for _, c := range []struct {
		cron, missed string
		period, stop time.Duration
		want         int
	}{
		{"* * * * *", "once", time.Minute, 10 * time.Minute, 1},
		{"* * * * *", "skip", time.Minute, 10 * time.Minute, 0},
		{"@every 7s", "once", 7 * time.Second, 30 * time.Second, 1},
		{"@every 7s", "skip", 7 * time.Second, 30 * time.Second, 0},
	} {
		t.Run(c.cron+" "+c.missed, func(t *testing.T) {
			with(nil, withTemplates).run(t, func(b *fixture) {
				untilMinute(30 * time.Second)
				ch := everyMinute("sweep")
				ch.Cron, ch.Missed = &c.cron, &c.missed
				s := b.schedule(ch)
				time.Sleep(time.Until(time.UnixMilli(s.NextAt)) + time.Second)
				b.sent(1, "before the stop")
				b.stop()
				time.Sleep(c.stop)
				b = b.restart(nil, withTemplates)
				time.Sleep(time.Second)
				b.sent(c.want, "to make up for those missed")
				now := b.scheduleNow(s.ID)
				b.is("out of rhythm by", (now.NextAt-s.NextAt)%c.period.Milliseconds(), 0)
				time.Sleep(time.Until(time.UnixMilli(now.NextAt)) + 100*time.Millisecond)
				b.sent(c.want+1, "after the next due time")
				b.is("error", now.LastError, "")
			})
		})
	}
}

func TestAScheduleIsChanged(t *testing.T) {
	with(nil, withTemplates).run(t, func(b *fixture) {
		untilMinute(30 * time.Second)
		id := b.schedule(everyMinute("sweep")).ID
		b.is("disabled, it is due at", b.patchSchedule(id,
			control.ScheduleChange{Enabled: new(false)}).NextAt, 0)
		time.Sleep(5 * time.Minute)
		b.sent(0, "while it was disabled")
		c := must(b.runSchedule(id))
		b.await(c.ID, time.Second)
		now := b.scheduleNow(id)
		b.check(now.LastID == c.ID && now.NextAt == 0, "after a run by hand it is %+v", now)
		on := b.patchSchedule(id, control.ScheduleChange{Enabled: new(true), Cron: new("@every 2h"),
			Name: new("other")})
		b.check(on.NextAt >= soon(2*time.Hour-time.Second) && on.Name == "other", "enabled again, it is %+v",
			on)
		next := b.patchSchedule(id, control.ScheduleChange{Cron: new("0 12 * * *"),
			Timezone: new("Asia/Shanghai")}).NextAt
		b.is("noon in Shanghai", time.UnixMilli(next).UTC().Format("15:04"), "04:00")
		b.is("with another name it is due at",
			b.patchSchedule(id, control.ScheduleChange{Name: new("third")}).NextAt, next)
		b.ok(b.engine.DeleteSchedule(b.Context(), project, id, operator))
		time.Sleep(time.Until(time.UnixMilli(next)) + time.Hour)
		b.sent(1, "in all, by hand")
	})
}

// A due time at which the template is not valid any more is not lost without a word, and the schedule goes
// on.
func TestAScheduleWhoseCallbackCannotBeMade(t *testing.T) {
	with(nil, withTemplates).run(t, func(b *fixture) {
		untilMinute(30 * time.Second)
		ep := b.endpoint(control.EndpointChange{ExternalID: new("shop")})
		ch := everyMinute("sweep")
		ch.Template = []byte(`{"endpoint": "shop"}`)
		id := b.schedule(ch).ID
		time.Sleep(time.Minute)
		b.deleteEndpoint(ep)
		time.Sleep(3 * time.Minute)
		now := b.scheduleNow(id)
		b.check(strings.Contains(now.LastError, "endpoint") && now.NextAt > soon(0), "it is %+v", now)
		b.sent(1, "before its endpoint was deleted")
		_, err := b.runSchedule(id)
		b.check(len(b.wrongFields(err)) > 0, "a run by hand: %v", err)
		b.patchSchedule(id, control.ScheduleChange{Template: everyMinute("").Template})
		time.Sleep(time.Minute)
		b.is("error after an edit", b.scheduleNow(id).LastError, "")
		b.sent(2, "after an edit")
	})
}

// A template's delay and expiry run from the due time, also where the callback is made a moment after it.
func TestATemplateHasItsDelay(t *testing.T) {
	with(nil, withTemplates).run(t, func(b *fixture) {
		untilMinute(30 * time.Second)
		ch := everyMinute("sweep")
		ch.Template = []byte(`{"url": "https://shop.example/", "delay": 5000000000, "expires": 60000000000}`)
		s := b.schedule(ch)
		b.stop()
		untilMinute(500 * time.Millisecond)
		b = b.restart(nil, withTemplates)
		time.Sleep(time.Second)
		now := b.scheduleNow(s.ID)
		c := b.get(now.LastID)
		b.is("due, first due, due then, expires", []int64{now.LastAt, c.FirstDueAt, c.DueAt, c.ExpiresAt},
			[]int64{s.NextAt, s.NextAt + 5000, s.NextAt + 5000, s.NextAt + 65_000})
		b.check(c.CreatedAt >= now.LastAt+500, "it was made at %d, before a process ran", c.CreatedAt)
	})
}

func TestWrongSchedules(t *testing.T) {
	with(nil, withTemplates).run(t, func(b *fixture) {
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
			{"callback.endpoint",
				func(ch *control.ScheduleChange) { ch.Template = []byte(`{"endpoint": "unknown"}`) }},
		} {
			ch := everyMinute("new")
			c.change(&ch)
			_, err := b.engine.CreateSchedule(b.Context(), project, ch, operator)
			b.check(slices.Contains(b.wrongFields(err), c.field), "want %s, got %v", c.field, err)
		}
		_, err := b.engine.CreateSchedule(b.Context(), project, everyMinute("taken"), operator)
		b.fails("a name that is taken", err, store.ErrExists)
	})
}

// What a schedule that is being written would do is shown before it is made.
func TestNextTimesOfASpec(t *testing.T) {
	t.Parallel()
	b := &fixture{T: t}
	from := time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC) // the night after it, Berlin has no 02:30
	for _, c := range []struct{ cron, zone, next, field string }{
		{"30 2 * * *", "Europe/Berlin", "29 01:00:00, 30 00:30:00, 31 00:30:00", ""},
		{"@every 90s", "", "28 12:01:30, 28 12:03:00, 28 12:04:30", ""},
		{"* * *", "", "", "cron"},
		{"* * * * *", "Mars/Olympus", "", "timezone"},
		{"0 0 31 2 *", "Mars/Olympus", "", "cron timezone"},
	} {
		next, err := control.NextTimes(c.cron, c.zone, from.UnixMilli(), 3)
		var times []string
		for _, at := range next {
			times = append(times, time.UnixMilli(at).UTC().Format("02 15:04:05"))
		}
		b.is(c.cron+" in "+c.zone, strings.Join(times, ", "), c.next)
		wrong := b.wrongFields(err)
		slices.Sort(wrong)
		b.is("wrong of "+c.cron+" in "+c.zone, strings.Join(wrong, " "), c.field)
	}
	next, err := control.NextTimes("* * * * *", "", from.UnixMilli(), 1_000_000)
	b.check(err == nil && len(next) == control.MaxNextTimes, "%d times, %v", len(next), err)
}
