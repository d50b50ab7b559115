package accept

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Submission is a callback as a caller asks for it, decoded but not yet judged: Accept validates every field
// and answers with a *store.InvalidError that names each wrong one as the API spells it.
type Submission struct {
	// URL, or Endpoint: an endpoint's id or external id; or both, if the endpoint allows it.
	URL      string
	Endpoint string
	// Method is upper-cased by Accept; empty means POST.
	Method  string
	Headers []store.Header
	Topic   string
	Ref     string

	// Body is nil when the caller gave none. ContentType is the caller's; BodyField names where the body stood ("payload",
	// "body" or "body_base64"), which decides the default content type.
	Body        []byte
	BodyField   string
	ContentType string

	// Choice is how it is sent. What it leaves open is its endpoint's to say, then its project's.
	Choice

	// DueAt in Unix milliseconds or Delay, at most one; nil: now.
	DueAt     *int64
	Delay     *time.Duration
	ExpiresIn *time.Duration

	LockKey string
	// Order is "" or "strict".
	Order     string
	Lane      string
	Supersede bool
	Version   *int64
	// StartAttempt is 1 for the first; 0 means 1.
	StartAttempt int
	Labels       map[string]string

	// IdempotencyKey is empty for none; Route and Fingerprint come with it. Fingerprint is a hash of the request's bytes.
	IdempotencyKey string
	Route          string
	Fingerprint    []byte

	// Invalid are fields that could not even be decoded; Accept adds its own findings to them.
	Invalid []store.FieldError
}

// A Receipt is what became of one submission: a callback, or why there is none.
type Receipt struct {
	Callback store.Callback
	// Replayed: the idempotency key was known with the same request, and Callback is the first one.
	Replayed bool
	// Err is nil, a *store.InvalidError, ErrIdempotencyMismatch or ErrIdempotencyInProgress of package store.
	Err error
}
