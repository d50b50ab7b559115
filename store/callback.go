package store

import (
	"strings"
	"time"
)

// DefaultProject is the project that exists from the first migration on.
const DefaultProject = "default"

// OwnTopics begins the topics of the program's own messages: operational events, alerts and tests. Callers
// cannot use such topics.
const OwnTopics = "dispatcher."

// IsOwnTopic reports whether a topic is reserved for the program, in whatever case it is written.
func IsOwnTopic(topic string) bool {
	return len(topic) >= len(OwnTopics) && strings.EqualFold(topic[:len(OwnTopics)], OwnTopics)
}

// A Callback is one HTTP request that must reach its receiver. The dispatcher attempts it until it is
// terminal.
type Callback struct {
	// ID is a bare ULID. Project scopes all reads and writes of callers.
	ID      string
	Project string
	Kind    Kind
	// EndpointID is a bare ULID, empty for a plain URL.
	EndpointID string
	// URL is the target of the next attempt, or of the last one.
	URL     string
	Method  string
	Headers []Header
	Topic   string
	// Ref is the business reference, searchable and not unique. Callbacks with the same LockKey are never
	// attempted at the same time. Both may be empty.
	Ref     string
	LockKey string
	// Lane is the isolation key that callers know. LaneID is its number in SQL.
	Lane   string
	LaneID int64
	Labels map[string]string

	Policy  Policy
	Success Success
	// Signer is a signer's name, or a JSON object with its options. It is empty for callbacks to an endpoint,
	// which use the endpoint's signer.
	Signer string

	// State is Scheduled or terminal, never Attempting (see StateAt). Reason is empty while the callback is
	// open.
	State  State
	Reason Reason
	// DueAt is the earliest start of the next attempt, zero if terminal. The deadline and the expiry run from
	// FirstDueAt.
	DueAt      int64
	FirstDueAt int64
	// ExpiresAt is when an open callback ends as Dead, Expired. Zero: never.
	ExpiresAt int64
	// AttemptCount is the number of charged attempts, and DivertCount that of diverts. AttemptSeq is the
	// number of the last attempt row.
	AttemptCount int
	DivertCount  int
	AttemptSeq   int
	// LadderBase is the value of AttemptCount at which the current ladder starts. It is 0 for a new callback.
	// It is 1 - start_attempt if the sender made the first attempts itself, so it may be negative. A restart
	// sets it to AttemptCount. The position in the ladder is AttemptCount - LadderBase.
	LadderBase int
	// Since has the diverts since the last attempt, without those that only the index has counted since the
	// last claim. Nil: none. It is a pointer because few callbacks have some.
	Since *Diverts
	// Trigger is that of the next attempt.
	Trigger Trigger
	// ResumeState and ResumeReason are set by a retry with Ladder Once. The callback returns to them if that
	// attempt fails.
	ResumeState  State
	ResumeReason Reason
	// The following flags stand together, because a flag between other fields takes eight bytes of each
	// callback in memory.
	//
	// Follows: the target is the URL that the endpoint has at the time of the attempt.
	Follows bool
	// Strict: the callback waits until all strict callbacks of its LockKey that were accepted before it are
	// terminal.
	Strict bool
	// PayloadPurged: retention removed the payload.
	PayloadPurged bool
	// CancelRequested: the callback was canceled during an attempt. It ends Canceled unless that attempt
	// succeeds.
	CancelRequested bool
	// FreeRetry: the last attempt failed on a reused connection and was not charged. The next attempt uses a
	// new connection and is always charged.
	FreeRetry bool

	// LastStatus is the HTTP status of the last attempt, zero without a response. LastClass is its class.
	LastStatus int
	LastClass  Class
	// PollErrors is the number of polls in a row that ended in an error. It is zero for kind notify.
	PollErrors int

	// Version is the version that the caller gave for supersede. Nil: none.
	Version *int64

	// TraceContext is the context of the span that created the callback, or that of the caller: 16 bytes of
	// trace id, 8 of span id, and the flags (package dispatch/trace). Nil: none. Only an accept writes it;
	// the accept and the stamp return it.
	TraceContext []byte

	// CreatedBy is the bare id of the API key that created the callback, the Actor.ID of another caller,
	// "relay" for a relay in this process, or the id of a schedule or a poll with its prefix. Empty: not
	// known. Only an accept writes it, and stamps do not return it.
	CreatedBy string

	CreatedAt  int64
	UpdatedAt  int64
	FinishedAt int64

	// Fence grows by one with each claim stamp. A result takes effect only with the fence of its claim.
	// ClaimUntil is when the current claim runs out; zero: not claimed. ClaimsWithoutResult is the number of
	// claims in a row without a result, including the current one.
	Fence               int64
	ClaimToken          string
	ClaimUntil          int64
	ClaimsWithoutResult int

	// PayloadID is the id of the payload, empty without one.
	PayloadID   string
	ContentType string
}

