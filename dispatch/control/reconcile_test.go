package control

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A year has one run for each of its days, in order, also where clocks change at the time of the run or at
// midnight. The days have no gap and no overlap.
func TestDailyRunsOfAYear(t *testing.T) {
	for _, name := range []string{"America/Santiago", "Africa/Cairo", "America/Havana", "Europe/Berlin",
		"Asia/Shanghai", "Australia/Lord_Howe"} {
		for _, at := range []string{"00:00", "00:30", "02:30", "23:59"} {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			r := &store.Reconciling{At: at, Timezone: name}
			want := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			next := time.Date(2026, 1, 2, 0, 0, 0, 0, zone).UnixMilli() - 1
			var end time.Time
			for range 365 {
				next = nextReconcile(r, next)
				day, from, to, err := dayBefore(time.UnixMilli(next).In(zone))
				if err != nil || day != want.Format(time.DateOnly) || !end.IsZero() && !from.Equal(end) ||
					!from.Before(to) || to.UnixMilli() > next {
					t.Fatalf("%s %s: the run of %s is of %s, from %s to %s, want %s from %s: %v", name, at,
						time.UnixMilli(next).In(zone), day, from, to, want.Format(time.DateOnly), end, err)
				}
				want, end = want.AddDate(0, 0, 1), to
			}
		}
	}
}
