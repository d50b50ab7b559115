package client

import (
	"context"
	"time"
)

// An EndpointFields is what a caller sets of an endpoint. In a PATCH what is left out stays, and null
// takes it away;
// elsewhere both are not given.
type EndpointFields struct {
	// The caller's own name for it, unique in the project.
	ExternalID Optional[string] `json:"external_id,omitzero" schema:"maxLength: 128"`
	Name       Optional[string] `json:"name,omitzero" schema:"maxLength: 128"`
	URL        Optional[string] `json:"url,omitzero"`
	// Whether a callback may bring an address of its own.
	URLOverride Optional[string] `json:"url_override,omitzero" schema:"enum: [deny, same_host, any, null], default: deny"`
	// The events that it receives: payment.succeeded, payment.*, or * for all.
	Topics  Optional[[]string] `json:"topics,omitzero" api:"most=101" schema:"maxItems: 100"`
	Profile string             `json:"profile,omitempty"`
	// What callbacks get that bring none; null: the project's.
	Policy  Optional[Choice] `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Optional[Choice] `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Optional[Choice] `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	// Sent with every attempt; those of a callback replace those of the same name.
	Headers Optional[Headers] `json:"headers,omitzero"`
	Rate    Optional[string]  `json:"rate,omitzero" schema:"$ref: RateOrNull"`
	// Attempts in flight at most; null: the setting lane_concurrency.
	Concurrency Optional[int] `json:"concurrency,omitzero" schema:"minimum: 1, maximum: 10000"`
	// false: callbacks are accepted and held.
	Enabled *bool `json:"enabled,omitempty" schema:"default: true"`
	// The secret that signs, as its signer wants it; none: one is made where that can be done.
	Secret string `json:"secret,omitempty" api:"lines"`
	// What receivers know the secret by, such as a certificate's serial number.
	SecretLabel string `json:"secret_label,omitempty"`
}

// An EndpointChange makes, replaces or changes an endpoint. A new one needs URL.
type EndpointChange struct {
	EndpointFields
	Change
}

// An Endpoint is a receiver with an address, a secret and limits of its own.
type Endpoint struct {
	ID          string   `json:"id" schema:"pattern: \"^ep_\""`
	ExternalID  string   `json:"external_id" api:"null"`
	Name        string   `json:"name" api:"null"`
	URL         string   `json:"url"`
	URLOverride string   `json:"url_override" schema:"enum: [deny, same_host, any]"`
	Topics      []string `json:"topics"`
	Policy      Choice   `json:"policy" schema:"$ref: PolicyChoice"`
	Success     Choice   `json:"success" schema:"$ref: SuccessChoice"`
	Signer      Choice   `json:"signer" schema:"$ref: SignerChoice"`
	// Values of those that carry credentials are shown as ***.
	Headers     Headers `json:"headers"`
	Rate        string  `json:"rate" api:"null" schema:"$ref: RateOrNull"`
	Concurrency int     `json:"concurrency" api:"null"`
	Enabled     bool    `json:"enabled"`
	// gone (it answered 410) or requested.
	DisabledReason string `json:"disabled_reason" api:"null"`
	Pause
	Lane string `json:"lane"`
	// The first failed attempt since the last one that succeeded; null: the last one did.
	FailingSince  time.Time `json:"failing_since" api:"null"`
	LastSuccessAt time.Time `json:"last_success_at" api:"null"`
	LastFailureAt time.Time `json:"last_failure_at" api:"null"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// An EndpointWithSecret is an endpoint that was made or replaced.
type EndpointWithSecret struct {
	Endpoint
	// Only where it was made or given with this call.
	Secret string `json:"secret,omitempty"`
	// Beside it: what receivers verify with, where that is not the secret itself.
	Public Optional[string] `json:"public,omitzero"`
}

// An EndpointResult is what became of one endpoint of a batch: the endpoint, or why there is none.
type EndpointResult struct {
	Status   int                 `json:"status"`
	Endpoint *EndpointWithSecret `json:"endpoint,omitempty"`
	Problem  *Problem            `json:"problem,omitempty"`
}

// An EndpointBatch makes endpoints, or replaces those of the same external_id.
type EndpointBatch struct {
	Endpoints []EndpointFields `json:"endpoints" api:"required" schema:"minItems: 1, maxItems: 1000"`
	Change
}

// An EndpointFilter says which endpoints are listed; the zero one: all.
type EndpointFilter struct {
	// Search is a part of the name, the address or the external id, in upper or lower case.
	Search string
	// Topic lists those that receive events of this topic.
	Topic string
	// Held lists those that are paused or disabled, Failing those whose last attempt failed.
	Held, Failing bool
}

// CreateEndpoint makes an endpoint.
func (c *Client) CreateEndpoint(ctx context.Context, r EndpointChange) (EndpointWithSecret, error) {
	return call[EndpointWithSecret](ctx, c, "POST", r, "endpoints")
}

// PutEndpoint makes the endpoint of an external id, or replaces it whole.
func (c *Client) PutEndpoint(ctx context.Context, externalID string,
	r EndpointChange) (EndpointWithSecret, error) {
	return call[EndpointWithSecret](ctx, c, "PUT", r, "endpoints", "by-external-id", externalID)
}

// PutEndpoints makes or replaces at most 1000 endpoints, and returns what became of each in its place.
func (c *Client) PutEndpoints(ctx context.Context, r EndpointBatch) ([]EndpointResult, error) {
	out, err := call[results[EndpointResult]](ctx, c, "POST", r, "endpoints", "batch")
	return out.Results, err
}

// Endpoints lists endpoints, newest first.
func (c *Client) Endpoints(f EndpointFilter) List[Endpoint] {
	q := params{"search": f.Search, "topic": f.Topic, "held": yes(f.Held), "failing": yes(f.Failing)}.query()
	return list[Endpoint](c, q, "endpoints")
}

// Endpoint returns one endpoint.
func (c *Client) Endpoint(ctx context.Context, id string) (Endpoint, error) {
	return read[Endpoint](ctx, c, nil, "endpoints", id)
}

// EndpointByExternalID returns the endpoint that the caller has given that name.
func (c *Client) EndpointByExternalID(ctx context.Context, externalID string) (Endpoint, error) {
	return read[Endpoint](ctx, c, nil, "endpoints", "by-external-id", externalID)
}

// PatchEndpoint changes what is given of an endpoint.
func (c *Client) PatchEndpoint(ctx context.Context, id string, r EndpointChange) (Endpoint, error) {
	return call[Endpoint](ctx, c, "PATCH", r, "endpoints", id)
}

// DeleteEndpoint removes an endpoint. Its open callbacks are canceled.
func (c *Client) DeleteEndpoint(ctx context.Context, id, reason string) error {
	return c.remove(ctx, reason, "endpoints", id)
}

// PauseEndpoint holds what an endpoint is sent. Accepts go on.
func (c *Client) PauseEndpoint(ctx context.Context, id string, r PauseRequest) (Endpoint, error) {
	return call[Endpoint](ctx, c, "POST", r, "endpoints", id, "pause")
}

// ResumeEndpoint ends a pause.
func (c *Client) ResumeEndpoint(ctx context.Context, id, reason string) (Endpoint, error) {
	return call[Endpoint](ctx, c, "POST", Change{reason}, "endpoints", id, "resume")
}

// TestEndpoint sends an endpoint a callback of topic dispatcher.test, which is attempted once.
func (c *Client) TestEndpoint(ctx context.Context, id, reason string) (Callback, error) {
	return call[Callback](ctx, c, "POST", Change{reason}, "endpoints", id, "test")
}

// EndpointSecret returns the secret that signs for an endpoint. Reading it is audited.
func (c *Client) EndpointSecret(ctx context.Context, id string) (Secret, error) {
	return read[Secret](ctx, c, nil, "endpoints", id, "secret")
}

// RotateEndpointSecret gives an endpoint a new secret. The old one signs beside it for a while.
func (c *Client) RotateEndpointSecret(ctx context.Context, id string, r Rotation) (RotatedSecret, error) {
	return call[RotatedSecret](ctx, c, "POST", r, "endpoints", id, "rotate_secret")
}
