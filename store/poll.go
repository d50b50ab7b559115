package store

import "encoding/json"

// A PollOutcome is the outcome of a finished poll.
type PollOutcome string

// The outcomes of polls.
const (
	// PollSuccess and PollFailure are the upstream's final answers.
	PollSuccess PollOutcome = "success"
	PollFailure PollOutcome = "failure"
	// PollUnresolved: no final answer came before the tiers, the deadline, the error budget or the expiry ran
	// out, or the upstream could not be polled.
	PollUnresolved PollOutcome = "unresolved"
	// PollResolved: a caller ended the poll with a resolve.
	PollResolved PollOutcome = "resolved"
	PollCanceled PollOutcome = "canceled"
)

// PollOutcome returns the outcome of a callback of kind poll. It is empty while the poll is open.
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

// A PollDetail has the data of a poll that is not in its callback's row. The rule of the poll is the
// callback's Success, which package dispatch/outbound reads.
type PollDetail struct {
	// Context is the caller's JSON, copied into the result. Empty: none.
	Context JSONText
	// OnResult is the result callback, accepted in the transaction that ends the poll. Nil: none.
	OnResult *ResultDraft
	// Errors is the number of polls in a row that ended in an error.
	Errors int
	// Outcome is the last reported outcome. ResultID is the result callback that reports it, a bare ULID.
	// Both are empty without a report. A poll that is retried may end again with another outcome. After the
	// first report, only these are reported: success and failure if they differ from Outcome, and each
	// resolve.
	Outcome  PollOutcome
	ResultID string
	// Data is the JSON of the resolve. Empty: none.
	Data JSONText
}

// A PollReport is the reported outcome of a poll, with its result callback. Both ids are bare ULIDs.
type PollReport struct {
	ID       string
	Outcome  PollOutcome
	ResultID string
}

// A ResultDraft is a poll's result callback, validated when the poll was accepted. Its id, times and body are
// set when the poll ends.
type ResultDraft struct {
	Callback Callback
	// Delay and ExpiresIn are in milliseconds. ExpiresIn zero: the callback does not expire.
	Delay, ExpiresIn int64
	Supersede        bool
}

// A PollResult is the body of a result callback.
type PollResult struct {
	// PollID is the poll's id with its prefix.
	PollID  string          `json:"poll_id"`
	Ref     string          `json:"ref"`
	Context json.RawMessage `json:"context"`
	Outcome PollOutcome     `json:"outcome"`
	// Reason is the poll's reason. It gives the cause of an unresolved outcome.
	Reason Reason `json:"reason"`
	// Last is the last response of the upstream. Nil: there was none.
	Last *PollAnswer `json:"last"`
	// Polls is the number of charged attempts.
	Polls int `json:"polls"`
	// ObservedAt is when the dispatcher learned the outcome, in RFC 3339 with milliseconds, in UTC.
	ObservedAt string `json:"observed_at"`
	// Data is the JSON of the resolve.
	Data json.RawMessage `json:"data,omitempty"`
}

// A PollAnswer is a response of the upstream. Body is sanitised text of at most 4 KiB without echoed
// credentials.
type PollAnswer struct {
	StatusCode int    `json:"status_code"`
	Body       string `json:"body"`
	// Truncated: the body was longer.
	Truncated bool `json:"truncated,omitempty"`
}

// A ResolveResult is the result of a resolve.
type ResolveResult string

// The results of a resolve. A poll that has succeeded or was canceled is not changed.
const (
	ResolveDone            ResolveResult = "resolved"
	ResolveAlreadyTerminal ResolveResult = "already_terminal"
)

// A ResolvedPoll is a poll after its resolve. Was is the poll before, if it was open. The caller removes it
// from the index.
type ResolvedPoll struct {
	Result   ResolveResult
	Callback Callback
	Was      *OpenRow
}
