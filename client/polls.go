package client

import (
	"context"
	"encoding/json"
	"time"
)

// A PollOutcome is the final result of a poll.
type PollOutcome string

const (
	PollSuccess    PollOutcome = "success"
	PollFailure    PollOutcome = "failure"
	PollUnresolved PollOutcome = "unresolved"
	PollResolved   PollOutcome = "resolved"
	PollCanceled   PollOutcome = "canceled"
)

// A PollRequest creates a poll: a request that is repeated until its response is final.
type PollRequest struct {
	Ref     string           `json:"ref,omitempty" api:"required" schema:"maxLength: 256"`
	Request *CallbackRequest `json:"request,omitempty" api:"required" schema:"$ref: PollRequest"`
	Policy  Choice           `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	// Time of the first request: at most one of due_at and delay. A time in the past means now.
	DueAt     time.Time `json:"due_at,omitzero"`
	Delay     Duration  `json:"delay,omitempty"`
	ExpiresIn Duration  `json:"expires_in,omitempty"`
	Until     *Until    `json:"until,omitempty" api:"required"`
	// Matches a response of a busy upstream. Any predicate suffices. The lane is then held for 60 s, or as
	// long as Retry-After says, and the attempt is not counted.
	HoldIf []Predicate `json:"hold_if,omitempty"`
	// Statuses whose responses are evaluated. Any other status is an error.
	Evaluate Statuses `json:"evaluate,omitempty" schema:"default: [\"200-299\"]"`
	// Maximum number of consecutive errors.
	ErrorBudget *int `json:"error_budget,omitempty" schema:"minimum: 0, maximum: 1000, default: 20"`

	Topic   string            `json:"topic,omitempty"`
	Labels  map[string]string `json:"labels,omitempty" schema:"maxProperties: 20"`
	LockKey string            `json:"lock_key,omitempty" schema:"maxLength: 256"`
	Lane    string            `json:"lane,omitempty" schema:"maxLength: 128"`
	// Any JSON of at most 4 KiB. The result has the same value.
	Context  json.RawMessage  `json:"context,omitempty"`
	OnResult *CallbackRequest `json:"on_result,omitempty" schema:"$ref: ResultCallback"`
	// Kept while the poll is open, and for at least 7 days.
	IdempotencyKey string `json:"idempotency_key,omitempty" schema:"minLength: 1, maxLength: 256"`
}

// Until says which responses are final. Any predicate of a list suffices.
type Until struct {
	Success []Predicate `json:"success,omitempty"`
	Failure []Predicate `json:"failure,omitempty"`
}

// A PollCallback is a poll: its callback, and its own details.
type PollCallback struct {
	Callback
	Poll PollDetail `json:"poll"`
}

// A PollDetail has the details of a poll that a callback does not have.
type PollDetail struct {
	Until    json.RawMessage `json:"until" api:"null" schema:"$ref: Until"`
	HoldIf   json.RawMessage `json:"hold_if" schema:"$ref: Predicates"`
	Evaluate json.RawMessage `json:"evaluate" api:"null" schema:"$ref: Statuses"`
	// 20 unless the request set it.
	ErrorBudget json.RawMessage `json:"error_budget" api:"null" schema:"type: integer"`
	// Number of consecutive requests that ended in an error.
	Errors int `json:"errors"`
	// Value from the request. Null: none.
	Context  json.RawMessage `json:"context"`
	OnResult *PollTarget     `json:"on_result" api:"null"`
	// Null: the poll is open.
	Outcome PollOutcome `json:"outcome" api:"null"`
	// Callback that sent the result. For a poll that was reopened: the callback of its last end.
	ResultCallbackID string `json:"result_callback_id" api:"null"`
	// Value from the resolve request. Null: none.
	Data json.RawMessage `json:"data"`
}

// A PollTarget is the destination of a poll's result.
type PollTarget struct {
	URL        string `json:"url" api:"null"`
	EndpointID string `json:"endpoint_id" api:"null"`
	Topic      string `json:"topic" api:"null"`
	Ref        string `json:"ref" api:"null"`
}

// A PollResult is the body of the callback that sends the result of a poll.
type PollResult struct {
	PollID string `json:"poll_id" schema:"pattern: \"^cb_\""`
	Ref    string `json:"ref"`
	// Value from the request.
	Context json.RawMessage `json:"context"`
	Outcome PollOutcome     `json:"outcome"`
	// Reason of the poll. For an unresolved poll it says why.
	Reason string `json:"reason"`
	// Last response of the upstream. Null: there was none.
	Last *PollAnswer `json:"last" api:"null"`
	// Number of counted requests.
	Polls      int       `json:"polls"`
	ObservedAt time.Time `json:"observed_at"`
	// Present only if the resolve request had it.
	Data json.RawMessage `json:"data,omitempty"`
}

// A PollAnswer is a response of a poll's upstream.
type PollAnswer struct {
	StatusCode int `json:"status_code"`
	// At most 4 KiB of text. Echoed credentials are removed.
	Body string `json:"body"`
	// Present only if true.
	Truncated bool `json:"truncated,omitempty"`
}

// A ResolveRequest ends a poll with a result that the caller knows.
type ResolveRequest struct {
	// Any JSON of at most 4 KiB. The result has the same value.
	Data json.RawMessage `json:"data,omitempty"`
	Change
}

// A ResolveResult is the result of resolving a poll.
type ResolveResult struct {
	// already_terminal: the poll had ended before and stays unchanged.
	Result   string   `json:"result" schema:"enum: [resolved, already_terminal]"`
	Callback Callback `json:"callback"`
}

// CreatePoll submits a poll. There is at most one open poll per reference and URL: a second request returns
// the first poll. Like Send, it gives a request without an IdempotencyKey a random one.
func (c *Client) CreatePoll(ctx context.Context, r PollRequest) (Callback, error) {
	r.IdempotencyKey = keyed(ctx, r.IdempotencyKey)
	return accept[Callback](ctx, c, r.IdempotencyKey, r, "polls")
}

// Poll returns a poll.
func (c *Client) Poll(ctx context.Context, id string) (PollCallback, error) {
	return read[PollCallback](ctx, c, nil, "polls", id)
}

// ResolvePoll ends a poll with a result that the caller knows.
func (c *Client) ResolvePoll(ctx context.Context, id string, r ResolveRequest) (ResolveResult, error) {
	return call[ResolveResult](ctx, c, "POST", r, "polls", id, "resolve")
}

// An Event is an accepted event.
type Event struct {
	ID string `json:"id" schema:"pattern: \"^ev_\""`
	// Ids of the callbacks, one for each endpoint that subscribes to the topic.
	Callbacks []string `json:"callbacks"`
	// Present only if true: an earlier request with this idempotency key created the event.
	Replayed bool `json:"replayed,omitempty"`
}

// SendEvent submits an event. It becomes one callback for every endpoint that subscribes to its topic. URL,
// Endpoint, Profile, Signer and Lane come from each endpoint, so the request must not set them. Like Send, it
// gives a request without an IdempotencyKey a random one.
func (c *Client) SendEvent(ctx context.Context, r CallbackRequest) (Event, error) {
	r.IdempotencyKey = keyed(ctx, r.IdempotencyKey)
	return accept[Event](ctx, c, r.IdempotencyKey, r, "events")
}
