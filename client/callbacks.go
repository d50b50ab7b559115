package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/url"
	"time"
)

// A Kind is what a callback does.
type Kind string

const (
	Notify Kind = "notify" // it hands something over
	Poll   Kind = "poll"   // it asks until the answer is final
)

// A State is where a callback is between its accept and its end.
type State string

const (
	Scheduled  State = "scheduled"
	Attempting State = "attempting"
	Succeeded  State = "succeeded"
	Dead       State = "dead"
	Canceled   State = "canceled"
)

// A TerminalReason is why a callback is terminal.
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

// A CallbackRequest asks for a callback. It needs URL or Endpoint, and a body unless the method has none.
// The same type
// is the body of an event, the template of a schedule, the result of a poll and its request; each of these
// lacks some
// fields, which the server refuses there.
type CallbackRequest struct {
	// With an endpoint: it replaces only the address, if the endpoint's url_override allows it.
	URL string `json:"url,omitempty"`
	// An endpoint's id, or the caller's own name for it.
	Endpoint string  `json:"endpoint,omitempty"`
	Method   string  `json:"method,omitempty" schema:"default: POST"`
	Headers  Headers `json:"headers,omitempty"`
	Topic    string  `json:"topic,omitempty"`
	Ref      string  `json:"ref,omitempty" schema:"maxLength: 256"`
	// JSON; its bytes are sent as they stand in the request. One of payload, body and body_base64.
	Payload     json.RawMessage `json:"payload,omitempty"`
	Body        *string         `json:"body,omitempty"`
	BodyBase64  *[]byte         `json:"body_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
	// Policy, success rule, signer and time-out in one word; what stands beside it comes first.
	Profile string `json:"profile,omitempty"`
	Policy  Choice `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	// At most one of due_at and delay. A time in the past is now.
	DueAt     time.Time `json:"due_at,omitzero"`
	Delay     Duration  `json:"delay,omitempty"`
	ExpiresIn Duration  `json:"expires_in,omitempty"`
	LockKey   string    `json:"lock_key,omitempty" schema:"maxLength: 256"`
	// strict: it starts only after all with the same lock_key that were accepted before it are terminal.
	Order string `json:"order,omitempty" schema:"enum: [strict, null]"`
	Lane  string `json:"lane,omitempty" schema:"maxLength: 128"`
	// Older ones of the same ref and topic are canceled. It needs ref, topic and version.
	Supersede    bool   `json:"supersede,omitempty" schema:"default: false"`
	Version      *int64 `json:"version,omitempty"`
	StartAttempt int    `json:"start_attempt,omitempty" schema:"minimum: 1, default: 1"`
	// Kept while the callback is open and at least 7 days. One sent by itself and one in a batch share
	// their keys.
	IdempotencyKey string            `json:"idempotency_key,omitempty" schema:"minLength: 1, maxLength: 256"`
	Labels         map[string]string `json:"labels,omitempty" schema:"maxProperties: 20"`
}

// A Callback is one HTTP obligation that is attempted until it is terminal.
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
	// Why it is terminal; of a poll that succeeded: success, failure or resolved.
	Reason TerminalReason `json:"reason" api:"null" schema:"type: string"`
	// null when terminal.
	DueAt time.Time `json:"due_at" api:"null"`
	// Charged attempts.
	AttemptCount int `json:"attempt_count"`
	DivertCount  int `json:"divert_count"`
	// null where the last tier repeats.
	MaxAttempts *int       `json:"max_attempts" api:"null"`
	Tiers       []Duration `json:"tiers"`
	Policy      Choice     `json:"policy" schema:"$ref: PolicyChoice"`
	// Of a poll: its rule.
	Success Choice `json:"success" schema:"$ref: ShownSuccess"`
	// null: its endpoint's, as it is whenever it is sent.
	Signer     Choice    `json:"signer" schema:"$ref: SignerChoice"`
	LastStatus int       `json:"last_status" api:"null"`
	LastClass  Class     `json:"last_class" api:"null" schema:"type: string"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
	FinishedAt time.Time `json:"finished_at" api:"null"`
	ExpiresAt  time.Time `json:"expires_at" api:"null"`
	Version    *int64    `json:"version" api:"null"`
	// Only where it is true.
	Replayed bool `json:"replayed,omitempty"`
}

// A CallbackResult is what became of one callback of a batch: the callback, or why there is none.
type CallbackResult struct {
	Status   int       `json:"status"`
	Callback *Callback `json:"callback,omitempty"`
	Problem  *Problem  `json:"problem,omitempty"`
}

// A Change says why something is done.
type Change struct {
	// For the audit.
	Reason string `json:"reason,omitempty" schema:"$ref: Reason"`
}

// A CancelResult is what became of a callback that was to be canceled.
type CancelResult struct {
	// canceled: no attempt will start any more. too_late: one is in flight; its success counts, else it
	// ends canceled.
	Result   string   `json:"result" schema:"enum: [canceled, too_late, already_terminal]"`
	Callback Callback `json:"callback"`
}

// A CancelRequest says which callbacks are to be canceled.
type CancelRequest struct {
	Ref   string `json:"ref" api:"required"`
	Topic string `json:"topic,omitempty"`
	// Answer those too that had ended already, as already_terminal, behind the others: what has become of
	// each is known in any case.
	IncludeTerminal bool `json:"include_terminal,omitempty" schema:"default: false"`
	Change
}

// A RetryRequest asks for an attempt now.
type RetryRequest struct {
	// For a terminal one. once: a failure leaves state and reason as they were. restart: a new ladder from
	// tier 1.
	Ladder string `json:"ladder,omitempty" schema:"enum: [once, restart, null], default: once"`
	// Replaces the callback's address.
	URL string `json:"url,omitempty"`
	Change
}

// A RescheduleRequest moves a callback. It needs exactly one of DueAt and Delay.
type RescheduleRequest struct {
	DueAt time.Time `json:"due_at,omitzero"`
	Delay Duration  `json:"delay,omitempty"`
	Change
}

// A CallbackPatch changes a callback that is scheduled or dead. What is left out stays.
type CallbackPatch struct {
	URL Optional[string] `json:"url,omitzero"`
	// All of them; an empty object takes them away.
	Headers Optional[Headers] `json:"headers,omitzero"`
	Policy  Choice            `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	// From now on; null: it does not expire any more.
	ExpiresIn Optional[Duration] `json:"expires_in,omitzero"`
	Change
}

