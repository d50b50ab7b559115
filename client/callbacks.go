package client

import (
	"context"
	"encoding/json"
	"net/url"
	"time"
)

// A Kind says what a callback does.
type Kind string

const (
	Notify Kind = "notify" // sends a payload
	Poll   Kind = "poll"   // repeats a request until its response is final
)

// A State is a step in the life of a callback, from its accept to its end.
type State string

const (
	Scheduled  State = "scheduled"
	Attempting State = "attempting"
	Succeeded  State = "succeeded"
	Dead       State = "dead"
	Canceled   State = "canceled"
)

// A TerminalReason says why a callback finished.
type TerminalReason string

const (
	ReasonExhausted       TerminalReason = "exhausted"
	ReasonRejected        TerminalReason = "rejected"
	ReasonGone            TerminalReason = "gone"
	ReasonExpired         TerminalReason = "expired"
	ReasonBlocked         TerminalReason = "blocked"
	ReasonInvalid         TerminalReason = "invalid"
	ReasonPoison          TerminalReason = "poison"
	ReasonUnresolved      TerminalReason = "unresolved"
	ReasonRequested       TerminalReason = "requested"
	ReasonSuperseded      TerminalReason = "superseded"
	ReasonEndpointDeleted TerminalReason = "endpoint_deleted"
	ReasonSuccess         TerminalReason = "success"
	ReasonFailure         TerminalReason = "failure"
	ReasonResolved        TerminalReason = "resolved"
)

// Values of the fields that have a fixed set of them: Order, Ladder and Result.
const (
	OrderStrict           = "strict"
	LadderOnce            = "once"
	LadderRestart         = "restart"
	ResultCanceled        = "canceled"
	ResultTooLate         = "too_late"
	ResultAlreadyTerminal = "already_terminal"
	ResultResolved        = "resolved"
)

// A CallbackRequest creates a callback. It requires url or endpoint, and a body unless the method has none.
// The same type is the body of an event, the template of a schedule, and the request and the result callback
// of a poll. Each of these lacks some of the fields; the server rejects a request that has them.
type CallbackRequest struct {
	// With an endpoint: replaces only the endpoint's URL, if its url_override allows that.
	URL string `json:"url,omitempty"`
	// The endpoint's ep_ id or its external_id.
	Endpoint string  `json:"endpoint,omitempty"`
	Method   string  `json:"method,omitempty" schema:"default: POST"`
	Headers  Headers `json:"headers,omitempty"`
	// Must not begin with "dispatcher.", in upper or lower case: that is for Dispatcher's own messages.
	Topic string `json:"topic,omitempty"`
	Ref   string `json:"ref,omitempty" schema:"maxLength: 256"`
	// JSON. Its bytes are sent exactly as they are in the request. At most one of payload, body and
	// body_base64.
	Payload     json.RawMessage `json:"payload,omitempty"`
	Body        *string         `json:"body,omitempty"`
	BodyBase64  *[]byte         `json:"body_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	// Preset of policy, success rule, signer and timeout. The fields of the request override it.
	Profile string `json:"profile,omitempty"`
	Policy  Choice `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	// At most one of due_at and delay. A time in the past means now.
	DueAt     time.Time `json:"due_at,omitzero"`
	Delay     Duration  `json:"delay,omitempty"`
	ExpiresIn Duration  `json:"expires_in,omitempty"`
	LockKey   string    `json:"lock_key,omitempty" schema:"maxLength: 256"`
	// strict: the callback starts only after all callbacks with the same lock_key that were accepted before
	// it have finished.
	Order string `json:"order,omitempty" schema:"enum: [strict, null]"`
	Lane  string `json:"lane,omitempty" schema:"maxLength: 128"`
	// Cancels older callbacks with the same ref and topic. Requires ref, topic and version.
	Supersede    bool   `json:"supersede,omitempty" schema:"default: false"`
	Version      *int64 `json:"version,omitempty"`
	StartAttempt int    `json:"start_attempt,omitempty" schema:"minimum: 1, default: 1"`
	// Kept while the callback is open, and for at least 7 days. Single callbacks and callbacks of a batch
	// share their keys.
	IdempotencyKey string            `json:"idempotency_key,omitempty" schema:"minLength: 1, maxLength: 256"`
	Labels         map[string]string `json:"labels,omitempty" schema:"maxProperties: 20"`
}

