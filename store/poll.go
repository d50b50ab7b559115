package store

import "encoding/json"

// A PollOutcome says how a poll has ended.
type PollOutcome string

// The outcomes of polls.
const (
	// PollSuccess and PollFailure are the upstream's own final answers.
	PollSuccess PollOutcome = "success"
	PollFailure PollOutcome = "failure"
	// PollUnresolved: nobody knows; tiers, deadline, error budget or time ran out, or it could not be asked.
	PollUnresolved PollOutcome = "unresolved"
	// PollResolved: it was ended from outside, by who learned the answer in another way.
	PollResolved PollOutcome = "resolved"
	PollCanceled PollOutcome = "canceled"
)

// PollOutcome returns how a callback of kind poll has ended; empty while it is open.
func (c *Callback) PollOutcome() PollOutcome {
	switch {
	case c.State == Dead:
		return PollUnresolved
	case c.State == Canceled:
		return PollCanceled
	case c.State != Succeeded:
		return ""
	case c.Reason == PollFailed:
		return PollFailure
	case c.Reason == ResolvedOutside:
		return PollResolved
	}
	return PollSuccess
}

// A PollDetail is what a callback of kind poll has beside its row. Its rule is the callback's Success, which
// package outbound reads.
type PollDetail struct {
	// Context is JSON that goes into the result as the caller gave it; empty: none.
	Context JSONText
	// OnResult is the callback that is accepted in the transaction in which the poll ends; nil: none is.
	OnResult *ResultDraft
	// Errors is how many polls in a row have ended in an error.
	Errors int
	// Outcome is what was told last, and ResultID the callback that tells it, a bare ULID; empty: none yet,
	// or none at all. How the poll has ended since may be other and not told: after something was told only
	// success and failure are, if they differ from it, and each resolve.
	Outcome  PollOutcome
	ResultID string
	// Data is JSON that came with the resolve; empty: none.
	Data JSONText
}

// A ResultDraft is a poll's result callback as it was judged when the poll was accepted. Its id, times and
// body are given when it is made.
type ResultDraft struct {
	Callback Callback
	// Delay and ExpiresIn are in milliseconds; ExpiresIn zero: it does not expire.
	Delay, ExpiresIn int64
	Supersede        bool
}

// A PollResult is the body of a result callback.
type PollResult struct {
	// PollID has its prefix.
	PollID  string          `json:"poll_id"`
	Ref     string          `json:"ref"`
	Context json.RawMessage `json:"context"`
	Outcome PollOutcome     `json:"outcome"`
	// Reason is the poll's, which says why it is unresolved.
	Reason Reason `json:"reason"`
	// Last is the last answer of the upstream; nil: it never gave one.
	Last *PollAnswer `json:"last"`
	// Polls is how many requests were made that count.
	Polls int `json:"polls"`
	// ObservedAt is when the outcome became known, RFC 3339 in UTC with milliseconds.
	ObservedAt string `json:"observed_at"`
	// Data is what came with the resolve.
	Data json.RawMessage `json:"data,omitempty"`
}

// A PollAnswer is an answer of the upstream, its body as text of at most 4 KiB, cleaned and without echoed
// credentials.
type PollAnswer struct {
	StatusCode int    `json:"status_code"`
	Body       string `json:"body"`
	// Truncated: the answer's body was longer.
	Truncated bool `json:"truncated,omitempty"`
}

// A ResolveResult says what a resolve did.
type ResolveResult string

// The results of a resolve. One that has succeeded or was canceled stays as it is.
const (
	ResolveDone            ResolveResult = "resolved"
	ResolveAlreadyTerminal ResolveResult = "already_terminal"
)

// A ResolvedPoll is what became of a resolve. Was is the poll as it was before, for the index to be told;
// nil: it was not open.
type ResolvedPoll struct {
	Result   ResolveResult
	Callback Callback
	Was      *OpenRow
}
