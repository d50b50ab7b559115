package clock

import (
	"testing"
	"time"
)

// about reports whether two durations differ by less than 20 ms.
func about(a, b time.Duration) bool { return (a - b).Abs() < 20*time.Millisecond }

func TestClockTakesTheBestSample(t *testing.T) {
	t.Parallel()
	c := Clock{Jumped: func(by time.Duration) { t.Errorf("a jump by %s", by) }}
	now := time.Now()
	c.Observe(now.Add(time.Hour).UnixMilli(), now)
	if got := c.Offset(); !about(got, time.Hour) {
		t.Errorf("offset %v, want about an hour", got)
	}
	// A sample with a longer round trip does not replace a better one, and a reply without a time is ignored.
	c.Observe(now.Add(time.Hour+2*time.Second).UnixMilli(), now.Add(-time.Second))
	c.Observe(0, now)
	if got := c.Offset(); !about(got, time.Hour) {
		t.Errorf("offset %v: a worse sample replaced a better one", got)
	}
	// An index on the same clock has no offset, so no due time is off by a millisecond.
	for _, rtt := range []time.Duration{0, 80 * time.Microsecond, 3 * time.Millisecond,
		700 * time.Millisecond} {
		for read := range 5 {
			var same Clock
			index := now.Add(rtt * time.Duration(read) / 4)
			same.adopt(index.UnixMilli(), now, now.Add(rtt))
			if got, want := same.At(now.Add(time.Second)), now.Add(time.Second); !got.Equal(want) {
				t.Errorf("one clock, read %s into a round trip of %s: the result is %s at %s",
					index.Sub(now), rtt, got, want)
			}
		}
	}
}

// A jump replaces the sample at once, however good it was, and is reported. Drift and the first reply are no
// jumps.
func TestClockFollowsJumpsAtOnce(t *testing.T) {
	t.Parallel()
	for _, by := range []time.Duration{time.Hour, -time.Hour, 6 * time.Second, -6 * time.Second} {
		var jumps []time.Duration
		c := Clock{Jumped: func(by time.Duration) { jumps = append(jumps, by) }}
		start := time.Now()
		reply := func(after, rtt, off time.Duration) {
			sent := start.Add(after)
			if jump := c.adopt(sent.Add(rtt/2+off).UnixMilli(), sent, sent.Add(rtt)); jump != 0 {
				c.Jumped(jump)
			}
		}
		const behind = -10 * time.Minute // the index's clock relative to this process's; no jump
		reply(0, 2*time.Millisecond, behind)
		reply(time.Second, 3*time.Millisecond, behind+4*time.Second)
		reply(2*time.Second, time.Second, behind+by)
		reply(3*time.Second, 2*time.Millisecond, behind+by)
		reply(4*time.Second, time.Millisecond, behind+by)
		if len(jumps) != 1 || !about(jumps[0], by) {
			t.Errorf("a jump by %s was reported as %v", by, jumps)
		}
		if got := c.At(start).Sub(start.Round(0)); !about(got, behind+by) {
			t.Errorf("after a jump by %s the offset is %s", by, got)
		}
	}
	// A late reply is no jump: its time may have been read long before it arrived.
	c := Clock{}
	start := time.Now()
	c.adopt(start.UnixMilli(), start, start)
	if jump := c.adopt(start.UnixMilli(), start, start.Add(9*time.Second)); jump != 0 {
		t.Errorf("a late reply counts as a jump by %s", jump)
	}
}

// Between replies the clock advances with the monotonic clock, whatever happens to the wall clock.
func TestClockDoesNotNeedTheWallClock(t *testing.T) {
	t.Parallel()
	var c Clock
	sent := time.Now()
	c.Observe(sent.Add(time.Hour).UnixMilli(), sent)
	s := c.Sample.Load()
	if s.here.Round(0) == s.here || s.index.Round(0) != s.index {
		t.Fatal("the sample lost its monotonic reading, or kept one that it must not have")
	}
	if got := c.At(sent.Add(time.Minute)); !about(got.Sub(sent.Round(0)), time.Hour+time.Minute) {
		t.Errorf("a minute later it is %s after %s", got.Sub(sent), sent)
	}
}

func TestIDsGrow(t *testing.T) {
	t.Parallel()
	var s IDs
	at := time.Now()
	last := ""
	for range 10_000 {
		id := s.New(at)
		if len(id) != 26 || id <= last {
			t.Fatalf("%q after %q", id, last)
		}
		last = id
	}
}
