package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Secrets returns the project's secrets, newest first: the present one and those that still sign beside it at now.
func (db *DB) Secrets(ctx context.Context, project string, now int64) ([]store.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	var secrets []store.Secret
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var s store.Secret
		if err := rows.Scan(&s.ID, &s.Project, &s.KeyID, &s.Ciphertext, &s.CreatedAt, &s.RetiredAt); err != nil {
			return err
		}
		secrets = append(secrets, s)
		return nil
	}, `SELECT id, project, key_id, ciphertext, created_at, retired_at FROM secrets
		WHERE project = $1 AND (retired_at = 0 OR retired_at > $2)
		ORDER BY CASE WHEN retired_at = 0 THEN 0 ELSE 1 END, retired_at DESC, id DESC`, project, now)
	if err != nil {
		return nil, readError("read secrets", err)
	}
	return secrets, nil
}

// AddSecret stores a new present secret and retires the present one, if any, at retireAt. With onlyIfNone it does nothing
// if the project has one already.
func (db *DB) AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error {
	err := db.change(ctx, func(t *tx) error {
		if !onlyIfNone {
			if _, err := t.exec(`UPDATE secrets SET retired_at = $1 WHERE project = $2 AND retired_at = 0 AND id <> $3`,
				retireAt, s.Project, s.ID); err != nil {
				return fmt.Errorf("retire the present one: %w", err)
			}
		}
		// At most one secret of a project is present: a unique index says so to whoever starts at the same time.
		n, err := t.exec(`INSERT INTO secrets (id, project, key_id, ciphertext, created_at, retired_at)
			VALUES ($1, $2, $3, $4, $5, 0)
			ON CONFLICT DO NOTHING`, s.ID, s.Project, s.KeyID, s.Ciphertext, s.CreatedAt)
		if err != nil || n == 0 {
			return err
		}
		entry, err := auditOf(s.Project, actionAddSecret, s.ID, s.CreatedAt, by, map[string]any{"key_id": s.KeyID})
		if err != nil {
			return err
		}
		return t.audit(entry)
	})
	if err != nil {
		return fmt.Errorf("add secret: %w", err)
	}
	return nil
}
