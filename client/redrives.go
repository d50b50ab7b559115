package client

import (
	"context"
	"encoding/json"
	"time"
)

// A RedriveAction is what a redrive does. retry: an attempt now, as POST /v1/callbacks/{id}/retry makes
// it, of those that
// are dead unless the filter has states. cancel: of those that are scheduled. reschedule: of those that
// are scheduled; a
// dead one is revived for one more attempt. set_url: another address, for those that are scheduled or
// dead; nothing is
// attempted by it.
type RedriveAction string

const (
	RedriveRetry      RedriveAction = "retry"
	RedriveCancel     RedriveAction = "cancel"
	RedriveReschedule RedriveAction = "reschedule"
	RedriveSetURL     RedriveAction = "set_url"
)

// A RedriveRequest asks for one action over all callbacks that a filter picks now.
type RedriveRequest struct {
	Action RedriveAction `json:"action" api:"required"`
	Filter Filter        `json:"filter" api:"required" schema:"$ref: RedriveFilter"`
	// How many callbacks it is done to: a number, and /s, /m, /h or /d.
	Rate string `json:"rate,omitempty" schema:"default: 1000/s, examples: [\"100/s\"]"`
	// Only count what matches.
	DryRun bool `json:"dry_run,omitempty" schema:"default: false"`
	// Only for retry. once: one attempt more, whose failure leaves state and reason as they were. restart:
	// a new ladder from tier 1.
	Ladder string `json:"ladder,omitempty" schema:"enum: [once, restart, null], default: restart"`
	// Only for set_url, which needs it.
	URL string `json:"url,omitempty"`
	// Only for reschedule, which needs exactly one of due_at and delay.
	DueAt time.Time `json:"due_at,omitzero"`
	// From the moment at which each is moved.
	Delay Duration `json:"delay,omitempty"`
	Change
}

// A RedriveAsked is what a redrive was asked to do. What is not of its action is null.
type RedriveAsked struct {
	Action RedriveAction `json:"action"`
	// As it was given.
	Filter json.RawMessage `json:"filter" schema:"$ref: RedriveFilter"`
	// Here and below, null: not of this action.
	Ladder string    `json:"ladder" api:"null" schema:"enum: [once, restart, null]"`
	URL    string    `json:"url" api:"null"`
	DueAt  time.Time `json:"due_at" api:"null"`
	Delay  Duration  `json:"delay" api:"null"`
	// null: 1000/s.
	Rate string `json:"rate" api:"null"`
}

// A Redrive is a job that does one action to many callbacks. One that was only tried has no ID.
type Redrive struct {
	ID string `json:"id" schema:"pattern: \"^rd_\""`
	RedriveAsked
	// gathering: what the filter picks is being written down.
	State string `json:"state" schema:"enum: [gathering, running, paused, done, canceled]"`
	// How many the filter picks; while it is gathering, so far.
	Matched int64 `json:"matched"`
	Done    int64 `json:"done"`
	// Left as they were: being attempted, of a state that forbids it, or purged meanwhile.
	Failed     int64     `json:"failed"`
	Actor      string    `json:"actor"`
	Reason     string    `json:"reason" api:"null"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	FinishedAt time.Time `json:"finished_at" api:"null"`
}

// A RedriveTried is what a redrive would be done to.
type RedriveTried struct {
	RedriveAsked
	Matched int64 `json:"matched"`
	DryRun  bool  `json:"dry_run" schema:"const: true"`
}

// CreateRedrive begins a redrive; with DryRun it only counts, and of the answer only what was asked and
// Matched are set.
func (c *Client) CreateRedrive(ctx context.Context, r RedriveRequest) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", r, "redrives")
}

// Redrives lists redrives, newest first.
func (c *Client) Redrives() List[Redrive] { return list[Redrive](c, nil, "redrives") }

// Redrive returns one redrive.
func (c *Client) Redrive(ctx context.Context, id string) (Redrive, error) {
	return read[Redrive](ctx, c, nil, "redrives", id)
}

// PauseRedrive holds a redrive.
func (c *Client) PauseRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "pause")
}

// ResumeRedrive lets a paused redrive go on.
func (c *Client) ResumeRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "resume")
}

// CancelRedrive ends a redrive. What it has done stays done.
func (c *Client) CancelRedrive(ctx context.Context, id, reason string) (Redrive, error) {
	return call[Redrive](ctx, c, "POST", Change{reason}, "redrives", id, "cancel")
}
