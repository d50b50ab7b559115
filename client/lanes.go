package client

import (
	"context"
	"time"
)

// A Pause says whether sending is paused, until when and why.
type Pause struct {
	Paused bool `json:"paused"`
	// Null: not paused, or paused until it is resumed.
	PausedUntil time.Time `json:"paused_until" api:"null"`
	PauseReason string    `json:"pause_reason" api:"null"`
}

// A PauseRequest pauses sending. It has at most one of until and for. Without both, the pause lasts until it
// is resumed.
type PauseRequest struct {
	Until time.Time `json:"until,omitzero"`
	For   Duration  `json:"for,omitempty"`
	Change
}

// A Lane has the limits and the pause of a lane, as users set them.
type Lane struct {
	Lane string `json:"lane"`
	// Endpoint of the lane. Null: the lane has none.
	EndpointID string `json:"endpoint_id" api:"null"`
	Rate       string `json:"rate" api:"null" schema:"$ref: RateOrNull"`
	// Limit that was set for this lane. Null: the setting lane_concurrency applies.
	Concurrency int `json:"concurrency" api:"null"`
	Pause
}

// A LaneView is a lane with its backlog. Values that only the index has are null if the index does not
// respond, or has no entry for the lane yet.
type LaneView struct {
	Lane
	// Backlog: open callbacks, due or not.
	Open        int64     `json:"open"`
	OldestDueAt time.Time `json:"oldest_due_at" api:"null"`
	// Time since the oldest due time, in milliseconds. Null: nothing is due.
	AgeMs *int64 `json:"age_ms" api:"null"`
	// Null, here and below: the index does not respond, or has no entry for the lane yet.
	InFlight *int `json:"in_flight" api:"null"`
	// Current limit of attempts in flight. Responses raise it, timeouts lower it.
	ConcurrencyNow int `json:"concurrency_now" api:"null"`
	// Maximum of concurrency_now.
	ConcurrencyLimit int    `json:"concurrency_limit" api:"null"`
	Health           string `json:"health" api:"null" schema:"enum: [unproven, answering, timing_out, null]"`
	// Code of the first entry in holds: why nothing is sent now.
	Held BlockCode `json:"held" api:"null" schema:"$ref: LaneBlock"`
	// Start of that block. Null: unknown.
	HeldSince time.Time `json:"held_since" api:"null"`
	// Automatic end of that block. Null: unknown, or it has none.
	HeldUntil time.Time `json:"held_until" api:"null"`
	// All causes that keep the lane from being sent, as in an explanation. The cause to fix first comes
	// first.
	Holds   []Block  `json:"holds"`
	Breaker *Breaker `json:"breaker" api:"null"`
}

// A Breaker stops a lane whose receiver does not respond over HTTP.
type Breaker struct {
	State string `json:"state" schema:"enum: [closed, open, probing]"`
	// Number of consecutive attempts without an HTTP response.
	Unanswered int `json:"unanswered"`
	// End of the first of these attempts.
	Since time.Time `json:"since" api:"null"`
	// Null: the breaker is closed.
	OpenedAt time.Time `json:"opened_at" api:"null"`
	ProbeAt  time.Time `json:"probe_at" api:"null"`
}

// LaneLimits are the limits of a lane. Fields that are left out stay unchanged, and null removes a limit.
type LaneLimits struct {
	Rate        Optional[string] `json:"rate,omitzero" schema:"$ref: RateOrNull"`
	Concurrency Optional[int]    `json:"concurrency,omitzero" schema:"minimum: 1, maximum: 10000"`
	Change
}

// A ProjectPause says whether sending is paused for a whole project.
type ProjectPause struct {
	Project string `json:"project"`
	Pause
}

// Lanes lists lanes with their backlog, sorted by key. Search is a part of the key. Held selects the paused
// lanes.
func (c *Client) Lanes(search string, held bool) List[LaneView] {
	return list[LaneView](c, params{"search": search, "held": yes(held)}.query(), "lanes")
}

// PauseLane pauses sending in a lane. Its callbacks are still accepted.
func (c *Client) PauseLane(ctx context.Context, lane string, r PauseRequest) (Lane, error) {
	return call[Lane](ctx, c, "POST", r, "lanes", lane, "pause")
}

// ResumeLane ends a pause.
func (c *Client) ResumeLane(ctx context.Context, lane, reason string) (Lane, error) {
	return call[Lane](ctx, c, "POST", Change{reason}, "lanes", lane, "resume")
}

// LimitLane sets the limits of a lane.
func (c *Client) LimitLane(ctx context.Context, lane string, r LaneLimits) (Lane, error) {
	return call[Lane](ctx, c, "PUT", r, "lanes", lane, "limits")
}

// PauseProject pauses sending for the whole project. Callbacks are still accepted.
func (c *Client) PauseProject(ctx context.Context, r PauseRequest) (ProjectPause, error) {
	return call[ProjectPause](ctx, c, "POST", r, "pause")
}

// ResumeProject ends a pause.
func (c *Client) ResumeProject(ctx context.Context, reason string) (ProjectPause, error) {
	return call[ProjectPause](ctx, c, "POST", Change{reason}, "resume")
}

// A Stop says whether all sending of the installation is stopped.
type Stop struct {
	Stopped bool `json:"stopped"`
	// A new end or reason does not change it. Null: not stopped.
	Since time.Time `json:"since" api:"null"`
	// Null: not stopped, or stopped until POST /v1/start.
	Until  time.Time `json:"until" api:"null"`
	Reason string    `json:"reason" api:"null"`
	// Name of the key that stopped it.
	By string `json:"by" api:"null"`
}

// SendingStop returns whether all sending of the installation is stopped.
func (c *Client) SendingStop(ctx context.Context) (Stop, error) {
	return read[Stop](ctx, c, nil, "stop")
}

// StopSending stops all sending of the installation within a second. Attempts in flight end normally, and
// callbacks are still accepted. The reason is required. It requires the admin key of the settings.
func (c *Client) StopSending(ctx context.Context, r PauseRequest) (Stop, error) {
	return call[Stop](ctx, c, "POST", r, "stop")
}

// StartSending ends a stop. Sending begins slowly. It requires the admin key of the settings.
func (c *Client) StartSending(ctx context.Context, reason string) (Stop, error) {
	return call[Stop](ctx, c, "POST", Change{reason}, "start")
}
