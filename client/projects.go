package client

import (
	"context"
	"time"
)

// A ProjectFields is what a project can be given. In a PATCH what is left out stays, and null has a
// default be the
// program's again; elsewhere both are not given.
type ProjectFields struct {
	Name    Optional[string]  `json:"name,omitzero" schema:"maxLength: 128"`
	Profile string            `json:"profile,omitempty"`
	Policy  Optional[Choice]  `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Optional[Choice]  `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Optional[Choice]  `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	Headers Optional[Headers] `json:"headers,omitzero"`
	// Hosts that headers which are credentials go to: host or host:port.
	HeaderHosts Optional[[]string] `json:"header_hosts,omitzero" api:"most=100" schema:"maxItems: 100"`
	// Only with the admin key of the settings. What is left out stays; null takes all away.
	Quotas Optional[QuotaChange] `json:"quotas,omitzero"`
	Change
}

// A ProjectRequest makes a project.
type ProjectRequest struct {
	ID string `json:"id" api:"required" schema:"pattern: \"^[a-z0-9][a-z0-9_-]{0,63}$\""`
	ProjectFields
}

// A QuotaChange changes quotas; null or 0: no bound.
type QuotaChange struct {
	OpenCallbacks Optional[int64] `json:"open_callbacks,omitzero"`
	Lanes         Optional[int64] `json:"lanes,omitzero"`
}

// A Project is whose the callbacks are; it has defaults for what they do not choose.
type Project struct {
	ID   string `json:"id"`
	Name string `json:"name" api:"null"`
	// Here and below, null: the program's default.
	Policy  Choice `json:"policy" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer" schema:"$ref: SignerChoice"`
	// Sent with every attempt. Values of those that carry credentials are shown as ***.
	Headers Headers `json:"headers"`
	// Hosts that those of the headers go to which are credentials: host or host:port. To all others they
	// are not sent.
	HeaderHosts []string `json:"header_hosts"`
	Quotas      Quotas   `json:"quotas"`
	Pause
	// null: it was there from the beginning.
	CreatedAt time.Time `json:"created_at" api:"null"`
	// null: it has never been changed.
	UpdatedAt time.Time `json:"updated_at" api:"null"`
}

// Quotas are how much a project may have; null or 0: no bound. What there is when a quota is set stays,
// also above it.
// Only the admin key of the settings may change quotas (403).
type Quotas struct {
	// Callbacks that are not terminal. Above it nothing new is accepted: 429 open_callbacks_quota. A
	// repetition by
	// idempotency key is answered; retries, redrives, results of polls and operational events are not
	// refused. What
	// other processes accept is counted within a second.
	OpenCallbacks int64 `json:"open_callbacks" api:"null" schema:"minimum: 0, maximum: 1000000000"`
	// Lanes: hosts of plain addresses, lanes that are named, endpoints. Above it no new one is made: 429
	// lanes_quota. A
	// lane is never removed, that of a deleted endpoint neither. A poll tells its result in a lane above
	// it.
	Lanes int64 `json:"lanes" api:"null" schema:"minimum: 0, maximum: 1000000000"`
}

// Projects lists projects by id: all of them for the admin key of the settings, its own for any other.
func (c *Client) Projects() List[Project] { return list[Project](c, nil, "projects") }

// Project returns one project.
func (c *Client) Project(ctx context.Context, id string) (Project, error) {
	return read[Project](ctx, c, nil, "projects", id)
}

// CreateProject makes a project. Only the admin key of the settings may.
func (c *Client) CreateProject(ctx context.Context, r ProjectRequest) (Project, error) {
	return call[Project](ctx, c, "POST", r, "projects")
}

// PatchProject changes what is given of a project.
func (c *Client) PatchProject(ctx context.Context, id string, r ProjectFields) (Project, error) {
	return call[Project](ctx, c, "PATCH", r, "projects", id)
}

// A Scope is what a key may do.
type Scope string

const (
	ScopeSend    Scope = "send"
	ScopeRead    Scope = "read"
	ScopeOperate Scope = "operate"
	ScopeAdmin   Scope = "admin"
)

// A KeyRequest makes an API key.
type KeyRequest struct {
	Name      string   `json:"name" api:"required" schema:"minLength: 1, maxLength: 128"`
	Scopes    []Scope  `json:"scopes" api:"required,most=10" schema:"minItems: 1"`
	ExpiresIn Duration `json:"expires_in,omitempty"`
	Change
}

// A Key is an API key, of whose text only the end is known.
type Key struct {
	ID      string  `json:"id" schema:"pattern: \"^key_\""`
	Project string  `json:"project"`
	Name    string  `json:"name"`
	Scopes  []Scope `json:"scopes"`
	// The end of its text.
	Hint      string    `json:"hint"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at" api:"null"`
	RevokedAt time.Time `json:"revoked_at" api:"null"`
	// Exact to within a minute.
	LastUsedAt time.Time `json:"last_used_at" api:"null"`
}

// A NewKey is a key that was made, with its text, which nothing can show again.
type NewKey struct {
	Key
	Text string `json:"key" schema:"pattern: \"^dk_\""`
}

// Keys lists the project's API keys, newest first, those that have ended too.
func (c *Client) Keys() List[Key] { return list[Key](c, nil, "keys") }

// CreateKey makes an API key.
func (c *Client) CreateKey(ctx context.Context, r KeyRequest) (NewKey, error) {
	return call[NewKey](ctx, c, "POST", r, "keys")
}

// RevokeKey ends a key at once. It stays in the list.
func (c *Client) RevokeKey(ctx context.Context, id, reason string) (Key, error) {
	return call[Key](ctx, c, "DELETE", Change{reason}, "keys", id)
}
