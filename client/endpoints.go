package client

import (
	"context"
	"net/http"
	"time"
)

// EndpointFields are the settings of an endpoint. In a PATCH, fields that are left out stay unchanged, and
// null removes a value. Elsewhere null means not given.
type EndpointFields struct {
	// The caller's own id for the endpoint, unique in the project.
	ExternalID Optional[string] `json:"external_id,omitzero" schema:"maxLength: 128"`
	Name       Optional[string] `json:"name,omitzero" schema:"maxLength: 128"`
	URL        Optional[string] `json:"url,omitzero"`
	// Whether a callback may set its own URL.
	URLOverride Optional[string] `json:"url_override,omitzero" schema:"$ref: URLOverride"`
	// Events that the endpoint receives: payment.succeeded, payment.*, or * for all.
	Topics  Optional[[]string] `json:"topics,omitzero" api:"most=101" schema:"maxItems: 100"`
	Profile string             `json:"profile,omitempty"`
	// Used for callbacks that have none. Null: the project's default.
	Policy  Optional[Choice] `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Optional[Choice] `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Optional[Choice] `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	// Sent with every attempt. A callback's header with the same name replaces it.
	Headers Optional[Headers] `json:"headers,omitzero"`
	Rate    Optional[string]  `json:"rate,omitzero" schema:"$ref: RateOrNull"`
	// Maximum number of attempts in flight. Null: the setting lane_concurrency.
	Concurrency Optional[int] `json:"concurrency,omitzero" schema:"minimum: 1, maximum: 10000"`
	// False: callbacks are accepted but not sent.
	Enabled *bool `json:"enabled,omitempty" schema:"default: true"`
	// Signing secret in the format of the signer. Not given: the server generates one if the signer allows
	// that.
	Secret string `json:"secret,omitempty" api:"lines"`
	// How receivers identify the secret, such as the serial number of a certificate.
	SecretLabel string `json:"secret_label,omitempty"`
}

// An EndpointChange creates, replaces or changes an endpoint. A new endpoint requires url.
type EndpointChange struct {
	EndpointFields
	Change
}

// An Endpoint is a receiver with its own URL, secret and limits.
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
	// Values of headers with credentials are shown as ***.
	Headers     Headers `json:"headers"`
	Rate        string  `json:"rate" api:"null" schema:"$ref: RateOrNull"`
	Concurrency int     `json:"concurrency" api:"null"`
	Enabled     bool    `json:"enabled"`
	// gone: the endpoint responded with 410. requested: a caller disabled it.
	DisabledReason string `json:"disabled_reason" api:"null"`
	Pause
	Lane string `json:"lane"`
	// First failed attempt since the last successful one. Null: the last attempt succeeded.
	FailingSince  time.Time `json:"failing_since" api:"null"`
	LastSuccessAt time.Time `json:"last_success_at" api:"null"`
	LastFailureAt time.Time `json:"last_failure_at" api:"null"`
	CreatedAt     time.Time `json:"created_at"`
	UpdatedAt     time.Time `json:"updated_at"`
}

// An EndpointWithSecret is the response to creating or replacing an endpoint.
type EndpointWithSecret struct {
	Endpoint
	// Present only if this call set or generated it.
	Secret string `json:"secret,omitempty"`
	// Present with secret: the key with which receivers verify, if it is not the secret.
	Public Optional[string] `json:"public,omitzero"`
}

// An EndpointResult is the result for one endpoint of a batch: the endpoint, or the error.
type EndpointResult struct {
	Status   int                 `json:"status"`
	Endpoint *EndpointWithSecret `json:"endpoint,omitempty"`
	Problem  *Problem            `json:"problem,omitempty"`
}

// An EndpointBatch creates endpoints, or replaces the endpoints that have the same external_id.
type EndpointBatch struct {
	Endpoints []EndpointFields `json:"endpoints" api:"required" schema:"minItems: 1, maxItems: 1000"`
	Change
}

// An EndpointFilter selects endpoints. The zero filter selects all.
type EndpointFilter struct {
	// Search is a part of the name, the URL or the external id. Case does not matter.
	Search string
	// Topic selects the endpoints that receive events with this topic.
	Topic string
	// Held selects the endpoints that are paused or disabled. Failing selects those whose last attempt
	// failed.
	Held, Failing bool
}

// CreateEndpoint creates an endpoint.
func (c *Client) CreateEndpoint(ctx context.Context, r EndpointChange) (EndpointWithSecret, error) {
	return call[EndpointWithSecret](ctx, c, "POST", r, "endpoints")
}

// PutEndpoint creates the endpoint with an external id, or replaces it completely.
func (c *Client) PutEndpoint(
	ctx context.Context, externalID string, r EndpointChange,
) (EndpointWithSecret, error) {
	return call[EndpointWithSecret](ctx, c, "PUT", r, "endpoints", "by-external-id", externalID)
}

// PutEndpoints creates or replaces at most 1000 endpoints, and returns the result of each at the same index.
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

// EndpointByExternalID returns the endpoint with that external id.
func (c *Client) EndpointByExternalID(ctx context.Context, externalID string) (Endpoint, error) {
	return read[Endpoint](ctx, c, nil, "endpoints", "by-external-id", externalID)
}

// PatchEndpoint changes the given fields of an endpoint.
func (c *Client) PatchEndpoint(ctx context.Context, id string, r EndpointChange) (Endpoint, error) {
	return call[Endpoint](ctx, c, "PATCH", r, "endpoints", id)
}

// DeleteEndpoint deletes an endpoint and cancels its open callbacks. With the server's setting
// approval_above, a redrive deletes an endpoint that has open callbacks, and may await an approval. Then
// DeleteEndpoint returns the redrive, else nil.
func (c *Client) DeleteEndpoint(ctx context.Context, id, reason string) (*Redrive, error) {
	a, err := c.Call(ctx, http.MethodDelete, pathOf("endpoints", id), Change{reason}, nil)
	if err != nil || a.Status == http.StatusNoContent {
		return nil, err
	}
	r := new(Redrive)
	return r, c.decode(a, r)
}

// PauseEndpoint pauses sending to an endpoint. Its callbacks are still accepted.
func (c *Client) PauseEndpoint(ctx context.Context, id string, r PauseRequest) (Endpoint, error) {
	return call[Endpoint](ctx, c, "POST", r, "endpoints", id, "pause")
}

// ResumeEndpoint ends a pause.
func (c *Client) ResumeEndpoint(ctx context.Context, id, reason string) (Endpoint, error) {
	return call[Endpoint](ctx, c, "POST", Change{reason}, "endpoints", id, "resume")
}

// TestEndpoint sends a callback with the topic dispatcher.test to an endpoint, with a single attempt.
func (c *Client) TestEndpoint(ctx context.Context, id, reason string) (Callback, error) {
	return call[Callback](ctx, c, "POST", Change{reason}, "endpoints", id, "test")
}

// EndpointSecret returns the signing secret of an endpoint. The audit log records the read.
func (c *Client) EndpointSecret(ctx context.Context, id string) (Secret, error) {
	return read[Secret](ctx, c, nil, "endpoints", id, "secret")
}

// RotateEndpointSecret gives an endpoint a new secret. The old secret also signs until its overlap ends.
func (c *Client) RotateEndpointSecret(ctx context.Context, id string, r Rotation) (RotatedSecret, error) {
	return call[RotatedSecret](ctx, c, "POST", r, "endpoints", id, "rotate_secret")
}

// A ViewLinkRequest creates a link to the page of an endpoint for its merchant.
type ViewLinkRequest struct {
	// From 1m to 90d.
	ExpiresIn Duration `json:"expires_in,omitempty" schema:"default: 1h"`
	// The merchant may also send its callbacks again.
	Resend bool `json:"resend,omitempty"`
	// Origins whose pages may show the merchant's page in a frame, such as https://portal.example. Not given:
	// none.
	Embed []string `json:"embed,omitempty" api:"most=11" schema:"maxItems: 10"`
	// Not given: the language of the reader's browser.
	Lang string `json:"lang,omitempty" schema:"enum: [en, zh-CN]"`
	Change
}

// A ViewLink is a link to the page of an endpoint for its merchant. Anyone who has the link can use it.
type ViewLink struct {
	// A path, if the setting public_url is empty.
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expires_at"`
}

// CreateViewLink creates a link to the callbacks of an endpoint, for its merchant. The link is not stored and
// cannot be shown again.
func (c *Client) CreateViewLink(ctx context.Context, id string, r ViewLinkRequest) (ViewLink, error) {
	return call[ViewLink](ctx, c, "POST", r, "endpoints", id, "view_link")
}

// RevokeViewLinks ends all links to the callbacks of an endpoint at once.
func (c *Client) RevokeViewLinks(ctx context.Context, id, reason string) (Endpoint, error) {
	return call[Endpoint](ctx, c, "POST", Change{reason}, "endpoints", id, "view_link", "revoke")
}
