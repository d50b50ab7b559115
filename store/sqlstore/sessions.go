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

// CreateSession stores a new session.
func (db *DB) CreateSession(ctx context.Context, s store.Session) error {
	return db.change(ctx, "create session", func(t *tx) error {
		_, err := storedSession(&s).Insert(t.Tx, "sessions", "")
		return err
	})
}

// UpdateSession replaces the session with that token, or returns store.ErrNotFound if it was deleted.
func (db *DB) UpdateSession(ctx context.Context, s store.Session) error {
	return db.change(ctx, "update session", func(t *tx) error {
		n, err := storedSession(&s).Update(t.Tx, "sessions", "token = $1", s.Token)
		if err == nil && n == 0 {
			err = store.ErrNotFound
		}
		return err
	})
}

// storedSession returns the columns of a session that is written. The column of the data is not NULL.
func storedSession(s *store.Session) sqldb.Columns {
	if s.Data == nil {
		s.Data = []byte{}
	}
	return sessionColumns(s)
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
