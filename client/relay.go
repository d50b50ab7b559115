package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// A RelayRow is one row of an outbox table.
type RelayRow struct {
	// Business key of the row. The idempotency key of its callback is SOURCE/ID. 1 to 128 characters.
	ID string `json:"id" api:"required" schema:"minLength: 1, maxLength: 128"`
	// What the row creates: callback (POST /v1/callbacks), event (POST /v1/events) or poll (POST /v1/polls).
	// Empty: callback.
	Kind string `json:"kind,omitempty" schema:"enum: [callback, event, poll, null], default: callback"`
	// Age of the row in milliseconds by the clock of its database. A delay counts from the insert.
	AgeMs int64 `json:"age_ms,omitempty"`
	// Body of the call that `kind` names, without idempotency_key. At most 512 KiB.
	Request json.RawMessage `json:"request" api:"required" schema:"type: object"`
	// Exact bytes to send, instead of a body in `request`. At most 256 KiB. Null: the body is in `request`.
	Body *[]byte `json:"body_base64,omitempty"`
}

// appendJSON implements appender. A relay writes very many rows.
func (r RelayRow) appendJSON(b []byte) ([]byte, error) {
	b = AppendString(append(b, `{"id":`...), r.ID)
	if r.Kind != "" {
		b = AppendString(append(b, `,"kind":`...), r.Kind)
	}
	if r.AgeMs != 0 {
		b = strconv.AppendInt(append(b, `,"age_ms":`...), r.AgeMs, 10)
	}
	b = append(b, `,"request":`...)
	if len(r.Request) == 0 {
		b = append(b, "null"...)
	}
	b = append(b, r.Request...)
	if r.Body != nil {
		b = append(base64.StdEncoding.AppendEncode(append(b, `,"body_base64":"`...), *r.Body), '"')
	}
	return append(b, '}'), nil
}

// A RelayBatch submits rows of an outbox table, or reports on it.
type RelayBatch struct {
	// Name of the relay process that reads the source. With it the call takes or renews the lease
	// for ten seconds and stores `report`. Without it the call only submits rows and needs no lease.
	Holder string `json:"holder,omitempty" schema:"maxLength: 128"`
	// Database and table that the source reads, without credentials. Required with `holder`: one name stands
	// for one table.
	Origin string `json:"origin,omitempty" schema:"maxLength: 512"`
	// True: give the lease back.
	Release bool         `json:"release,omitempty"`
	Report  *RelayReport `json:"report,omitempty"`
	// At most 1,000.
	Rows []RelayRow `json:"rows,omitempty" api:"most=1000" schema:"maxItems: 1000"`
}

// A RelayReport is the state of a source as its relay sees it.
type RelayReport struct {
	// Age of the oldest row that waits, in milliseconds. It grows while the table cannot be read.
	LagMs int64 `json:"lag_ms"`
	// Rows that wait, counted to 10,001.
	Waiting int `json:"waiting"`
	// Rows in the refused table, counted to 10,001.
	RefusedRows int `json:"refused_rows"`
	// Rows submitted per second, over the last ten seconds.
	RowsPerSecond float64 `json:"rows_per_second"`
	// Why the source is not read, or why rows wait. Empty: all is well.
	Error string `json:"error"`
	// Newest refused rows, at most 100. Null: the same as before.
	Refusals *[]RelayRefusal `json:"refusals,omitempty" schema:"maxItems: 100"`
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
	// An act that the holder is to carry out. Null: none.
	Act *RelayAct `json:"act" api:"null"`
	// The server's time. `act.requested_at` is by the same clock. Null without `holder`.
	Now time.Time `json:"now" api:"null"`
	// Lag of the source, as GET /v1/relay/{source} shows it. A relay that takes the source reports that it
	// grows until the table is read. Zero without `holder`.
	LagMs int64 `json:"lag_ms"`
}

// A RelayResult is the result of one row: 202 accepted, 200 accepted before (a replay), or a problem.
type RelayResult struct {
	Status  int      `json:"status"`
	Problem *Problem `json:"problem,omitempty"`
}

