package dispatch

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Submission is a callback as a caller asks for it, decoded but not yet judged: Engine.Accept validates every field
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

// A RetryRequest asks for an attempt now.
type RetryRequest struct {
	// Ladder is store.Once or store.Restart; empty means store.Once.
	Ladder store.Ladder
	// URL replaces the callback's address when it is not empty.
	URL string
}

// A Drift is what differs between SQL and the index, seen twice, two seconds apart. All zero: none.
type Drift struct {
	// Rows is how many open rows were compared, Items how many items of the index.
	Rows, Items int
	// Beyond is how many of the rows are beyond the horizon, so that the index need not hold them.
	Beyond int
	// Missing are open rows that the index does not hold; Late, those that it holds for a later time than SQL says.
	Missing, Late int
	// Extra are items of the index whose row is not open: Unknown, which SQL has no row of, and Ended, whose row is terminal.
	Extra, Unknown, Ended int
	// Of each, at most 100 ids are listed unless all were asked for; all are counted.
	MissingIDs, LateIDs, ExtraIDs, UnknownIDs, EndedIDs []string
	// Generation is what SQL says that the index must have. IndexGeneration is what it has; they differ only while a held
	// process leaves an index alone.
	Generation, IndexGeneration int64
}

// Clean says whether nothing differs.
func (d Drift) Clean() bool {
	return d.Missing == 0 && d.Late == 0 && d.Extra == 0 && d.Generation == d.IndexGeneration
}

// A RebuildReport is what a rebuild did, or with a dry run would do.
type RebuildReport struct {
	DryRun bool
	// Open is the open rows; Claimed, those of them whose claim is alive, put back as leased.
	Open, Claimed int
	Generation    int64
	Took          time.Duration
}

// Health is what /readyz answers from.
type Health struct {
	// Ready is false when SQL cannot commit, or while draining. Why says which.
	Ready bool
	Why   string
	// Degraded names what is lost without making the process unready: "redis" (the index does not answer, or
	// is being rebuilt), "redis_unsafe" (its server may drop parts of it), "secrets" (some cannot be
	// decrypted with the master keys of this process), "held" (sending is stopped).
	Degraded []string
}
