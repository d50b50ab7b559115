package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A project's root secret is in the table secrets, where an older process takes whatever it finds for one; all others are in
// owned_secrets, by their owner and use.
const (
	rootSecrets  = `SELECT id, project, '' AS owner, '' AS use, '' AS label, key_id, ciphertext, created_at, retired_at FROM secrets`
	ownedSecrets = `SELECT id, project, owner, use, label, key_id, ciphertext, created_at, retired_at FROM owned_secrets`
)

// Secrets returns the project's root secrets, newest first: the present one and the one that still signs beside it at now.
func (db *DB) Secrets(ctx context.Context, project string, now int64) ([]store.Secret, error) {
	return db.readSecrets(ctx, rootSecrets+` WHERE project = $1 AND (retired_at = 0 OR retired_at > $2)`, project, now)
}

// OwnedSecrets returns what an endpoint of the project has of each use, newest first: the present ones and those that still sign beside
// them at now. With no owner it returns the project's own, the root secrets among them.
func (db *DB) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error) {
	const valid = ` AND (retired_at = 0 OR retired_at > $3)`
	which := ownedSecrets + ` WHERE project = $1 AND owner = $2` + valid
	if owner == "" {
		which += ` UNION ALL ` + rootSecrets + ` WHERE project = $1` + valid
	}
	return db.readSecrets(ctx, which, project, owner, now)
}

func (db *DB) readSecrets(ctx context.Context, which string, args ...any) ([]store.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var secrets []store.Secret
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var s store.Secret
		if err := rows.Scan(&s.ID, &s.Project, &s.Owner, &s.Use, &s.Label, &s.KeyID, &s.Ciphertext, &s.CreatedAt, &s.RetiredAt); err != nil {
			return err
		}
		secrets = append(secrets, s)
		return nil
	}, `SELECT * FROM (`+which+`) AS found
		ORDER BY CASE WHEN retired_at = 0 THEN 0 ELSE 1 END, retired_at DESC, id DESC`, args...)
	if err != nil {
		return nil, readError("read secrets", err)
	}
	return secrets, nil
}

// AddSecret stores a new present secret of its owner and use, and retires the present one, if any, at retireAt; one that was retired
// before ends now, at the new one's CreatedAt, so that no more than two are valid. With onlyIfNone it does nothing if there is one already.
func (db *DB) AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error {
	err := db.change(ctx, func(t *tx) error {
		if t.again {
			if stored, err := t.hasSecret(&s); err != nil || stored {
				return err // An earlier try was committed, and its reply lost.
			}
		}
		if !onlyIfNone {
			if err := t.retireSecrets(&s, retireAt); err != nil {
				return err
			}
		}
		n, err := t.insertSecret(&s)
		if err != nil || n == 0 {
			return err
		}
		detail := map[string]any{"key_id": s.KeyID}
		if isOwned(&s) {
			detail["owner"], detail["use"], detail["label"] = s.Owner, s.Use, s.Label
		}
		return t.auditChange(s.Project, actionAddSecret, s.ID, s.CreatedAt, by, detail)
	})
	if err != nil {
		return fmt.Errorf("add secret: %w", err)
	}
	return nil
}

// isOwned says that a secret is not a project's root secret.
func isOwned(s *store.Secret) bool { return s.Owner != "" || s.Use != "" }

// hasSecret says whether the very secret is stored.
func (t *tx) hasSecret(s *store.Secret) (stored bool, err error) {
	table := `secrets`
	if isOwned(s) {
		table = `owned_secrets`
	}
	err = t.each(func(scanner) error { stored = true; return nil }, `SELECT 1 FROM `+table+` WHERE id = $1`, s.ID)
	return stored, err
}

// retireSecrets makes room for a new present secret.
func (t *tx) retireSecrets(s *store.Secret, retireAt int64) error {
	table, which, args := `secrets`, `project = $2 AND id <> $3`, []any{s.Project, s.ID}
	if isOwned(s) {
		table, which, args = `owned_secrets`, which+` AND owner = $4 AND use = $5`, append(args, s.Owner, s.Use)
	}
	if _, err := t.exec(`UPDATE `+table+` SET retired_at = $1 WHERE retired_at > $1 AND `+which,
		append([]any{s.CreatedAt}, args...)...); err != nil {
		return fmt.Errorf("end those that were retired: %w", err)
	}
	// Not zero, which is what the present one has.
	if _, err := t.exec(`UPDATE `+table+` SET retired_at = $1 WHERE retired_at = 0 AND `+which,
		append([]any{max(retireAt, 1)}, args...)...); err != nil {
		return fmt.Errorf("retire the present one: %w", err)
	}
	return nil
}

// insertSecret adds a present secret, if there is none: a unique index says so to whoever starts at the same time.
func (t *tx) insertSecret(s *store.Secret) (int64, error) {
	if !isOwned(s) {
		return t.exec(`INSERT INTO secrets (id, project, key_id, ciphertext, created_at, retired_at) VALUES ($1, $2, $3, $4, $5, 0)
			ON CONFLICT DO NOTHING`, s.ID, s.Project, s.KeyID, s.Ciphertext, s.CreatedAt)
	}
	return t.exec(`INSERT INTO owned_secrets (id, project, owner, use, label, key_id, ciphertext, created_at, retired_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)
		ON CONFLICT DO NOTHING`, s.ID, s.Project, s.Owner, s.Use, s.Label, s.KeyID, s.Ciphertext, s.CreatedAt)
}
