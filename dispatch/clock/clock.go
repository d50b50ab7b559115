// Package clock is the one clock that decides, the index's, as far as this process knows it, and makes ids
// and tokens.
//
// Before the first reply of the index it is the clock of this machine. It asks nobody: its owner passes
// replies on.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock is the index's clock as far as this process knows it: what the best reply of late said, and the
// time that has passed since by this process's monotonic clock. What this machine's wall clock says does not
// matter after the first reply. Before it, and in the zero value, the clock is this machine's.
type Clock struct {
	Sample atomic.Pointer[sample]
	// Jumped is told of each jump of the index's clock, by how much; nil: nobody is. It is set before the
	// first reply.
	Jumped func(by time.Duration)

	mu    sync.Mutex
	rtt   time.Duration
	taken time.Time
}

// A sample says that it was index by the index's clock when it was here by this process's.
type sample struct {
	here  time.Time // with a monotonic reading
	index time.Time // without one
	// within is by how much it may have been earlier by the index's clock.
	within time.Duration
}

const (
	// sampleAge is how long a sample with a short round trip is preferred to a newer one with a longer round
	// trip.
	sampleAge = 10 * time.Second
	// jumpSize is by how much a reply must differ from what was expected before the index's clock has jumped.
	// What is less is drift, or the error of a sample.
	jumpSize = 5 * time.Second
)

// Observe takes the index's time from a reply that was asked for at sent and has just come.
func (c *Clock) Observe(index int64, sent time.Time) {
	if index == 0 {
		return
	}
	if by := c.take(index, sent, time.Now()); by != 0 && c.Jumped != nil {
		c.Jumped(by)
	}
}

// take takes a reply's time over if it is better than what is known, and returns by how much the index's
// clock has jumped.
func (c *Clock) take(index int64, sent, now time.Time) (jump time.Duration) {
	rtt := now.Sub(sent)
	// The reply's time is a whole millisecond cut down; the clock read it somewhere within the round trip.
	here, then := sent.Add(rtt/2), time.UnixMilli(index).Add(500*time.Microsecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.Sample.Load(); last != nil {
		off := then.Sub(c.At(here))
		switch {
		case off.Abs() > jumpSize+rtt/2:
			jump = off // It is followed at once: what was known is of another clock.
		case rtt > c.rtt && now.Sub(c.taken) < sampleAge:
			return 0
		}
	}
	c.rtt, c.taken = rtt, now
	// An offset smaller than what the sample can tell apart is none.
	within := rtt/2 + 500*time.Microsecond
	if wall := here.Round(0); then.Sub(wall).Abs() <= rtt/2+time.Millisecond {
		then, within = wall, 0
	}
	c.Sample.Store(&sample{here: here, index: then, within: within})
	return jump
}

// At turns a time of this process into one of the index's clock.
func (c *Clock) At(t time.Time) time.Time {
	s := c.Sample.Load()
	if s == nil {
		return t
	}
	return s.index.Add(t.Sub(s.here))
}

// Now returns the index's clock in Unix milliseconds.
func (c *Clock) Now() int64 { return c.At(time.Now()).UnixMilli() }

// Until returns how long it is until that time, in Unix milliseconds, has surely come by the index's clock.
func (c *Clock) Until(at int64) time.Duration {
	now := time.Now()
	wait := time.UnixMilli(at).Sub(c.At(now))
	if s := c.Sample.Load(); s != nil {
		wait += s.within
	}
	return wait
}

// Offset returns the index's clock less this machine's wall clock.
func (c *Clock) Offset() time.Duration {
	now := time.Now()
	return c.At(now).Sub(now.Round(0))
}