// StateAt returns the state that callers see at now: Attempting while a claim is alive, else State.
func (c *Callback) StateAt(now int64) State {
	if c.State == Scheduled && c.ClaimUntil > now {
		return Attempting
	}
	return c.State
}

// Begun reports whether the callback was attempted, or was due for its first attempt by now.
func (c *Callback) Begun(now int64) bool { return c.AttemptSeq > 0 || c.FirstDueAt <= now }

// MaxAttempts returns the value of AttemptCount after the last attempt of the current ladder. RepeatLast may
// exceed it.
func (c *Callback) MaxAttempts() int {
	return c.LadderBase + len(c.Policy.Tiers) + 1
}

// A Policy is a retry policy.
type Policy struct {
	// Name is the preset's name, empty for a policy without a preset.
	Name string `json:"name,omitempty"`
	// Tiers are the waits between attempts: tier i follows failed attempt i. At most 100 of 0 s to 400 days.
	// Empty: a single attempt.
	Tiers []time.Duration `json:"tiers"`
	// RepeatLast repeats the last tier until Deadline.
	RepeatLast bool `json:"repeat_last,omitempty"`
	// Deadline runs from the first due time. No attempt starts after it. Zero: none.
	Deadline time.Duration `json:"deadline,omitempty"`
	// Timeout bounds one attempt, 100 ms to 60 s.
	Timeout time.Duration `json:"timeout"`
	// Jitter, from 0 to 1, lengthens each wait to wait × (1 + U(0, Jitter)).
	Jitter float64 `json:"jitter,omitempty"`
	// RetryAfterCap bounds the wait that a Retry-After header may cause.
	RetryAfterCap time.Duration `json:"retry_after_cap"`
	// OverloadFloor is the shortest wait after a 429 or a timeout. Zero: none.
	OverloadFloor time.Duration `json:"overload_floor,omitempty"`
	// StopOn lists the HTTP statuses that end a callback of kind notify: 410 as Gone, others as Rejected.
	StopOn []int `json:"stop_on,omitempty"`
}

// A Success is the rule that decides from a response whether an attempt succeeded.
type Success struct {
	// Name is the name of a preset of the program or the project. Empty: Rule has no preset.
	Name string `json:"name"`
	// Rule is the rule as JSON, read by package dispatch/outbound. Empty: the program's rule of that name, or
	// the project's own in settings such as an endpoint's.
	Rule JSONText `json:"rule,omitempty"`
}

// A Trigger is the cause of an attempt.
type Trigger string

// The triggers of attempts.
const (
	// BySchedule: the attempt was due.
	BySchedule Trigger = "schedule"
	// Manual: a person or a program asked for the attempt.
	Manual Trigger = "manual"
)

// An AttemptOutcome is the outcome of an attempt.
type AttemptOutcome string