// A Callback is one HTTP request that the dispatcher attempts until it finishes.
type Callback struct {
	ID         string `json:"id"`
	Kind       Kind   `json:"kind" schema:"enum: [notify, poll]"`
	Project    string `json:"project"`
	EndpointID string `json:"endpoint_id" api:"null"`
	URL        string `json:"url"`
	Method     string `json:"method"`
	Topic      string `json:"topic" api:"null"`
	Ref        string `json:"ref" api:"null"`
	LockKey    string `json:"lock_key" api:"null"`
	Order      string `json:"order" api:"null" schema:"enum: [strict, null]"`
	Lane       string `json:"lane"`

	Labels map[string]string `json:"labels"`
	State  State             `json:"state"`
	// Why the callback finished. For a poll that succeeded: success, failure or resolved.
	Reason TerminalReason `json:"reason" api:"null" schema:"type: string"`
	// Null: the callback has finished.
	DueAt time.Time `json:"due_at" api:"null"`
	// Number of counted attempts.
	AttemptCount int `json:"attempt_count"`
	DivertCount  int `json:"divert_count"`
	// Null: the last tier repeats.
	MaxAttempts *int       `json:"max_attempts" api:"null"`
	Tiers       []Duration `json:"tiers"`
	Policy      Choice     `json:"policy" schema:"$ref: PolicyChoice"`
	// For a poll: its conditions.
	Success Choice `json:"success" schema:"$ref: CallbackSuccess"`
	// Null: the signer that the endpoint has at the time of the attempt.
	Signer     Choice    `json:"signer" schema:"$ref: SignerChoice"`
	LastStatus int       `json:"last_status" api:"null"`
	LastClass  Class     `json:"last_class" api:"null" schema:"type: string"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	FinishedAt time.Time `json:"finished_at" api:"null"`
	ExpiresAt  time.Time `json:"expires_at" api:"null"`
	Version    *int64    `json:"version" api:"null"`
	// Only in responses to GET: the id of the API key, schedule or poll that created the callback, or "admin
	// key". "relay": the server read it from an outbox table. Absent if it is not known, and for keys of one
	// endpoint.
	CreatedBy string `json:"created_by,omitempty"`
	// Present only if true: an earlier request created the callback.
	Replayed bool `json:"replayed,omitempty"`
}

// A CallbackResult is the result for one callback of a batch: the callback, or the reason why none was
// created.
type CallbackResult struct {
	Status   int       `json:"status"`
	Callback *Callback `json:"callback,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
}

// A Change has the reason of a change.
type Change struct {
	// Reason for the audit log.
	Reason string `json:"reason,omitempty" schema:"$ref: Reason"`
}

// A CancelResult is the result of canceling a callback.
type CancelResult struct {
	// canceled: no further attempt starts. too_late: an attempt is in flight; its success counts, otherwise
	// the callback ends as canceled. already_terminal: the callback had finished before and stays unchanged.
	Result   string   `json:"result" schema:"enum: [canceled, too_late, already_terminal]"`
	Callback Callback `json:"callback"`
}

// A CancelRequest selects the callbacks to cancel.
type CancelRequest struct {
	Ref   string `json:"ref" api:"required"`
	Topic string `json:"topic,omitempty"`
	// Also return the callbacks that had already finished, as already_terminal, after the others. The
	// response then has the state of every matching callback.
	IncludeTerminal bool `json:"include_terminal,omitempty" schema:"default: false"`
	Change
}

// A RetryRequest starts an attempt now.
type RetryRequest struct {
	// For a finished callback. once: one more attempt; if it fails, state and reason stay the same. restart:
	// a new retry schedule from tier 1.
	Ladder string `json:"ladder,omitempty" schema:"enum: [once, restart, null], default: once"`
	// Replaces the callback's URL.
	URL string `json:"url,omitempty"`
	Change
}

// A RescheduleRequest moves a callback to another time. It requires exactly one of due_at and delay.
type RescheduleRequest struct {
	DueAt time.Time `json:"due_at,omitzero"`
	Delay Duration  `json:"delay,omitempty"`
	Change
}

