package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var sessionColumns = sqldb.Named[store.Session](`token data expires_at`)

// oneSession finds a session that has not ended, by the primary key.
const oneSession = `FROM sessions WHERE token = $1 AND expires_at > $2`

// Session returns the session with that token, or store.ErrNotFound if there is none or it has ended. A
// session belongs to no project: its data holds the user.
func (db *DB) Session(ctx context.Context, token string, now int64) (store.Session, error) {
	// The error does not name the token: a reader of the log has no use for it.
	return sqldb.Get(db.read(ctx, "read session"), "session", sessionColumns, oneSession, token, now)
}

// PutSession stores a session, and replaces the one with that token.
func (db *DB) PutSession(ctx context.Context, s store.Session) error {
	if s.Data == nil {
		s.Data = []byte{}
	}
	columns := sessionColumns(&s)
	return db.change(ctx, "store session", func(t *tx) error {
		_, err := columns.Insert(t.Tx, "sessions",
			`ON CONFLICT (token) DO UPDATE SET `+columns.Overwrite("token"))
		return err
	})
}

// DeleteSession deletes a session, if it exists.
func (db *DB) DeleteSession(ctx context.Context, token string) error {
	return db.changeBy(ctx, "delete session", `DELETE FROM sessions WHERE token = $1`, token)
}

// oldSessions finds ended sessions by the index sessions_expiry.
const oldSessions = `SELECT token FROM sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2`

// PurgeSessions deletes up to limit sessions that have ended. It returns how many.
func (db *DB) PurgeSessions(ctx context.Context, now int64, limit int) (int, error) {
	return db.deleteBatches(ctx, "purge sessions", limit,
		`DELETE FROM sessions WHERE token IN (`+oldSessions+`)`, now)
}
