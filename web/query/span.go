package query

import (
	"time"
	_ "time/tzdata" // an image with only the program has no time zones

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Span is a time range, From <= t < To, in Unix milliseconds.
type Span struct{ From, To int64 }

// Zone reads a time zone by its name in the IANA database. Not given: UTC.
func (v *Values) Zone(name string) *time.Location {
	text := v.One(name)
	if text == "" {
		return time.UTC
	}
	zone, err := time.LoadLocation(text)
	if err != nil || text == "Local" { // Local depends on the server
		v.Add(name, "is not a time zone; use a name such as Asia/Shanghai")
		return time.UTC
	}
	return zone
}

// Moment reads a time or a date, which is the beginning of that day in the zone. It returns nil if it is not
// given.
func (v *Values) Moment(name string, zone *time.Location) *int64 {
	text := v.One(name)
	if text == "" {
		return nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		return new(store.LocalTime(day.Year(), day.Month(), day.Day(), 0, 0, zone).UnixMilli())
	}
	ms, ok := v.Time(text)
	if !ok {
		v.Add(name, `must be a date, such as "2026-11-21", or an RFC 3339 time`)
		return nil
	}
	return &ms
}

// SpanOf returns the time range between two times, and what is wrong with its beginning, or "". Without to it
// ends at end.
func SpanOf(from, to *int64, end int64) (s Span, wrong string) {
	if to != nil {
		end = *to
	}
	switch {
	case from == nil:
		return Span{end, end}, Needed
	case *from > end:
		return Span{end, end}, Unordered
	}
	return Span{*from, end}, ""
}

const (
	// MaxGroups is the maximum number of groups of a reconciliation. MaxDays is the maximum number of days if
	// the groups are days.
	MaxGroups = 10_000
	MaxDays   = 1000
)

// Total adds up the counts of all groups.
func Total(groups []store.Reconciliation) (total store.Reconciliation) {
	for i := range groups {
		b := &groups[i]
		total.Accepted += b.Accepted
		total.Succeeded += b.Succeeded
		total.Dead += b.Dead
		total.Canceled += b.Canceled
		total.Open += b.Open
	}
	return total
}
