package client

import (
	"context"
	"encoding/json"
	"time"
)

// A PollOutcome is how a poll ended.
type PollOutcome string

const (
	PollSuccess    PollOutcome = "success"
	PollFailure    PollOutcome = "failure"
	PollUnresolved PollOutcome = "unresolved"
	PollResolved   PollOutcome = "resolved"
	PollCanceled   PollOutcome = "canceled"
)

// A PollRequest asks for a poll, a request that is made again and again until its answer is final.
type PollRequest struct {
	Ref     string           `json:"ref,omitempty" api:"required" schema:"maxLength: 256"`
	Request *CallbackRequest `json:"request,omitempty" api:"required" schema:"$ref: PollRequest"`
	Policy  Choice           `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	// When it is asked for the first time: at most one of due_at and delay. A time in the past is now.
	DueAt     time.Time `json:"due_at,omitzero"`
	Delay     Duration  `json:"delay,omitempty"`
	ExpiresIn Duration  `json:"expires_in,omitempty"`
	Until     *Until    `json:"until,omitempty" api:"required"`
	// The upstream is busy: its lane is held for 60 s or Retry-After, uncharged. Any one suffices.
	HoldIf []Predicate `json:"hold_if,omitempty"`
	// The statuses whose answers are looked at. Any other is an error.
	Evaluate Statuses `json:"evaluate,omitempty" schema:"default: [\"200-299\"]"`
	// How many errors in a row it bears.
	ErrorBudget *int              `json:"error_budget,omitempty" schema:"minimum: 0, maximum: 1000, default: 20"`
	Topic       string            `json:"topic,omitempty"`
	Labels      map[string]string `json:"labels,omitempty" schema:"maxProperties: 20"`
	LockKey     string            `json:"lock_key,omitempty" schema:"maxLength: 256"`
	Lane        string            `json:"lane,omitempty" schema:"maxLength: 128"`
	// Any JSON of at most 4 KiB; the same value goes into the result.
	Context  json.RawMessage  `json:"context,omitempty"`
	OnResult *CallbackRequest `json:"on_result,omitempty" schema:"$ref: ResultCallback"`
	// Kept while the poll is open and at least 7 days.
	IdempotencyKey string `json:"idempotency_key,omitempty" schema:"minLength: 1, maxLength: 256"`
}

// Until says what answer is final. Any one of a list suffices.
type Until struct {
	Success []Predicate `json:"success,omitempty"`
	Failure []Predicate `json:"failure,omitempty"`
}

// A PollCallback is a poll: its callback, and what it has beside that.
type PollCallback struct {
	Callback
	Poll PollDetail `json:"poll"`
}

// A PollDetail is what a poll has beside its callback.
type PollDetail struct {
	Until    json.RawMessage `json:"until" api:"null" schema:"$ref: Until"`
	HoldIf   json.RawMessage `json:"hold_if" schema:"type: [array, \"null\"], items: {$ref: \"#/components/schemas/Predicate\"}"`
	Evaluate json.RawMessage `json:"evaluate" api:"null" schema:"$ref: Statuses"`
	// 20 unless it was given.
	ErrorBudget json.RawMessage `json:"error_budget" api:"null" schema:"type: integer"`
	// How many requests in a row have ended in an error.
	Errors int `json:"errors"`
	// As it was given; null: none.
	Context  json.RawMessage `json:"context"`
	OnResult *PollTarget     `json:"on_result" api:"null"`
	// null: it is open.
	Outcome PollOutcome `json:"outcome" api:"null"`
	// The callback that has told the result; of one that is open again, that of its last end.
	ResultCallbackID string `json:"result_callback_id" api:"null"`
	// What came with the resolve; null: nothing.
	Data json.RawMessage `json:"data"`
}

// A PollTarget is where a poll's result goes.
type PollTarget struct {
	URL        string `json:"url" api:"null"`
	EndpointID string `json:"endpoint_id" api:"null"`
	Topic      string `json:"topic" api:"null"`
	Ref        string `json:"ref" api:"null"`
}

// A PollResult is the body of the callback that tells how a poll ended.
type PollResult struct {
	PollID string `json:"poll_id" schema:"pattern: \"^cb_\""`
	Ref    string `json:"ref"`
	// As it was given.
	Context json.RawMessage `json:"context"`
	Outcome PollOutcome     `json:"outcome"`
	// The poll's, which says why it is unresolved.
	Reason string `json:"reason"`
	// The last answer of the upstream; null: it never gave one.
	Last *PollAnswer `json:"last" api:"null"`
	// How many requests were made that count.
	Polls      int       `json:"polls"`
	ObservedAt time.Time `json:"observed_at"`
	// Only where it came with the resolve.
	Data json.RawMessage `json:"data,omitempty"`
}

// A PollAnswer is an answer of a poll's upstream.
type PollAnswer struct {
	StatusCode int `json:"status_code"`
	// Text of at most 4 KiB, without echoed credentials.
	Body string `json:"body"`
	// Only where it is true.
	Truncated bool `json:"truncated,omitempty"`
}

// A ResolveRequest ends a poll from outside.
type ResolveRequest struct {
	// Any JSON of at most 4 KiB; the same value goes into the result.
	Data json.RawMessage `json:"data,omitempty"`
	Change
}

// A ResolveResult is what became of a poll that was to be resolved.
type ResolveResult struct {
	// already_terminal: it has ended before, and stays as it is.
	Result   string   `json:"result" schema:"enum: [resolved, already_terminal]"`
	Callback Callback `json:"callback"`
}

// AcceptPoll accepts a poll. Of one reference and address there is one open poll: a second one is answered
// with the
// first.
func (c *Client) AcceptPoll(ctx context.Context, r PollRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "polls")
}

// Poll returns a poll.
func (c *Client) Poll(ctx context.Context, id string) (PollCallback, error) {
	return read[PollCallback](ctx, c, nil, "polls", id)
}

// ResolvePoll ends a poll from outside.
func (c *Client) ResolvePoll(ctx context.Context, id string, r ResolveRequest) (ResolveResult, error) {
	return call[ResolveResult](ctx, c, "POST", r, "polls", id, "resolve")
}

// An Event is what became of an accepted event.
type Event struct {
	ID string `json:"id" schema:"pattern: \"^ev_\""`
	// The callbacks, one for each endpoint that subscribes.
	Callbacks []string `json:"callbacks"`
	// Only where it is true.
	Replayed bool `json:"replayed,omitempty"`
}

// AcceptEvent accepts an event as one callback for every endpoint that subscribes to its topic. Of the
// request's fields
// those that are each endpoint's own may not be given: URL, Endpoint, Profile, Signer and Lane.
func (c *Client) AcceptEvent(ctx context.Context, r CallbackRequest) (Event, error) {
	return call[Event](ctx, c, "POST", r, "events")
}