// appendJSON implements appender. A reply has very many results.
func (r RelayResult) appendJSON(b []byte) ([]byte, error) {
	b = strconv.AppendInt(append(b, `{"status":`...), int64(r.Status), 10)
	if r.Problem != nil {
		var err error
		b, err = AppendJSON(append(b, `,"problem":`...), r.Problem)
		if err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// A RelayAct is an action of a person on the rows of a source. Its relay carries it out.
type RelayAct struct {
	ID string `json:"id"`
	// retry (submit refused rows again), drop (delete refused rows) or replay (submit kept rows again).
	Action string `json:"action" schema:"enum: [retry, drop, replay]"`
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
	// waiting (until the relay reads it), running, done, failed or canceled.
	State    string `json:"state" schema:"enum: [waiting, running, done, failed, canceled]"`
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
	// Relay process that holds the lease. Null: none.
	Holder     string    `json:"holder" api:"null"`
	HeldUntil  time.Time `json:"held_until" api:"null"`
	ReportedAt time.Time `json:"reported_at" api:"null"`
	// Lag by the last report, plus the time since then if no relay holds the source.
	LagMs         int64   `json:"lag_ms"`
	Waiting       int     `json:"waiting"`
	RefusedRows   int     `json:"refused_rows"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// Why the table is not read, or why rows wait. Null: all is well.
	Error string `json:"error" api:"null"`
	// Newest first, at most 100. Only in GET /v1/relay/{source}.
	Refusals []RelayRefusal `json:"refusals,omitempty"`
	// Newest act. Null: there was none.
	Act *RelayAct `json:"act" api:"null"`
}

// A RelayRetry selects the refused rows that are submitted again. Empty fields select all.
type RelayRetry struct {
	// Only the rows with this id.
	ID string `json:"id,omitempty" schema:"maxLength: 128"`
	// Only the rows with this code.
	Code string `json:"code,omitempty" schema:"maxLength: 64"`
	Change
}

// A RelayDrop selects the refused rows that are deleted. It requires id, code or all.
type RelayDrop struct {
	// Only the rows with this id.
	ID string `json:"id,omitempty" schema:"maxLength: 128"`
	// Only the rows with this code.
	Code string `json:"code,omitempty" schema:"maxLength: 64"`
	// True: every refused row.
	All bool `json:"all,omitempty"`
	Change
}

// A RelayReplay selects the kept rows that are submitted again.
type RelayReplay struct {
	// The rows that were removed since then.
	Since time.Time `json:"since" api:"required"`
	// True: only count them.
	DryRun bool `json:"dry_run,omitempty"`
	// Rows per second.
	Rate int `json:"rate,omitempty" schema:"maximum: 10000, default: 500"`
	Change
}

// Relay submits rows of an outbox table, or renews the lease of its relay, or both. The result has one entry
// for each row at its index. The call is sent again if necessary: a row that was accepted before is a replay.
func (c *Client) Relay(ctx context.Context, source string, b RelayBatch) (out RelayReply, err error) {
	r, err := c.request(http.MethodPost, pathOf("relay", source), b)
	if err != nil {
		return out, err
	}
	a, err := c.sendAgain(ctx, r)
	if err != nil {
		return out, err
	}
	return out, c.decode(a, &out)
}

// RelaySources lists the outbox tables of the project by name, without their refused rows.
func (c *Client) RelaySources(ctx context.Context) ([]RelaySource, error) {
	out, err := read[Page[RelaySource]](ctx, c, nil, "relay")
	return out.Data, err
}

// RelaySource returns an outbox table with its newest refused rows.
func (c *Client) RelaySource(ctx context.Context, source string) (RelaySource, error) {
	return read[RelaySource](ctx, c, nil, "relay", source)
}

// RetryRefused asks the relay of a source to submit refused rows again.
func (c *Client) RetryRefused(ctx context.Context, source string, r RelayRetry) (RelaySource, error) {
	return call[RelaySource](ctx, c, "POST", r, "relay", source, "retry")
}

// DropRefused asks the relay of a source to delete refused rows.
func (c *Client) DropRefused(ctx context.Context, source string, r RelayDrop) (RelaySource, error) {
	return call[RelaySource](ctx, c, "POST", r, "relay", source, "drop")
}

// ReplayKept asks the relay of a source to submit kept rows again, after a restore of the dispatcher's
// database. Rows that it still has are replays.
func (c *Client) ReplayKept(ctx context.Context, source string, r RelayReplay) (RelaySource, error) {
	return call[RelaySource](ctx, c, "POST", r, "relay", source, "replay")
}

// CancelRelayAct ends the open retry, drop or replay of a source. Its relay stops within seconds; what it has
// done stays. The counts of the act are those of the last report. Without an open act nothing changes.
func (c *Client) CancelRelayAct(ctx context.Context, source, reason string) (RelaySource, error) {
	return call[RelaySource](ctx, c, "POST", Change{reason}, "relay", source, "cancel")
}

// ForgetRelay deletes what the server keeps about an outbox table that no relay reads. Its rows stay.
func (c *Client) ForgetRelay(ctx context.Context, source, reason string) error {
	return c.remove(ctx, reason, "relay", source)
}
