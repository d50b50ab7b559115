package relay

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

const (
	// maxParked is how many rows may be parked before the source is read no further. The page that parks the
	// last ones may exceed it.
	maxParked = 100
	parkFor   = time.Minute
	// parkedKnown is how long after its time a row is known as one that was parked, so that it is not taken
	// for one that was committed late.
	parkedKnown = 5 * time.Minute
)

// parked are rows that are left alone for parkFor: each alone made the dispatcher fail, or could not be moved
// or removed. They hold no mark back, so other rows pass them. Later a window or full scan finds them.
type parked map[source.Key]parkedRow

type parkedRow struct{ until, since time.Time }

// add parks a row that waits since a time.
func (p parked) add(key source.Key, now, since time.Time) {
	p[key] = parkedRow{until: now.Add(parkFor), since: since}
}

// has reports whether a row is parked now.
func (p parked) has(key source.Key, now time.Time) bool { return now.Before(p[key].until) }

// count returns how many rows are parked now.
func (p parked) count(now time.Time) int {
	n := 0
	for _, row := range p {
		if now.Before(row.until) {
			n++
		}
	}
	return n
}

// expire forgets rows whose time is long over, and returns how many are parked now.
func (p parked) expire(now time.Time) int {
	for key, row := range p {
		if now.Sub(row.until) > parkedKnown {
			delete(p, key)
		}
	}
	return p.count(now)
}

// oldest returns since when the oldest parked row waits; zero: none is parked.
func (p parked) oldest() (t time.Time) {
	for _, row := range p {
		if time.Now().Before(row.until) {
			t = earlier(t, row.since)
		}
	}
	return t
}

// earlier returns the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
