package client

import (
	"context"
	"time"
)

// A Pause says whether something is held, until when and why.
type Pause struct {
	Paused bool `json:"paused"`
	// null: it is not paused, or until it is resumed.
	PausedUntil time.Time `json:"paused_until" api:"null"`
	PauseReason string    `json:"pause_reason" api:"null"`
}

// A PauseRequest holds something. At most one of until and for; with neither it lasts until somebody ends
// it.
type PauseRequest struct {
	Until time.Time `json:"until,omitzero"`
	For   Duration  `json:"for,omitempty"`
	Change
}

// A Lane is what a lane's owner sets: its bounds and its pause.
type Lane struct {
	Lane string `json:"lane"`
	// The endpoint whose lane it is.
	EndpointID string `json:"endpoint_id" api:"null"`
	Rate       string `json:"rate" api:"null" schema:"$ref: RateOrNull"`
	// Its own bound; null: the setting lane_concurrency.
	Concurrency int `json:"concurrency" api:"null"`
	Pause
}

// A LaneView is a lane with what waits in it. What only the index knows is null when the index does not
// answer, or has
// not seen the lane yet.
type LaneView struct {
	Lane
	// The backlog: open callbacks, due or not.
	Open        int64     `json:"open"`
	OldestDueAt time.Time `json:"oldest_due_at" api:"null"`
	// For how long the oldest has been due; null: nothing is due.
	AgeMs *int64 `json:"age_ms" api:"null"`
	// null, here and below: the index does not answer, or has not seen the lane yet.
	InFlight *int `json:"in_flight" api:"null"`
	// How many may be in flight at present.
	ConcurrencyNow int `json:"concurrency_now" api:"null"`
	// How many that may become.
	ConcurrencyLimit int    `json:"concurrency_limit" api:"null"`
	Health           string `json:"health" api:"null" schema:"enum: [unproven, answering, timing_out, null]"`
	// Why nothing is sent now: the code of the first of the holds.
	Held BlockCode `json:"held" api:"null" schema:"$ref: LaneHold"`
	// Since when; null: not known.
	HeldSince time.Time `json:"held_since" api:"null"`
	// When that ends by itself.
	HeldUntil time.Time `json:"held_until" api:"null"`
	// All that holds it, as an explanation says it; what is to be cured first comes first.
	Holds   []Block  `json:"holds"`
	Breaker *Breaker `json:"breaker" api:"null"`
}

// A Breaker stops a lane whose receiver gives no HTTP answer.
type Breaker struct {
	State string `json:"state" schema:"enum: [closed, open, probing]"`
	// Attempts in a row that got no HTTP answer.
	Unanswered int `json:"unanswered"`
	// When the first of these ended.
	Since time.Time `json:"since" api:"null"`
	// null: it is closed.
	OpenedAt time.Time `json:"opened_at" api:"null"`
	ProbeAt  time.Time `json:"probe_at" api:"null"`
}

// A LaneLimits bounds what a lane may send. What is left out stays, and null takes a bound away.
type LaneLimits struct {
	Rate        Optional[string] `json:"rate,omitzero" schema:"$ref: RateOrNull"`
	Concurrency Optional[int]    `json:"concurrency,omitzero" schema:"minimum: 1, maximum: 10000"`
	Change
}

// A ProjectPause is whether all that a project sends is held.
type ProjectPause struct {
	Project string `json:"project"`
	Pause
}

// Lanes lists lanes with what waits in them, by key. Search is a part of the key; held: only those that
// are paused.
func (c *Client) Lanes(search string, held bool) List[LaneView] {
	return list[LaneView](c, params{"search": search, "held": yes(held)}.query(), "lanes")
}

// PauseLane holds a lane. Accepts go on.
func (c *Client) PauseLane(ctx context.Context, lane string, r PauseRequest) (Lane, error) {
	return call[Lane](ctx, c, "POST", r, "lanes", lane, "pause")
}

// ResumeLane ends a pause.
func (c *Client) ResumeLane(ctx context.Context, lane, reason string) (Lane, error) {
	return call[Lane](ctx, c, "POST", Change{reason}, "lanes", lane, "resume")
}

// LimitLane bounds what a lane may send.
func (c *Client) LimitLane(ctx context.Context, lane string, r LaneLimits) (Lane, error) {
	return call[Lane](ctx, c, "PUT", r, "lanes", lane, "limits")
}

// PauseProject holds all that the project sends. Accepts go on.
func (c *Client) PauseProject(ctx context.Context, r PauseRequest) (ProjectPause, error) {
	return call[ProjectPause](ctx, c, "POST", r, "pause")
}

// ResumeProject ends a pause.
func (c *Client) ResumeProject(ctx context.Context, reason string) (ProjectPause, error) {
	return call[ProjectPause](ctx, c, "POST", Change{reason}, "resume")
}
