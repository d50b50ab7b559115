package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
