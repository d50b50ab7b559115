// Package clock estimates the index's clock, which decides what is due, and creates ids and tokens.
//
// Before the first reply of the index it is this machine's clock. It makes no calls: its owner passes the
// time of each reply to Observe.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock estimates the index's clock: the time of the best recent reply plus the time that passed since by
// this process's monotonic clock. After the first reply, changes of this machine's wall clock have no effect.
// Before it, and in the zero value, it is this machine's clock. It is safe for concurrent use.
type Clock struct {
	// Sample is the reply that the clock is based on; nil before the first reply.
	Sample atomic.Pointer[sample]
	// Jumped is called for each jump of the index's clock with its size; nil: no call. Set it before the
	// first Observe.
	Jumped func(by time.Duration)

	mu    sync.Mutex
	rtt   time.Duration
	taken time.Time
}

// A sample pairs two readings of the same moment: index by the index's clock, here by this process's.
type sample struct {
	here  time.Time // with a monotonic reading
	index time.Time // without one
	// within is how much earlier the index's clock may have been.
	within time.Duration
}

const (
	// sampleAge is how long a sample with a short round trip is preferred to a newer one with a longer one.
	sampleAge = 10 * time.Second
	// jumpSize is the least difference between a reply and the estimate that counts as a jump. A smaller one
	// is drift, or the error of a sample.
	jumpSize = 5 * time.Second
)

// Observe adopts the time of a reply to a request that was sent at sent and has just arrived. index is in
// Unix milliseconds; zero is ignored.
func (c *Clock) Observe(index int64, sent time.Time) {
	if index == 0 {
		return
	}
	if by := c.adopt(index, sent, time.Now()); by != 0 && c.Jumped != nil {
		c.Jumped(by)
	}
}

// adopt makes a reply's time the new sample if it is better than the present one. It returns the size of a
// jump; zero: none.
func (c *Clock) adopt(index int64, sent, now time.Time) (jump time.Duration) {
	rtt := now.Sub(sent)
	// The index read its clock somewhere within the round trip, and rounded down to a millisecond.
	here, then := sent.Add(rtt/2), time.UnixMilli(index).Add(500*time.Microsecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.Sample.Load(); last != nil {
		off := then.Sub(c.At(here))
		switch {
		case off.Abs() > jumpSize+rtt/2:
			jump = off // the old sample describes another clock, so the new one replaces it
		case rtt > c.rtt && now.Sub(c.taken) < sampleAge:
			return 0
		}
	}
	c.rtt, c.taken = rtt, now
	// An offset that is smaller than the error of the sample counts as zero.
	within := rtt/2 + 500*time.Microsecond
	if wall := here.Round(0); then.Sub(wall).Abs() <= rtt/2+time.Millisecond {
		then, within = wall, 0
	}
	c.Sample.Store(&sample{here: here, index: then, within: within})
	return jump
}

// At converts a time of this process to the index's clock.
func (c *Clock) At(t time.Time) time.Time {
	s := c.Sample.Load()
	if s == nil {
		return t
	}
	return s.index.Add(t.Sub(s.here))
}

// Now returns the index's clock in Unix milliseconds.
func (c *Clock) Now() int64 { return c.At(time.Now()).UnixMilli() }

// Until returns how long to wait until a time, in Unix milliseconds, has certainly come by the index's clock.
func (c *Clock) Until(at int64) time.Duration {
	now := time.Now()
	wait := time.UnixMilli(at).Sub(c.At(now))
	if s := c.Sample.Load(); s != nil {
		wait += s.within
	}
	return wait
}

// Offset returns the index's clock minus this machine's wall clock.
func (c *Clock) Offset() time.Duration {
	now := time.Now()
	return c.At(now).Sub(now.Round(0))
}
