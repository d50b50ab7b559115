package outbound

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Request is one attempt to make.
type Request struct {
	// ID is the callback's id with its prefix and is sent as webhook-id. Number is sent as webhook-attempt.
	ID     string
	Number int

	URL         string
	Method      string
	Headers     []store.Header
	ContentType string
	Body        []byte

	// Timeout bounds the whole attempt, from the call of Send to the last byte read. Zero means
	// DefaultTimeout.
	Timeout time.Duration
	Success store.Success
	// Poll means that Success.Rule is a poll rule as rule.ParsePoll returns it. Success.Name is then its
	// display name; empty means "until".
	Poll bool
	// Signer is a signer's name, or its JSON text as sign.Parse returns it. Empty means the default signer if
	// there are secrets, else no signer.
	Signer string
	// Secrets are the secrets that sign, the current one first. During a rotation the previous one follows. A
	// signer that signs needs at least one.
	Secrets []sign.Secret
	// Traceparent is the header of that name. Empty: the request has a new trace, which is not sampled.
	Traceparent string
	// Fresh makes the attempt open a new connection instead of using an idle one.
	Fresh bool
}

// A Response is the result of an attempt. It is complete, however the attempt ended.
type Response struct {
	Class   store.Class
	Outcome store.AttemptOutcome
	// Charged means that the attempt counts (SPEC: it ended with an answer, or with an error while this
	// machine could reach the target). An uncharged attempt that may have been sent has outcome unknown.
	Charged bool
	// Stale means that a kept-alive connection closed before the first byte of the answer. The attempt is
	// uncharged. The caller retries it once with Fresh, and a Fresh attempt is never stale.
	Stale bool
	// Answered means that an HTTP status was received. TimedOut means that the timeout ended the attempt.
	// Both are signals for the lane.
	Answered, TimedOut bool
	// LocalFailure means that this machine failed: no name server answers, or it has no file descriptors. The
	// caller diverts the callback and does not charge the attempt.
	LocalFailure bool
	// Permanent means that the rule's permanent_if is true, with class rejected. No further attempt can
	// succeed.
	Permanent bool
	// DeferAfter is the minimum wait if the receiver is busy (class receiver_busy, uncharged). MaxDefers is
	// how many such attempts are not charged. Both are zero for every other class.
	//
	// With StateHold, DeferAfter is the wait of the poll: the answer's Retry-After, uncapped, or 60 s without
	// a valid one.
	DeferAfter time.Duration
	MaxDefers  int
	// PollState is what a poll learned from the answer. It is empty for a notification and if nothing could
	// be checked. MaxErrors is the error budget of the poll rule: how many errors in a row are tolerated. It
	// is set whenever the poll rule is valid, however the attempt ended, and else zero.
	PollState rule.PollState
	MaxErrors int

	Status int
	// Error is one line for people, without secrets. It is empty if an answer was received.
	Error     string
	StartedAt time.Time
	EndedAt   time.Time
	Timings   store.Timings

	RequestHeaders    []store.Header
	ResponseHeaders   []store.Header
	ResponseBody      string
	ResponseTruncated bool
	// Rule explains the check: what was expected and what was found. It is nil without an answer, and for a
	// success that only the status decided. An answer of a poll always has it.
	Rule *store.Rule
	// KeyID has the IDs of the secrets that signed, separated by a comma. It is empty if the request was not
	// signed or the secrets have no ID.
	KeyID string
	// RetryAfter is the wait that a 429, 503 or 423 asks for, or any answer with StateHold. It is uncapped
	// and not negative. Zero means no valid wait.
	RetryAfter time.Duration
	// Location is the Location header of a redirect, for the error text.
	Location string
}