// The outcomes of attempts.
const (
	AttemptSucceeded AttemptOutcome = "succeeded"
	AttemptFailed    AttemptOutcome = "failed"
	// AttemptUnknown: the request may have reached the receiver, but no response came.
	AttemptUnknown AttemptOutcome = "unknown"
)

// Timings are the phases of an attempt in milliseconds, with fractions. A phase that did not happen is zero.
type Timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// A Rule is the result of a success rule: the expected and the received response, as texts for people.
type Rule struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Saw      string `json:"saw"`
}

// An Attempt is one attempt of a callback.
type Attempt struct {
	CallbackID string
	Project    string
	// Number counts from 1 within the callback. The store sets it when the result commits.
	Number  int
	Trigger Trigger
	Outcome AttemptOutcome
	// Charged: the attempt counts toward AttemptCount.
	Charged bool
	Class   Class
	// Status is the HTTP status, zero without a response.
	Status    int
	Error     string
	StartedAt int64
	EndedAt   int64
	DueAt     int64
	// Lateness is StartedAt - DueAt in milliseconds, with fractions.
	Lateness float64
	Timings  Timings
	// RequestHeaders are masked. ResponseHeaders are a selection.
	RequestHeaders  []Header
	ResponseHeaders []Header
	// ResponseBody is sanitised text of at most 4 KiB. ResponseTruncated: the body was longer.
	ResponseBody      string
	ResponseTruncated bool
	Rule              *Rule
	// NextDueAt is the due time of the next attempt, as set by this result. Zero: none.
	NextDueAt int64
	Fence     int64
	// Stale: the result came after the claim was lost, so it had no effect. A stale attempt is not Charged.
	Stale bool
	// KeyID is the id of the secret that signed the request. Empty: unsigned.
	KeyID string
	// URL is the URL of the request. Mask it before display. Empty, as the store returns it: the callback's
	// own URL. Empty in a result: the URL with which the callback was accepted (Stamped.FirstURL).
	URL string
	// Diverts is the number of diverts between the attempt before and this one, as far as they are known.
	// DivertReason is that of the last one, or empty.
	Diverts      int
	DivertReason string
}

// Diverts counts diverts.
type Diverts struct {
	Times int
	// Reason is that of the last one, or empty.
	Reason string
}

// DivertsSince returns the diverts since the last attempt.
func (c *Callback) DivertsSince() Diverts {
	if c.Since == nil {
		return Diverts{}
	}
	return *c.Since
}

// AttemptTimes are the times of a callback's attempts. Zero: never.
type AttemptTimes struct {
	CallbackID string
	// ClaimedAt is the time of the last claim, EndedAt the end of the last attempt.
	ClaimedAt, EndedAt int64
}

// A Payload is the body of a callback. It is stored apart from the callback's row.
type Payload struct {
	ID          string
	ContentType string
	Body        []byte
	// Masked: card numbers in Body are masked for display.
	Masked bool
}

// A CancelResult is the result of a cancel of one callback.
type CancelResult string

// The results of a cancel.
const (
	CancelDone CancelResult = "canceled"
	// CancelTooLate: an attempt is in flight. The callback ends Canceled unless that attempt succeeds.
	CancelTooLate         CancelResult = "too_late"
	CancelAlreadyTerminal CancelResult = "already_terminal"
)

// A CanceledCallback is a callback after its cancel.
type CanceledCallback struct {
	Result   CancelResult
	Callback Callback
}

// A Ladder is the way in which a terminal callback is retried.
type Ladder string

// The ladders of a retry.
const (
	// Once makes one attempt. If it fails, the callback returns to its old state and reason.
	Once Ladder = "once"
	// Restart starts the tiers of the policy again from tier 1.
	Restart Ladder = "restart"
)

// A Retry requests an attempt now.
type Retry struct {
	Ladder Ladder
	// URL, if not empty, replaces the callback's URL (see Callback.MoveTo).
	URL string
	// Newest refuses a terminal callback that a newer version supersedes, with ErrNewerVersion.
	Newest bool
	Now    int64
}
