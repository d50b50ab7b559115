package store

// An Actor is who changes something, for the audit.
type Actor struct {
	Name string
	// Address is the IP address that the request came from; empty: it is not known, or the dispatcher acts by
	// itself.
	Address string
	Reason  string
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
