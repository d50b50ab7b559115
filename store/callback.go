package store

import "time"

// DefaultProject is the project that exists from the first migration on.
const DefaultProject = "default"

// A Callback is one HTTP obligation that is attempted until it is terminal.
type Callback struct {
	// ID is a bare ULID. Project scopes everything that is read or written by a caller.
	ID      string
	Project string
	Kind    Kind
	// EndpointID is empty for plain URLs.
	EndpointID string
	// URL is where the next attempt goes, or the last one went. Follows: that is the endpoint's address,
	// whatever it is at the attempt.
	URL     string
	Follows bool
	Method  string
	Headers []Header
	Topic   string
	// Ref is the business reference, searchable and not unique. LockKey keeps two callbacks from being
	// attempted at the same time; both may be empty.
	Ref     string
	LockKey string
	// Strict: among the callbacks with its LockKey that are strict too it is attempted only when all that
	// were accepted before it are terminal.
	Strict bool
	// Lane is the isolation key as a caller knows it, LaneID the number that SQL gave it.
	Lane   string
	LaneID int64
	Labels map[string]string

	Policy  Policy
	Success Success
	// Signer is a signer's name, or a JSON object with its options. Callbacks to an endpoint are signed as it
	// says: theirs is empty.
	Signer string

	// State is Scheduled or terminal: see StateAt. Reason is empty while it is open.
	State  State
	Reason Reason
	// DueAt is when the next attempt may start; zero when terminal. FirstDueAt is what deadline and expiry
	// run from.
	DueAt      int64
	FirstDueAt int64
	// ExpiresAt ends an open callback as Dead, Expired; zero: never.
	ExpiresAt int64
	// AttemptCount is the charged attempts, DivertCount the diverts, AttemptSeq the attempt rows (the last
	// number).
	AttemptCount int
	DivertCount  int
	AttemptSeq   int
	// LadderBase is the AttemptCount at which the present ladder began: 0; 1 - start_attempt where others
	// made the first attempts (so it may be negative); what AttemptCount was when the ladder was restarted.
	// The position in the ladder is AttemptCount - LadderBase.
	LadderBase int
	// Trigger of the next attempt.
	Trigger Trigger
	// ResumeState and ResumeReason are what a manual single retry of a terminal callback falls back to if it
	// fails.
	ResumeState  State
	ResumeReason Reason
	// CancelRequested: an attempt was in flight when the callback was canceled; unless it succeeds, it ends
	// Canceled.
	CancelRequested bool
	// FreeRetry: the last attempt died on a kept-alive connection and was not charged; the next one is,
	// however it ends, and uses a fresh connection.
	FreeRetry bool

	LastStatus int
	LastClass  Class
	// PollErrors is how many polls in a row have ended in an error; always zero for what is no poll.
	PollErrors int

	// Version is the caller's own, for supersede; nil: none.
	Version *int64

	CreatedAt  int64
	UpdatedAt  int64
	FinishedAt int64

	// Fence grows by one with every claim stamp; a result commits only with the fence of its claim.
	// ClaimUntil is when the present claim ends by itself; zero: not claimed. ClaimsWithoutResult is the claims in a
	// row that ended without a result, the present one included.
	Fence               int64
	ClaimToken          string
	ClaimUntil          int64
	ClaimsWithoutResult int

	// PayloadID finds the body; empty when there is none. PayloadPurged: there was one, and retention has
	// ended.
	PayloadID     string
	ContentType   string
	PayloadPurged bool
}

// StateAt returns the state as a caller sees it at now: Attempting while a claim is alive, else State.
func (c *Callback) StateAt(now int64) State {
	if c.State == Scheduled && c.ClaimUntil > now {
		return Attempting
	}
	return c.State
}

// MaxAttempts returns how many charged attempts the callback can reach, all ladders counted.
func (c *Callback) MaxAttempts() int {
	return c.LadderBase + len(c.Policy.Tiers) + 1
}

