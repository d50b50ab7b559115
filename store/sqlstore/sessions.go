package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const readSession = `SELECT token, data, expires_at FROM sessions WHERE token = $1 AND expires_at > $2`

// Session returns the session with that token; store.ErrNotFound where there is none, or it has ended. Sessions belong to no project: their
// data says whose they are.
func (db *DB) Session(ctx context.Context, token string, now int64) (store.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var found []store.Session
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var s store.Session
		err := rows.Scan(&s.Token, &s.Data, &s.ExpiresAt)
		found = append(found, s)
		return err
	}, readSession, token, now)
	switch {
	case err != nil:
		return store.Session{}, readError("read session", err)
	case len(found) == 0:
		return store.Session{}, fmt.Errorf("session: %w", store.ErrNotFound) // The token is no secret, and nothing to show either.
	}
	return found[0], nil
}

// PutSession writes a session down, in the place of the one with that token.
func (db *DB) PutSession(ctx context.Context, s store.Session) error {
	data := s.Data
	if data == nil {
		data = []byte{}
	}
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO sessions (token, data, expires_at) VALUES ($1, $2, $3)
			ON CONFLICT (token) DO UPDATE SET data = excluded.data, expires_at = excluded.expires_at`, s.Token, data, s.ExpiresAt)
		return err
	})
	if err != nil {
		return fmt.Errorf("put session: %w", err)
	}
	return nil
}

// DeleteSession ends a session, if there is one.
func (db *DB) DeleteSession(ctx context.Context, token string) error {
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`DELETE FROM sessions WHERE token = $1`, token)
		return err
	})
	if err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

const oldSessions = `SELECT token FROM sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2`

// PurgeSessions removes up to limit sessions that have ended. It returns how many.
func (db *DB) PurgeSessions(ctx context.Context, now int64, limit int) (int, error) {
	n, err := db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
		n, err := t.exec(`DELETE FROM sessions WHERE token IN (`+oldSessions+`)`, now, batch)
		return int(n), err
	})
	if err != nil {
		return n, fmt.Errorf("purge sessions: %w", err)
	}
	return n, nil
}