// A Filter says which callbacks are meant: those that fit all of its fields. The zero Filter is all of
// them.
type Filter struct {
	// Any of these.
	State []State `json:"state,omitempty" schema:"maxItems: 5"`
	Kind  Kind    `json:"kind,omitempty" schema:"enum: [notify, poll, null]"`
	Topic string  `json:"topic,omitempty"`
	Ref   string  `json:"ref,omitempty"`
	// An endpoint's id, or the caller's own name for it.
	Endpoint string `json:"endpoint,omitempty"`
	LockKey  string `json:"lock_key,omitempty"`
	Lane     string `json:"lane,omitempty"`
	// Why it is terminal.
	Reason TerminalReason `json:"reason,omitempty"`
	// The class of the last attempt.
	Class      Class `json:"class,omitempty"`
	StatusCode int   `json:"status_code,omitempty" schema:"minimum: 100, maximum: 999"`
	// The values of labels by their names.
	Label       map[string]string `json:"label,omitempty" schema:"maxProperties: 20"`
	MinAttempts int               `json:"min_attempts,omitempty" schema:"minimum: 0"`
	// Scheduled ones that are past due and not being attempted.
	Overdue bool `json:"overdue,omitempty"`
	// Created at this time or later.
	From time.Time `json:"from,omitzero"`
	// Created before this time.
	To time.Time `json:"to,omitzero"`
}

// Query returns the filter as GET /v1/callbacks takes it.
func (f Filter) Query() url.Values {
	q := params{
		"kind": string(f.Kind), "topic": f.Topic, "ref": f.Ref, "endpoint": f.Endpoint, "lock_key": f.LockKey,
		"lane": f.Lane, "reason": string(f.Reason), "class": string(f.Class),
		"status_code": number(f.StatusCode), "min_attempts": number(f.MinAttempts), "overdue": yes(f.Overdue),
		"from": instant(f.From), "to": instant(f.To),
	}.query()
	for _, state := range f.State {
		q.Add("state", string(state))
	}
	for name, value := range f.Label {
		q.Set("label."+name, value)
	}
	return q
}

// AcceptCallback accepts a callback. Its return means that the callback is committed.
func (c *Client) AcceptCallback(ctx context.Context, r CallbackRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "callbacks")
}

// AcceptCallbacks accepts at most 1000 callbacks, and returns what became of each in its place. The good
// ones are one
// commit.
func (c *Client) AcceptCallbacks(ctx context.Context, rs []CallbackRequest) ([]CallbackResult, error) {
	in := map[string][]CallbackRequest{"callbacks": rs}
	out, err := call[results[CallbackResult]](ctx, c, "POST", in, "callbacks", "batch")
	return out.Results, err
}

// results are the answer to a batch.
type results[T any] struct {
	Results []T `json:"results"`
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

// PatchCallback changes a callback that is scheduled or dead, never its payload.
func (c *Client) PatchCallback(ctx context.Context, id string, r CallbackPatch) (Callback, error) {
	return call[Callback](ctx, c, "PATCH", r, "callbacks", id)
}

// CancelCallback cancels a callback.
func (c *Client) CancelCallback(ctx context.Context, id, reason string) (CancelResult, error) {
	return call[CancelResult](ctx, c, "POST", Change{reason}, "callbacks", id, "cancel")
}

// CancelCallbacks cancels all open callbacks of a reference. At most 1000 are answered.
func (c *Client) CancelCallbacks(ctx context.Context, r CancelRequest) ([]CancelResult, error) {
	out, err := call[Page[CancelResult]](ctx, c, "POST", r, "callbacks", "cancel")
	return out.Data, err
}

// RetryCallback has a callback attempted now.
func (c *Client) RetryCallback(ctx context.Context, id string, r RetryRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "callbacks", id, "retry")
}

// RescheduleCallback moves a callback that is scheduled, or revives one that is dead.
func (c *Client) RescheduleCallback(ctx context.Context, id string, r RescheduleRequest) (Callback, error) {
	return call[Callback](ctx, c, "POST", r, "callbacks", id, "reschedule")
}

// A Payload is the body that a callback sends.
type Payload struct {
	Body []byte
	// Masked says that card numbers in it are shown without their middle.
	Masked bool
}

// Payload returns what a callback sends.
func (c *Client) Payload(ctx context.Context, id string) (Payload, error) {
	a, err := c.Call(ctx, "GET", pathOf("callbacks", id, "payload"), nil, nil)
	return Payload{a.Body, a.Header.Get(MaskedHeader) != ""}, err
}

// AllCallbacks yields every callback that fits the filter, newest first.
func (c *Client) AllCallbacks(ctx context.Context, f Filter) iter.Seq2[Callback, error] {
	return c.Callbacks(f).All(ctx)
}
