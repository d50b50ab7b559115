package store

// A Session is one browser that has signed in.
type Session struct {
	// Token is a hash of what the browser's cookie says, which is not stored.
	Token string
	// Data belongs to whoever made the session. It has no secret in it.
	Data []byte
	// ExpiresAt ends it.
	ExpiresAt int64
}
