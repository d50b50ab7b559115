package alert

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Each quarter is in one daily summary, also if one is late.
func TestSummariesAdjoin(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 1, 20, 9, 7, 0, 0, time.UTC).UnixMilli()
	_, end := summaryDay(due, due)
	for _, late := range []time.Duration{10 * time.Second, 20 * time.Minute, 0, 23 * time.Hour, 0} {
		due += day.Milliseconds()
		from, to := summaryDay(due, due+late.Milliseconds())
		if from != end || to != store.Quarter.Begin(due) || to-from != day.Milliseconds() {
			t.Errorf("%s late: from %d to %d, want from %d", late, from, to, end)
		}
		end = to
	}
	now := due + 3*day.Milliseconds() + 1
	if _, to := summaryDay(due, now); to != store.Quarter.Begin(now) {
		t.Errorf("a summary of an outage ends %d ms ago", now-to)
	}
}
