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

// An IDs makes ULIDs that grow within this process, also within one millisecond. The zero value is ready.
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
		// The entropy of one millisecond is used up; another start is as good.
		s.entropy = ulid.Monotonic(rand.Reader, 0)
		id = ulid.MustNew(ulid.Timestamp(at), s.entropy)
	}
	return id.String()
}

// NewToken returns 22 characters that nobody has used: the token of a claim, the name of a process.
func NewToken() string {
	var b [16]byte
	binary.NativeEndian.PutUint64(b[:8], mathrand.Uint64())
	binary.NativeEndian.PutUint64(b[8:], mathrand.Uint64())
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// ShortHash returns 16 characters of [A-Za-z0-9_-] for the parts.
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

// TimeOf returns the time of Unix milliseconds.
func TimeOf(ms int64) time.Time { return time.UnixMilli(ms) }

func Instant(ms int64) string { return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
