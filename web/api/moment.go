package api

import "time"

// zone returns a time zone by its name in the IANA database; none: UTC.
func (q *query) zone(name string) *time.Location {
	s := q.one(name)
	if s == "" {
		return time.UTC
	}
	zone, err := time.LoadLocation(s)
	if err != nil || s == "Local" { // which is the machine's, and means something else on the next one
		q.add(name, "is not a time zone, such as Asia/Shanghai")
		return time.UTC
	}
	return zone
}

// moment returns a time in Unix milliseconds, or nil. A date is the beginning of that day in the zone.
func (q *query) moment(name string, zone *time.Location) *int64 {
	s := q.one(name)
	if s == "" {
		return nil
	}
	if day, err := time.Parse(time.DateOnly, s); err == nil {
		// Where clocks are put forward at midnight the day begins later, and Date says when.
		return new(time.Date(day.Year(), day.Month(), day.Day(), 0, 0, 0, 0, zone).UnixMilli())
	}
	ms, ok := parseQueryTime(s)
	if !ok {
		q.add(name, `must be a date, such as "2026-11-21", or a time as RFC 3339 writes it`)
		return nil
	}
	return &ms
}

// moment writes a time, also the one that instant writes as none.
func (o *jsonObject) moment(name string, ms int64) {
	o.key(name)
	o.b = append(appendTime(append(o.b, '"'), ms), '"')
}
