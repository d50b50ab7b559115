package client

import (
	"encoding/json"
	"time"
)

// A RelayRow is one row of an outbox table.
type RelayRow struct {
	// Business key of the row. The idempotency key of its callback is SOURCE/ID. 1 to 128 characters.
	ID string `json:"id"`
	// What the row creates: callback (POST /v1/callbacks), event (POST /v1/events) or poll (POST /v1/polls).
	// Empty: callback.
	Kind string `json:"kind,omitempty"`
	// Age of the row in milliseconds by the clock of its database. A delay counts from the insert.
	AgeMs int64 `json:"age_ms,omitempty"`
	// Body of the call that Kind names, without idempotency_key. At most 512 KiB.
	Request json.RawMessage `json:"request"`
	// Exact bytes to send, instead of a body in Request. At most 256 KiB. Nil: the body is in Request.
	Body *[]byte `json:"body_base64,omitempty"`
}

// A RelayBatch hands over rows of an outbox table, or reports on it.
type RelayBatch struct {
	// Name of the relay process that reads the source. With it the call takes or renews the source's lease
	// for ten seconds and stores Report. Without it the call only hands over rows and needs no lease.
	Holder string `json:"holder,omitempty"`
	// Database and table that the source reads, without credentials. Required with Holder: one name stands
	// for one table.
	Origin string `json:"origin,omitempty"`
	// True: give the lease back.
	Release bool         `json:"release,omitempty"`
	Report  *RelayReport `json:"report,omitempty"`
	// At most 1,000.
	Rows []RelayRow `json:"rows,omitempty"`
}

// A RelayReport is the state of a source as its relay sees it.
type RelayReport struct {
	// Age of the oldest row that waits, in milliseconds. It grows while the table cannot be read.
	LagMs int64 `json:"lag_ms"`
	// Rows that wait, counted to 10,001.
	Waiting int `json:"waiting"`
	// Rows in the refused table, counted to 10,001.
	RefusedRows int `json:"refused_rows"`
	// Rows handed over per second, over the last ten seconds.
	RowsPerSecond float64 `json:"rows_per_second"`
	// Why the source is not read, or why rows wait. Empty: all is well.
	Error string `json:"error"`
	// Newest refused rows, at most 100. Nil: the same as before.
	Refusals *[]RelayRefusal `json:"refusals,omitempty"`
	// Progress of the act that the last reply asked for.
	Act *RelayActProgress `json:"act,omitempty"`
}

// A RelayRefusal is a row in the refused table of a source.
type RelayRefusal struct {
	ID        string    `json:"id"`
	Seq       int64     `json:"seq"`
	Kind      string    `json:"kind"`
	Code      string    `json:"code"`
	Problem   string    `json:"problem"`
	RefusedAt time.Time `json:"refused_at"`
}

// A RelayReply is the response to a RelayBatch.
type RelayReply struct {
	// One result per row, in their order.
	Results []RelayResult `json:"results"`
	// An act that the holder is to carry out. Nil: none.
	Act *RelayAct `json:"act"`
}

// A RelayResult is the result of one row: 202 accepted, 200 accepted before (a replay), or a problem.
type RelayResult struct {
	Status  int      `json:"status"`
	Problem *Problem `json:"problem,omitempty"`
}

// A RelayAct is an action of a person on the rows of a source. Its relay carries it out.
type RelayAct struct {
	ID string `json:"id"`
	// retry (hand refused rows over again), drop (delete refused rows) or replay (hand over kept rows again).
	Action string `json:"action"`
	// Only refused rows with this id; empty: with any. Not for replay.
	RowID string `json:"row_id,omitempty"`
	// Only refused rows with this code; empty: with any. Not for replay.
	Code string `json:"code,omitempty"`
	// Kept rows that were removed since then. Only for replay.
	Since time.Time `json:"since,omitzero"`
	// True: only count. Only for replay.
	DryRun bool `json:"dry_run,omitempty"`
	// Rows per second; zero: 500. Only for replay.
	Rate        int       `json:"rate,omitempty"`
	RequestedAt time.Time `json:"requested_at"`
	RequestedBy string    `json:"requested_by"`
	RelayActProgress
}

// A RelayActProgress is how far an act is.
type RelayActProgress struct {
	ActID string `json:"act_id,omitempty"`
	// waiting (until the relay reads it), running, done or failed.
	State    string `json:"state"`
	Matched  int    `json:"matched"`
	Accepted int    `json:"accepted"`
	Replayed int    `json:"replayed"`
	Refused  int    `json:"refused"`
	// Deleted refused rows. Only for drop.
	Dropped int    `json:"dropped"`
	Error   string `json:"error"`
}

// A RelaySource is an outbox table and the relay that reads it.
type RelaySource struct {
	Name   string `json:"name"`
	Origin string `json:"origin"`
	// Relay process that holds the lease. Empty: none.
	Holder     string    `json:"holder"`
	HeldUntil  time.Time `json:"held_until" api:"null"`
	ReportedAt time.Time `json:"reported_at" api:"null"`
	// Lag by the last report, plus the time since then if no relay holds the source.
	LagMs         int64   `json:"lag_ms"`
	Waiting       int     `json:"waiting"`
	RefusedRows   int     `json:"refused_rows"`
	RowsPerSecond float64 `json:"rows_per_second"`
	Error         string  `json:"error"`
	// Newest first, at most 100. Only in GET /v1/relay/{source}.
	Refusals []RelayRefusal `json:"refusals,omitempty"`
	// Newest act. Nil: there was none.
	Act *RelayAct `json:"act"`
}
