package store

import (
	"testing"
	"time"
)

// Clocks go forward at midnight in Santiago on 6 September 2026, and in Cairo on 24 April. They go back at
// midnight in Santiago on 5 April, and in Havana at 01:00 on 1 November.
func TestLocalTime(t *testing.T) {
	for _, c := range []struct {
		zone              string
		month             time.Month
		day, hour, minute int
		want              string
	}{
		{"America/Santiago", time.September, 6, 0, 0, "2026-09-06T01:00:00-03:00"},
		{"America/Santiago", time.September, 6, 0, 30, "2026-09-06T01:00:00-03:00"},
		{"America/Santiago", time.August, 37, 0, 0, "2026-09-06T01:00:00-03:00"},
		{"America/Santiago", time.September, 6, 2, 0, "2026-09-06T02:00:00-03:00"},
		{"America/Santiago", time.September, 7, 0, 0, "2026-09-07T00:00:00-03:00"},
		{"America/Santiago", time.April, 5, 0, 0, "2026-04-05T00:00:00-04:00"},
		{"Africa/Cairo", time.April, 24, 0, 0, "2026-04-24T01:00:00+03:00"},
		{"America/Havana", time.November, 1, 0, 0, "2026-11-01T00:00:00-04:00"},
		{"Europe/Berlin", time.March, 29, 2, 30, "2026-03-29T03:30:00+02:00"},
		{"UTC", time.February, 29, 0, 0, "2026-03-01T00:00:00Z"},
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		got := LocalTime(2026, c.month, c.day, c.hour, c.minute, zone).Format(time.RFC3339)
		if got != c.want {
			t.Errorf("%s, %s %d, %d:%02d: %s, want %s", c.zone, c.month, c.day, c.hour, c.minute, got, c.want)
		}
	}
}
