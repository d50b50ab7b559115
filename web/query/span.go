package query

import (
	"time"
	_ "time/tzdata" // an image that has nothing but the program knows no zones

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Span is a span of time, From <= t < To, in Unix milliseconds.
type Span struct{ From, To int64 }

// Zone returns a time zone by its name in the IANA database; none: UTC.
func (v *Values) Zone(name string) *time.Location {
	text := v.One(name)
	if text == "" {
		return time.UTC
	}
	zone, err := time.LoadLocation(text)
	if err != nil || text == "Local" { // Local is the server's, and means something else on the next one
		v.Add(name, "is not a time zone, such as Asia/Shanghai")
		return time.UTC
	}
	return zone
}

// Moment returns a moment, or nil where it is not given. A date is the beginning of that day in the zone.
func (v *Values) Moment(name string, zone *time.Location) *int64 {
	text := v.One(name)
	if text == "" {
		return nil
	}
	if day, err := time.Parse(time.DateOnly, text); err == nil {
		// Where clocks are put forward at midnight the day begins later, and Date says when.
		return new(time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone).UnixMilli())
	}
	ms, ok := v.Time(text)
	if !ok {
		v.Add(name, `must be a date, such as "2026-11-21", or a time as RFC 3339 writes it`)
		return nil
	}
	return &ms
}

// SpanOf returns the span between two moments, and what is wrong with its beginning, or nothing. It ends at
// end where no end is given.
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
	// MaxGroups is the most groups of books that are counted, MaxDays the most days that they are kept by.
	MaxGroups = 10_000
	MaxDays   = 1000
)

// Total adds books up.
func Total(books []store.Reconciliation) (total store.Reconciliation) {
	for i := range books {
		b := &books[i]
		total.Accepted += b.Accepted
		total.Succeeded += b.Succeeded
		total.Dead += b.Dead
		total.Canceled += b.Canceled
		total.Open += b.Open
	}
	return total
}
