package dispatch

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
)

// A clock is the index's clock as far as this process knows it: its own clock plus the offset that replies have shown.
// The zero value has no offset.
type clock struct {
	// offset in nanoseconds, and the round trip of the sample that it came from.
	offset atomic.Int64
	mu     sync.Mutex
	rtt    time.Duration
	taken  time.Time
}

// sampleAge is how long a sample with a short round trip is preferred to a newer one with a longer round trip.
const sampleAge = 10 * time.Second

// observe takes the index's time from a reply that was asked for at sent and has just come.
func (c *clock) observe(index int64, sent time.Time) {
	if index == 0 {
		return
	}
	now := time.Now()
	rtt := now.Sub(sent)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.taken.IsZero() && rtt > c.rtt && now.Sub(c.taken) < sampleAge {
		return
	}
	c.rtt, c.taken = rtt, now
	// The reply's time is a whole millisecond cut down; the clock read it somewhere within the round trip. An offset
	// smaller than what the sample can tell apart is none.
	offset := time.UnixMilli(index).Add(500 * time.Microsecond).Sub(sent.Add(rtt / 2))
	if offset.Abs() <= rtt/2+time.Millisecond {
		offset = 0
	}
	c.offset.Store(int64(offset))
}

// at turns a time of this process into one of the index's clock.
func (c *clock) at(t time.Time) time.Time { return t.Add(time.Duration(c.offset.Load())) }

// now returns the index's clock in Unix milliseconds.
func (c *clock) now() int64 { return c.at(time.Now()).UnixMilli() }

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
