package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
)

// NextTimes previews the due times of a spec.
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
