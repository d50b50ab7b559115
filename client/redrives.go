package client

import (
	"context"
	"encoding/json"
	"time"
)

// A RedriveAction is the action of a redrive. retry: attempt the callbacks now, as POST
// /v1/callbacks/{id}/retry does; without states in the filter, only the dead ones. cancel: cancel the
// scheduled callbacks. reschedule: move the scheduled callbacks, and revive the dead ones for one more
// attempt. set_url: give the scheduled or dead callbacks another URL; this starts no attempt.
// delete_endpoint: the deletion of an endpoint that needs an approval; only DELETE /v1/endpoints/{id} starts
// it.
type RedriveAction string

const (
	RedriveRetry      RedriveAction = "retry"
	RedriveCancel     RedriveAction = "cancel"
	RedriveReschedule RedriveAction = "reschedule"
	RedriveSetURL     RedriveAction = "set_url"
	RedriveDelete     RedriveAction = "delete_endpoint"
)

// The states of a redrive.
const (
	RedriveGathering = "gathering"
	RedriveAwaiting  = "awaiting_approval"
	RedriveRunning   = "running"
	RedrivePaused    = "paused"
	RedriveDone      = "done"
	RedriveCanceled  = "canceled"
)

// A RedriveRequest starts one action on all callbacks that match a filter now.
type RedriveRequest struct {
	Action RedriveAction `json:"action" api:"required"`
	Filter Filter        `json:"filter" api:"required" schema:"$ref: RedriveFilter"`
	// Maximum rate of callbacks: a number and /s, /m, /h or /d.
	Rate string `json:"rate,omitempty" schema:"default: 1000/s, examples: [\"100/s\"]"`
	// Only count the matching callbacks.
	DryRun bool `json:"dry_run,omitempty" schema:"default: false"`
	// Only for retry. once: one more attempt; if it fails, state and reason stay the same. restart: a new
	// retry schedule from tier 1.
	Ladder string `json:"ladder,omitempty" schema:"enum: [once, restart, null], default: restart"`
	// Only for set_url, which requires it.
	URL string `json:"url,omitempty"`
	// Only for reschedule, which requires exactly one of due_at and delay.
	DueAt time.Time `json:"due_at,omitzero"`
	// Counted from the time at which the redrive moves the callback.
	Delay Duration `json:"delay,omitempty"`
	Change
}

// RedriveAsked are the settings of a redrive. A setting that does not belong to its action is null.
type RedriveAsked struct {
	Action RedriveAction `json:"action"`
	// The filter of the request.
	Filter json.RawMessage `json:"filter" schema:"$ref: RedriveFilter"`
	// Here and below, null: does not belong to this action.
	Ladder string    `json:"ladder" api:"null" schema:"enum: [once, restart, null]"`
	URL    string    `json:"url" api:"null"`
	DueAt  time.Time `json:"due_at" api:"null"`
	Delay  Duration  `json:"delay" api:"null"`
	// Null: 1000/s.
	Rate string `json:"rate" api:"null"`
}

// A Redrive is a bulk action on callbacks. A dry run has no ID.
type Redrive struct {
	ID string `json:"id" schema:"pattern: \"^rd_\""`
	RedriveAsked
	// gathering: the matching callbacks are being collected. awaiting_approval: they are collected, and
	// another key or person must approve the redrive (setting approval_above).
	State string `json:"state" schema:"enum: [gathering, awaiting_approval, running, paused, done, canceled]"`
	// Number of matching callbacks; while gathering, the number so far.
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	// Callbacks that stayed unchanged: an attempt was in progress, their state did not allow the action, or
	// they were purged.
	Failed int64  `json:"failed"`
	Actor  string `json:"actor"`
	Reason string `json:"reason" api:"null"`
	// The key or person that approved it. Null: it needed no approval, or has none yet.
	Approver   string    `json:"approver" api:"null"`
	ApprovedAt time.Time `json:"approved_at" api:"null"`
	// When it is canceled unless it is approved before. Null: it does not await an approval.
	ApproveBy  time.Time `json:"approve_by" api:"null"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	FinishedAt time.Time `json:"finished_at" api:"null"`
}

// A RedriveTried is the result of a dry run.
type RedriveTried struct {
	RedriveAsked
	Matched int64 `json:"matched"`
	DryRun  bool  `json:"dry_run" schema:"const: true"`
}

// CreateRedrive starts a redrive. With DryRun it only counts: the result has the settings and Matched.
func (c *Client) CreateRedrive(ctx context.Context, r RedriveRequest) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", r, "redrives")
}

// Redrives lists redrives, newest first.
func (c *Client) Redrives() List[Redrive] { return list[Redrive](c, nil, "redrives") }

// Redrive returns one redrive.
func (c *Client) Redrive(ctx context.Context, id string) (Redrive, error) {
	return read[Redrive](ctx, c, nil, "redrives", id)
}

// PauseRedrive pauses a redrive.
func (c *Client) PauseRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "pause")
}

// ResumeRedrive continues a paused redrive.
func (c *Client) ResumeRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "resume")
}

// ApproveRedrive approves a redrive in the state awaiting_approval. The key that created it cannot.
func (c *Client) ApproveRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "approve")
}

// CancelRedrive ends a redrive. Callbacks that it has already processed stay changed.
func (c *Client) CancelRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "cancel")
}
