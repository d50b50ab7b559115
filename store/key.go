package store

import "slices"

// A Scope is a permission of a key.
type Scope string

// The scopes. ScopeOperate includes ScopeRead. ScopeAdmin includes all scopes.
const (
	// ScopeSend allows sending callbacks and events.
	ScopeSend Scope = "send"
	// ScopeRead allows reads of everything but secrets.
	ScopeRead Scope = "read"
	// ScopeOperate also allows cancel, retry, pause and redrive, and changes of endpoints.
	ScopeOperate Scope = "operate"
	// ScopeAdmin also allows reads and changes of secrets, keys, projects and the index.
	ScopeAdmin Scope = "admin"
	// ScopeResend is only for a key of one endpoint. It allows sending a callback of the endpoint again.
	ScopeResend Scope = "resend"
)

// Scopes lists the scopes of a key without an endpoint.
var Scopes = [...]Scope{ScopeSend, ScopeRead, ScopeOperate, ScopeAdmin}

// A Key gives a program or a person access to the API for one project. Its text is not stored, only a hash.
type Key struct {
	// ID is a bare ULID. Name is a text for people.
	ID      string
	Project string
	Name    string
	Scopes  []Scope
	// EndpointID binds the key to one endpoint, whose callbacks are then all that it reaches. It is a bare
	// id. Empty: the key is for the whole project.
	EndpointID string
	// Hash is the SHA-256 of the key's text.
	Hash []byte
	// Hint is the end of the key's text. It helps people to distinguish keys.
	Hint      string
	CreatedAt int64
	// ExpiresAt and RevokedAt end the key. Zero: never. LastUsedAt is exact to a minute. Zero: never used.
	ExpiresAt, RevokedAt, LastUsedAt int64
}

// EndpointScopes lists the scopes of a key with an endpoint.
var EndpointScopes = [...]Scope{ScopeRead, ScopeResend}

// Allows reports whether the key has the scope in its whole project, or a scope that includes it. A key with
// an endpoint has none: see AllowsOwn.
func (k *Key) Allows(s Scope) bool {
	switch {
	case k.EndpointID != "":
		return false
	case slices.Contains(k.Scopes, s), slices.Contains(k.Scopes, ScopeAdmin):
		return true
	case s == ScopeRead:
		return slices.Contains(k.Scopes, ScopeOperate)
	}
	return false
}

// AllowsOwn reports whether the key has the scope for the callbacks of its endpoint. ScopeResend includes
// ScopeRead.
func (k *Key) AllowsOwn(s Scope) bool {
	if k.EndpointID == "" {
		return false
	}
	return slices.Contains(k.Scopes, s) || s == ScopeRead && slices.Contains(k.Scopes, ScopeResend)
}

// Valid reports whether the key is neither revoked nor expired at now.
func (k *Key) Valid(now int64) bool {
	return k.RevokedAt == 0 && (k.ExpiresAt == 0 || now < k.ExpiresAt)
}

// A Session is the session of a browser in the admin UI.
type Session struct {
	// Token is a hash of the browser's cookie. The cookie itself is not stored.
	Token string
	// Data is in the format of the component that created the session. It has no secrets.
	Data []byte
	// ExpiresAt is the end of the session.
	ExpiresAt int64
}