// A CallbackPatch changes a scheduled or dead callback. Fields that are left out stay unchanged.
type CallbackPatch struct {
	URL Optional[string] `json:"url,omitzero"`
	// Replaces all headers. An empty object removes them.
	Headers Optional[Headers] `json:"headers,omitzero"`
	Policy  Choice            `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	// Counted from now. Null: the callback no longer expires.
	ExpiresIn Optional[Duration] `json:"expires_in,omitzero"`
	Change
}

// A Filter selects the callbacks that match all of its fields. The zero Filter selects all callbacks.
type Filter struct {
	// Any of these states.
	State []State `json:"state,omitempty" schema:"maxItems: 5"`
	Kind  Kind    `json:"kind,omitempty" schema:"enum: [notify, poll, null]"`
	Topic string  `json:"topic,omitempty"`
	Ref   string  `json:"ref,omitempty"`
	// The endpoint's ep_ id or its external_id.
	Endpoint string `json:"endpoint,omitempty"`
	LockKey  string `json:"lock_key,omitempty"`
	Lane     string `json:"lane,omitempty"`
	// Why the callback finished.
	Reason TerminalReason `json:"reason,omitempty"`
	// Class (error type) of the last attempt.
	Class      Class `json:"class,omitempty"`
	StatusCode int   `json:"status_code,omitempty" schema:"minimum: 100, maximum: 999"`
	// Label values by name.
	Label       map[string]string `json:"label,omitempty" schema:"maxProperties: 20"`
	MinAttempts int               `json:"min_attempts,omitempty" schema:"minimum: 0"`
	// Only scheduled callbacks that are past due and not being attempted.
	Overdue bool `json:"overdue,omitempty"`
	// Created at or after this time.
	From time.Time `json:"from,omitzero"`
	// Created before this time.
	To time.Time `json:"to,omitzero"`
	// Finished at or after this time.
	FinishedFrom time.Time `json:"finished_from,omitzero"`
	// Finished before this time.
	FinishedTo time.Time `json:"finished_to,omitzero"`
}

// Query returns the filter as the query parameters of GET /v1/callbacks.
func (f Filter) Query() url.Values {
	q := params{
		"kind": string(f.Kind), "topic": f.Topic, "ref": f.Ref, "endpoint": f.Endpoint, "lock_key": f.LockKey,
		"lane": f.Lane, "reason": string(f.Reason), "class": string(f.Class),
		"status_code": number(f.StatusCode), "min_attempts": number(f.MinAttempts), "overdue": yes(f.Overdue),
		"from": instant(f.From), "to": instant(f.To),
		"finished_from": instant(f.FinishedFrom), "finished_to": instant(f.FinishedTo),
	}.query()
	for _, state := range f.State {
		q.Add("state", string(state))
	}
	for name, value := range f.Label {
		q.Set("label."+name, value)
	}
	return q
}

// Send submits a callback. When it returns without an error, the callback is committed. A request without an
// IdempotencyKey gets a random one, so that it can be sent again without a second callback.
func (c *Client) Send(ctx context.Context, r CallbackRequest) (Callback, error) {
	r.IdempotencyKey = keyed(ctx, r.IdempotencyKey)
	return accept[Callback](ctx, c, r.IdempotencyKey, r, "callbacks")
}

// Callbacks lists callbacks, newest first.
func (c *Client) Callbacks(f Filter) List[Callback] {
	return list[Callback](c, f.Query(), "callbacks")
}

// CallbacksByDue lists open callbacks by due time, earliest first.
func (c *Client) CallbacksByDue(f Filter) List[Callback] {
	q := f.Query()
	q.Set("order", "due")
	return list[Callback](c, q, "callbacks")
}

// Callback returns one callback.
func (c *Client) Callback(ctx context.Context, id string) (Callback, error) {
	return read[Callback](ctx, c, nil, "callbacks", id)
}

// PatchCallback changes a scheduled or dead callback. The payload cannot be changed.
func (c *Client) PatchCallback(ctx context.Context, id string, r CallbackPatch) (Callback, error) {
	return call[Callback](ctx, c, "PATCH", r, "callbacks", id)
}

// CancelCallback cancels a callback.
func (c *Client) CancelCallback(ctx context.Context, id, reason string) (CancelResult, error) {
	return call[CancelResult](ctx, c, "POST", Change{reason}, "callbacks", id, "cancel")
}

// CancelCallbacks cancels all open callbacks with a reference. It returns at most 1000 results.
func (c *Client) CancelCallbacks(ctx context.Context, r CancelRequest) ([]CancelResult, error) {
	out, err := call[Page[CancelResult]](ctx, c, "POST", r, "callbacks", "cancel")
	return out.Data, err
}

// RetryCallback starts an attempt of a callback now.
func (c *Client) RetryCallback(ctx context.Context, id string, r RetryRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "callbacks", id, "retry")
}

// RescheduleCallback moves a scheduled callback, or revives a dead one, at another time.
func (c *Client) RescheduleCallback(ctx context.Context, id string, r RescheduleRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "callbacks", id, "reschedule")
}

// A Payload is the body that a callback sends.
type Payload struct {
	Body []byte
	// Masked is true if the middle digits of card numbers in Body are masked.
	Masked bool
}

// Payload returns the body that a callback sends.
func (c *Client) Payload(ctx context.Context, id string) (Payload, error) {
	a, err := c.get(ctx, 0, nil, "callbacks", id, "payload")
	return Payload{a.Body, a.Header.Get(MaskedHeader) != ""}, err
}
