package sqlstore

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var secretColumns = sqldb.Named[store.Secret](
	`id project owner use label hosts key_id ciphertext created_at retired_at`)

// OwnedSecrets returns the valid secrets of an endpoint at now, for each use: the present one first, then the
// retired one that still signs. An empty owner returns those of the project.
func (db *DB) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error) {
	return sqldb.Select(db.read(ctx, "read secrets"), secretColumns, `FROM secrets
		WHERE project = $1 AND owner = $2 AND (retired_at = 0 OR retired_at > $3)
		ORDER BY CASE WHEN retired_at = 0 THEN 0 ELSE 1 END, retired_at DESC, id DESC`, project, owner, now)
}

// AddSecret stores a new present secret for its owner and use, and audits it. The secret that was present
// retires at retireAt. One that had retired before ends at the new one's CreatedAt, so that at most two are
// valid. With onlyIfNone it does nothing if a secret is present.
func (db *DB) AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool,
	by store.Actor) error {
	s.RetiredAt = 0
	return db.change(ctx, "add secret", func(t *tx) error {
		if t.MayBeCommitted {
			stored, err := sqldb.Exists(t, `SELECT 1 FROM secrets WHERE id = $1`, s.ID)
			if err != nil || stored {
				return err // an earlier try was committed, and its reply was lost
			}
		}
		before, found, err := sqldb.One(t, secretColumns, `FROM secrets
			WHERE project = $1 AND owner = $2 AND use = $3 AND retired_at = 0`, s.Project, s.Owner, s.Use)
		if err != nil {
			return named("read the present secret", err)
		}
		if !onlyIfNone {
			if err := t.retireSecrets(&s, retireAt); err != nil {
				return err
			}
		}
		// The unique index secrets_present decides between processes that start at the same time.
		n, err := secretColumns(&s).Insert(t.Tx, "secrets", `ON CONFLICT DO NOTHING`)
		if err != nil || n == 0 {
			return err
		}
		detail := fields{"key_id": s.KeyID}
		if s.Owner != "" || s.Use != "" {
			detail["owner"], detail["use"], detail["label"] = s.Owner, s.Use, s.Label
		}
		if len(s.Hosts) > 0 {
			detail["hosts"] = s.Hosts
		}
		changed := diff(secretParts, &before, &s)
		if !found {
			changed = changed.made()
		}
		return t.auditChange(s.Project, "secret.add", s.ID, s.CreatedAt, by, changed, detail)
	})
}

// retireSecrets ends retired secrets and retires the present one, to make room for a new one.
func (t *tx) retireSecrets(s *store.Secret, retireAt int64) error {
	const which = ` AND project = $2 AND owner = $3 AND use = $4 AND id <> $5`
	if _, err := t.Exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at > $1`+which,
		s.CreatedAt, s.Project, s.Owner, s.Use, s.ID); err != nil {
		return named("end retired secrets", err)
	}
	// At least 1: zero marks the present secret.
	if _, err := t.Exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at = 0`+which,
		max(retireAt, 1), s.Project, s.Owner, s.Use, s.ID); err != nil {
		return named("retire the present secret", err)
	}
	return nil
}
