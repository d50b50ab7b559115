package store

import "slices"

// A Scope is a part of what a key may do.
type Scope string

// The scopes. Each of the last two includes those before it; ScopeSend includes nothing else.
const (
	// ScopeSend accepts callbacks and events.
	ScopeSend Scope = "send"
	// ScopeRead reads everything but secrets.
	ScopeRead Scope = "read"
	// ScopeOperate also changes what callbacks do: cancel, retry, pause, redrive; and endpoints.
	ScopeOperate Scope = "operate"
	// ScopeAdmin also reads and changes secrets, keys, projects and the index.
	ScopeAdmin Scope = "admin"
)

// Scopes lists every scope.
var Scopes = [...]Scope{ScopeSend, ScopeRead, ScopeOperate, ScopeAdmin}

// A Key lets a program or a person use the API for one project. The key itself is not stored: only its hash
// is.
type Key struct {
	// ID is a bare ULID, Name what people call it.
	ID      string
	Project string
	Name    string
	Scopes  []Scope
	// Hash is SHA-256 of the key's text.
	Hash []byte
	// Hint is the end of the key's text, so that people can tell keys apart.
	Hint      string
	CreatedAt int64
	// ExpiresAt and RevokedAt end it; zero: never. LastUsedAt is exact to within a minute.
	ExpiresAt, RevokedAt, LastUsedAt int64
}

// Allows says whether the key has a scope, by itself or by one that includes it.
func (k *Key) Allows(s Scope) bool {
	switch {
	case slices.Contains(k.Scopes, s), slices.Contains(k.Scopes, ScopeAdmin):
		return true
	case s == ScopeRead:
		return slices.Contains(k.Scopes, ScopeOperate)
	}
	return false
}

// Valid says whether the key may be used at now.
func (k *Key) Valid(now int64) bool {
	return k.RevokedAt == 0 && (k.ExpiresAt == 0 || now < k.ExpiresAt)
}

// A Session is one browser that has signed in.
type Session struct {
	// Token is a hash of what the browser's cookie says, which is not stored.
	Token string
	// Data belongs to whoever made the session. It has no secret in it.
	Data []byte
	// ExpiresAt ends it.
	ExpiresAt int64
}
