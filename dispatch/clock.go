package dispatch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// A clock is the index's clock as far as this process knows it: what the best reply of late said, and the time that has
// passed since by this process's monotonic clock. What this machine's wall clock says does not matter after the first reply.
// Before it, and in the zero value, the clock is this machine's.
type clock struct {
	sample atomic.Pointer[sample]
	// jumped is told of each jump of the index's clock, by how much; nil: nobody is. It is set before the first reply.
	jumped func(by time.Duration)

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
	// sampleAge is how long a sample with a short round trip is preferred to a newer one with a longer round trip.
	sampleAge = 10 * time.Second
	// jumpSize is by how much a reply must differ from what was expected before the index's clock has jumped. What is less is
	// drift, or the error of a sample.
	jumpSize = 5 * time.Second
)

// observe takes the index's time from a reply that was asked for at sent and has just come.
func (c *clock) observe(index int64, sent time.Time) {
	if index == 0 {
		return
	}
	if by := c.take(index, sent, time.Now()); by != 0 && c.jumped != nil {
		c.jumped(by)
	}
}

// take takes a reply's time over if it is better than what is known, and returns by how much the index's clock has jumped.
func (c *clock) take(index int64, sent, now time.Time) (jump time.Duration) {
	rtt := now.Sub(sent)
	// The reply's time is a whole millisecond cut down; the clock read it somewhere within the round trip.
	here, then := sent.Add(rtt/2), time.UnixMilli(index).Add(500*time.Microsecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := c.sample.Load(); last != nil {
		off := then.Sub(c.at(here))
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
	c.sample.Store(&sample{here: here, index: then, within: within})
	return jump
}

// at turns a time of this process into one of the index's clock.
func (c *clock) at(t time.Time) time.Time {
	s := c.sample.Load()
	if s == nil {
		return t
	}
	return s.index.Add(t.Sub(s.here))
}

// now returns the index's clock in Unix milliseconds.
func (c *clock) now() int64 { return c.at(time.Now()).UnixMilli() }

// until returns how long it is until that time, in Unix milliseconds, has surely come by the index's clock.
func (c *clock) until(at int64) time.Duration {
	now := time.Now()
	wait := time.UnixMilli(at).Sub(c.at(now))
	if s := c.sample.Load(); s != nil {
		wait += s.within
	}
	return wait
}

// offset returns the index's clock less this machine's wall clock.
func (c *clock) offset() time.Duration {
	now := time.Now()
	return c.at(now).Sub(now.Round(0))
}

// A clockReader is an index that tells its clock even while it is lost or closed.
type clockReader interface {
	// Clock returns the index's clock in Unix milliseconds.
	Clock(ctx context.Context) (int64, error)
}

// learnTime asks the index what time it is if no reply has told yet. Until then the clock is this machine's, which may be wrong
// by any amount: nothing that other processes rely on may be counted by it.
func (e *Engine) learnTime(ctx context.Context) error {
	reader, ok := e.o.Schedule.(clockReader)
	if !ok || e.clock.sample.Load() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	sent := time.Now()
	now, err := reader.Clock(ctx)
	if err != nil {
		return fmt.Errorf("read the index's clock: %w", err)
	}
	e.clock.observe(now, sent)
	return nil
}

// clockJumped counts a jump of the index's clock, and warns of it, once a minute at most.
func (e *Engine) clockJumped(by time.Duration) {
	e.metrics.clockJumps.Inc()
	now, last := time.Now(), e.jumpWarned.Load()
	if last != nil && now.Sub(*last) < warnEvery || !e.jumpWarned.CompareAndSwap(last, &now) {
		return
	}
	way := "forward"
	if by < 0 {
		way = "back"
	}
	e.log.Warn("the index's clock was put "+way+"; attempts in flight keep their time, due times stay as they were: "+
		"let NTP keep the time of the machines that the index runs on", "by", by.Round(time.Millisecond))
}

// An idSource makes ULIDs that grow within this process, also within one millisecond. The zero value is ready.
type idSource struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

// make returns a new bare ULID for the time.
func (s *idSource) make(at time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	id, err := ulid.New(ulid.Timestamp(at), s.entropy)
	if err != nil {
		// The entropy of one millisecond is used up; another start is as good.
		s.entropy = ulid.Monotonic(rand.Reader, 0)
		id = ulid.MustNew(ulid.Timestamp(at), s.entropy)
	}
	return id.String()
}

// newToken returns 22 characters that nobody has used: the token of a claim, the name of a process.
func newToken() string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], mathrand.Uint64())
	binary.NativeEndian.PutUint64(b[8:], mathrand.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// shortHash returns 16 characters of [A-Za-z0-9_-] for the parts.
func shortHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// timeOf returns the time of Unix milliseconds.
func timeOf(ms int64) time.Time { return time.UnixMilli(ms) }
