package client

import (
	"context"
	"time"
)

// ProjectFields are the settings of a project. In a PATCH, fields that are left out stay unchanged, and null
// restores the built-in default. Elsewhere null means not given.
type ProjectFields struct {
	Name    Optional[string]  `json:"name,omitzero" schema:"maxLength: 128"`
	Profile string            `json:"profile,omitempty"`
	Policy  Optional[Choice]  `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Optional[Choice]  `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Optional[Choice]  `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	Headers Optional[Headers] `json:"headers,omitzero"`
	// Hosts that receive headers with credentials: host or host:port.
	HeaderHosts Optional[[]string] `json:"header_hosts,omitzero" api:"most=100" schema:"maxItems: 100"`
	// Null ends the daily reconciliation.
	Reconcile Optional[ReconcileSettings] `json:"reconcile,omitzero"`
	// Requires the admin key of the settings. Fields that are left out stay unchanged; null removes all
	// quotas.
	Quotas Optional[QuotaChange] `json:"quotas,omitzero"`
	Change
}

// A ProjectRequest creates a project.
type ProjectRequest struct {
	ID string `json:"id" api:"required" schema:"pattern: \"^[a-z0-9][a-z0-9_-]{0,63}$\""`
	ProjectFields
}

// ReconcileSettings are a daily reconciliation: at that time the day before is reconciled.
type ReconcileSettings struct {
	At string `json:"at" api:"required" schema:"pattern: \"^[0-2][0-9]:[0-5][0-9]$\", examples: [\"02:00\"]"`
	// Zone of at, and in which days begin.
	Timezone string `json:"timezone" api:"required" schema:"examples: [Asia/Shanghai]"`
	// A day without a list needs attention.
	ExpectList bool `json:"expect_list,omitempty" schema:"default: false"`
}

// A QuotaChange changes quotas. Null or 0: no limit.
type QuotaChange struct {
	OpenCallbacks Optional[int64] `json:"open_callbacks,omitzero"`
	Lanes         Optional[int64] `json:"lanes,omitzero"`
}

// A Project owns callbacks and endpoints. It has defaults for the settings that they do not choose.
type Project struct {
	ID   string `json:"id"`
	Name string `json:"name" api:"null"`
	// Here and below, null: the built-in default.
	Policy  Choice `json:"policy" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer" schema:"$ref: SignerChoice"`
	// Sent with every attempt. Values of headers with credentials are shown as ***.
	Headers Headers `json:"headers"`
	// Hosts that receive headers with credentials: host or host:port. Other hosts do not get them.
	HeaderHosts []string `json:"header_hosts"`
	// Null: no daily reconciliation.
	Reconcile *ReconcileSettings `json:"reconcile" api:"null"`
	Quotas    Quotas             `json:"quotas"`
	Pause
	// Null: the project has existed from the start.
	CreatedAt time.Time `json:"created_at" api:"null"`
	// Null: never changed.
	UpdatedAt time.Time `json:"updated_at" api:"null"`
}

// Quotas are the limits of a project. Null or 0: no limit. A new quota removes nothing that already exists.
// Changing quotas requires the admin key of the settings; other keys get 403.
type Quotas struct {
	// Maximum number of open callbacks. At the limit, new callbacks are rejected: 429 open_callbacks_quota. A
	// repeated request with an idempotency key still gets its first callback. Retries, redrives, results of
	// polls and operational events are never rejected. Callbacks that other processes accept are counted
	// within a second.
	OpenCallbacks int64 `json:"open_callbacks" api:"null" schema:"minimum: 0, maximum: 1000000000"`
	// Maximum number of lanes: one for each host of plain URLs, each named lane and each endpoint. At the
	// limit, no lane is created: 429 lanes_quota. A lane is never removed, not even that of a deleted
	// endpoint. The result of a poll may create a lane above the limit.
	Lanes int64 `json:"lanes" api:"null" schema:"minimum: 0, maximum: 1000000000"`
}

// Projects lists projects by id: all of them for the admin key of the settings, only its own for any other
// key.
func (c *Client) Projects() List[Project] { return list[Project](c, nil, "projects") }

// Project returns one project.
func (c *Client) Project(ctx context.Context, id string) (Project, error) {
	return read[Project](ctx, c, nil, "projects", id)
}

// CreateProject creates a project. It requires the admin key of the settings.
func (c *Client) CreateProject(ctx context.Context, r ProjectRequest) (Project, error) {
	return call[Project](ctx, c, "POST", r, "projects")
}

// PatchProject changes the given fields of a project.
func (c *Client) PatchProject(ctx context.Context, id string, r ProjectFields) (Project, error) {
	return call[Project](ctx, c, "PATCH", r, "projects", id)
}

// A Scope is a permission of a key.
type Scope string

const (
	ScopeSend    Scope = "send"
	ScopeRead    Scope = "read"
	ScopeOperate Scope = "operate"
	ScopeAdmin   Scope = "admin"
	// ScopeResend is only for a key of one endpoint.
	ScopeResend Scope = "resend"
)

// A KeyRequest creates an API key.
type KeyRequest struct {
	Name   string  `json:"name" api:"required" schema:"minLength: 1, maxLength: 128"`
	Scopes []Scope `json:"scopes" api:"required,most=10" schema:"minItems: 1"`
	// Id or external id of an endpoint. The key then reaches only the callbacks of that endpoint: with the
	// scope read it lists and reads them, with resend it also sends them again.
	Endpoint  string   `json:"endpoint,omitempty"`
	ExpiresIn Duration `json:"expires_in,omitempty"`
	Change
}

// A Key is an API key. The server stores only a hash and the end of its text.
type Key struct {
	ID      string  `json:"id" schema:"pattern: \"^key_\""`
	Project string  `json:"project"`
	Name    string  `json:"name"`
	Scopes  []Scope `json:"scopes"`
	// Null: the key is for the whole project.
	EndpointID string `json:"endpoint_id" api:"null"`
	// End of the key's text.
	Hint      string    `json:"hint"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at" api:"null"`
	RevokedAt time.Time `json:"revoked_at" api:"null"`
	// Accurate to a minute.
	LastUsedAt time.Time `json:"last_used_at" api:"null"`
}

// A NewKey is a new key with its text. The server cannot show the text again.
type NewKey struct {
	Key
	Text string `json:"key" schema:"pattern: \"^dk_\""`
}

// Keys lists the project's API keys, newest first, including expired and revoked keys.
func (c *Client) Keys() List[Key] { return list[Key](c, nil, "keys") }

// CreateKey creates an API key.
func (c *Client) CreateKey(ctx context.Context, r KeyRequest) (NewKey, error) {
	return call[NewKey](ctx, c, "POST", r, "keys")
}

// RevokeKey revokes a key at once. The key stays in the list.
func (c *Client) RevokeKey(ctx context.Context, id, reason string) (Key, error) {
	return call[Key](ctx, c, "DELETE", Change{reason}, "keys", id)
}