// A Policy says when to try again.
type Policy struct {
	// Name is the preset's, or empty for one given whole.
	Name string `json:"name,omitempty"`
	// Tiers: tier i is the wait after failed attempt i. Empty: a single attempt.
	Tiers []time.Duration `json:"tiers"`
	// RepeatLast goes on with the last tier until Deadline.
	RepeatLast bool `json:"repeat_last,omitempty"`
	// Deadline runs from the first due time; no attempt starts after it. Zero: none.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Timeout of one attempt, 100 ms to 60 s.
	Timeout time.Duration `json:"timeout"`
	// Jitter lengthens each wait by up to this part of it: wait × (1 + U(0, Jitter)). 0 to 1.
	Jitter float64 `json:"jitter,omitempty"`
	// RetryAfterCap bounds what a receiver's Retry-After may ask for.
	RetryAfterCap time.Duration `json:"retry_after_cap"`
	// OverloadFloor is the least wait after a 429 or a time-out.
	OverloadFloor time.Duration `json:"overload_floor,omitempty"`
	// StopOn are HTTP statuses that end the callback: 410 as Gone, others as Rejected.
	StopOn []int `json:"stop_on,omitempty"`
}

// A Success is the rule that decides whether an answer counts: a preset by its name, or one given whole,
// which a project may have given a name too.
type Success struct {
	Name string `json:"name"`
	// Rule is JSON, as package outbound reads it; empty: the preset of that name.
	Rule JSONText `json:"rule,omitempty"`
}

// A Trigger says why an attempt was made.
type Trigger string

// The triggers of attempts.
const (
	BySchedule Trigger = "schedule"
	Manual     Trigger = "manual"
)

// An AttemptOutcome says what is known of an attempt. Unknown ones may have reached the receiver.
type AttemptOutcome string

// The outcomes of attempts.
const (
	AttemptSucceeded AttemptOutcome = "succeeded"
	AttemptFailed    AttemptOutcome = "failed"
	AttemptUnknown   AttemptOutcome = "unknown"
)

// Timings are the parts of an attempt in milliseconds, with fractions. A part that did not happen is zero.
type Timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// A Rule says what an answer had to be and what it was.
type Rule struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Saw      string `json:"saw"`
}

// An Attempt is one try, numbered from 1 within its callback.
type Attempt struct {
	CallbackID string
	Project    string
	// Number is given by the store when the result commits.
	Number    int
	Trigger   Trigger
	Outcome   AttemptOutcome
	Charged   bool
	Class     Class
	Status    int
	Error     string
	StartedAt int64
	EndedAt   int64
	DueAt     int64
	// Lateness is StartedAt - DueAt in milliseconds, with fractions.
	Lateness float64
	Timings  Timings
	// RequestHeaders are masked; ResponseHeaders are the chosen ones.
	RequestHeaders  []Header
	ResponseHeaders []Header
	// ResponseBody is at most 4 KiB of sanitised text.
	ResponseBody      string
	ResponseTruncated bool
	Rule              *Rule
	// NextDueAt is when the next attempt was scheduled; zero: none.
	NextDueAt int64
	Fence     int64
	// Stale: the result came after its claim had been lost, and had no effect. It is not Charged.
	Stale bool
	// KeyID names the secret that signed; empty: unsigned.
	KeyID string
	// URL is where it went, if that was not the callback's own address; it is shown masked.
	URL string
}

// A Payload is a body apart from its callback's row.
type Payload struct {
	ID          string
	ContentType string
	Body        []byte
	// Masked: Body is shown without the middle of the card numbers that it has.
	Masked bool
}

// A CancelResult says what a cancel did.
type CancelResult string

// The results of a cancel.
const (
	CancelDone            CancelResult = "canceled"
	CancelTooLate         CancelResult = "too_late"
	CancelAlreadyTerminal CancelResult = "already_terminal"
)

// A CanceledCallback is one callback of a cancel.
type CanceledCallback struct {
	Result   CancelResult
	Callback Callback
}

// A Ladder says how a terminal callback is retried.
type Ladder string

// The ladders of a retry.
const (
	// Once: one attempt; if it fails, state and reason stay as they were.
	Once Ladder = "once"
	// Restart: a new ladder from tier 1.
	Restart Ladder = "restart"
)

// A Retry asks for an attempt now.
type Retry struct {
	Ladder Ladder
	// URL replaces the address when it is not empty, as Callback.MoveTo does.
	URL string
	Now int64
}
