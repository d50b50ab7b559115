package clock

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// An IDs generates ULIDs that increase within this process, even within one millisecond. The zero value is
// ready.
type IDs struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

// New returns a new bare ULID for the time.
func (s *IDs) New(at time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(rand.Reader, 0)
	}
	id, err := ulid.New(ulid.Timestamp(at), s.entropy)
	if err != nil {
		// The monotonic entropy of this millisecond has overflowed. Start again at a random value.
		s.entropy = ulid.Monotonic(rand.Reader, 0)
		id = ulid.MustNew(ulid.Timestamp(at), s.entropy)
	}
	return id.String()
}

// NewToken returns 22 random characters, unique among all processes: the token of a claim, the name of a
// process.
func NewToken() string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], mathrand.Uint64())
	binary.NativeEndian.PutUint64(b[8:], mathrand.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ShortHash returns a hash of the parts as 16 characters of [A-Za-z0-9_-].
func ShortHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write([]byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:12])
}

// TimeOf converts Unix milliseconds.
func TimeOf(ms int64) time.Time { return time.UnixMilli(ms) }

// Instant formats Unix milliseconds as UTC, as in 2026-01-31T08:30:00.000Z.
func Instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
