package outbound

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Request is one attempt that is to be made.
type Request struct {
	// ID is the callback's id with its prefix: the webhook-id. Number is sent as webhook-attempt.
	ID     string
	Number int

	URL         string
	Method      string
	Headers     []store.Header
	ContentType string
	Body        []byte

	// Timeout of the whole attempt, from the call of Send to the last byte read.
	Timeout time.Duration
	Success store.Success
	// Poll: Success.Rule is the rule of a poll, as ParsePollRule returns it, and Success.Name what people
	// call it ("until" if it is empty).
	Poll bool
	// Signer is a signer's name, or its JSON text, as ParseSigner returns it; empty: the default one if there
	// are secrets, else none.
	Signer string
	// Secrets sign the request, the present one first, during a rotation followed by the one before it. What
	// signs needs at least one.
	Secrets []sign.Secret
	// Fresh keeps the attempt off kept-alive connections.
	Fresh bool
}

// A Response is how an attempt ended. It is complete whatever happened.
type Response struct {
	Class   store.Class
	Outcome store.AttemptOutcome
	// Charged says whether the attempt counts (SPEC: it ended with an answer, or with an error while the
	// target could be reached by our means). An uncharged one that may have reached the wire has outcome
	// unknown.
	Charged bool
	// Stale: a kept-alive connection died before the first byte of the answer; uncharged, once per attempt,
	// unless the request was Fresh.
	Stale bool
	// Signal for the lane: Answered says an HTTP status came; TimedOut says the timeout ended it.
	Answered, TimedOut bool
	// LocalFailure: our own means failed (no name server answers, no file descriptors): divert, do not
	// charge.
	LocalFailure bool
	// Permanent: the rule's permanent_if is true of the answer, class rejected: no further attempt can help.
	Permanent bool
	// DeferAfter is the least wait of a callback whose receiver is busy (class receiver_busy, uncharged), and
	// MaxDefers how often it may be put off so before such an attempt is charged; zero for every other class.
	// With StateHold, DeferAfter is how long the upstream is not to be asked: its Retry-After, uncapped, or
	// 60 s without a usable one.
	DeferAfter time.Duration
	MaxDefers  int
	// PollState is what a poll has learned from the answer; empty for what is no poll, and where there was
	// nothing to judge. MaxErrors is its rule's error budget: how many errors in a row it survives. It is set
	// whenever the rule of a poll could be read, whatever happened then, and zero for all else.
	PollState rule.PollState
	MaxErrors int

	Status int
	// Error is one line for people, without secrets; empty when an answer came.
	Error     string
	StartedAt time.Time
	EndedAt   time.Time
	Timings   store.Timings

	RequestHeaders    []store.Header
	ResponseHeaders   []store.Header
	ResponseBody      string
	ResponseTruncated bool
	// Rule says what was expected and what was seen; nil for a success that only the status decided, and
	// without an answer. An answer of a poll always has it.
	Rule *store.Rule
	// KeyID names the secrets that signed, by their IDs, separated by a comma if there were two; empty:
	// unsigned, or they have none.
	KeyID string
	// RetryAfter is what a 429, 503 or 423 asked for, or with StateHold any answer, uncapped and not
	// negative; zero: nothing usable.
	RetryAfter time.Duration
	// Location of a redirect, for the error text.
	Location string
}
