package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

func secretColumns(s *store.Secret) sqldb.Columns {
	return sqldb.Columns{
		col("id", &s.ID),
		col("project", &s.Project),
		col("owner", &s.Owner),
		col("use", &s.Use),
		col("label", &s.Label),
		col("hosts", sqldb.JSON(&s.Hosts)),
		col("key_id", &s.KeyID),
		col("ciphertext", &s.Ciphertext),
		col("created_at", &s.CreatedAt),
		col("retired_at", &s.RetiredAt),
	}
}

// OwnedSecrets returns what an endpoint of the project has of each use, newest first: the present ones and
// those that still sign beside them at now. With no owner it returns the project's own.
func (db *DB) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error) {
	return sqldb.Select(db.read(ctx, "read secrets"), secretColumns, `FROM secrets
		WHERE project = $1 AND owner = $2 AND (retired_at = 0 OR retired_at > $3)
		ORDER BY CASE WHEN retired_at = 0 THEN 0 ELSE 1 END, retired_at DESC, id DESC`, project, owner, now)
}

// AddSecret stores a new present secret of its owner and use, and retires the present one, if any, at retireAt; one that was retired
// before ends now, at the new one's CreatedAt, so that no more than two are valid. With onlyIfNone it does nothing if there is one already.
func (db *DB) AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error {
	s.RetiredAt = 0
	err := db.change(ctx, "add secret", func(t *tx) error {
		if t.Again {
			if stored, err := sqldb.Exists(t, `SELECT 1 FROM secrets WHERE id = $1`, s.ID); err != nil || stored {
				return err // An earlier try was committed, and its reply lost.
			}
		}
		before, err := t.presentSecret(&s)
		if err != nil {
			return err
		}
		if !onlyIfNone {
			if err := t.retireSecrets(&s, retireAt); err != nil {
				return err
			}
		}
		// A unique index decides between processes that start at the same time.
		n, err := secretColumns(&s).Insert(t.Tx, "secrets", `ON CONFLICT DO NOTHING`)
		if err != nil || n == 0 {
			return err
		}
		detail := map[string]any{"key_id": s.KeyID}
		if s.Owner != "" || s.Use != "" {
			detail["owner"], detail["use"], detail["label"] = s.Owner, s.Use, s.Label
		}
		if len(s.Hosts) > 0 {
			detail["hosts"] = s.Hosts
		}
		return t.auditChange(s.Project, actionAddSecret, s.ID, s.CreatedAt, by,
			secretDiff(before, &s), detail)
	})
	return err
}

// presentSecret returns the one that a new secret replaces; nil: there is none.
func (t *tx) presentSecret(s *store.Secret) (*store.Secret, error) {
	present, found, err := sqldb.One(t, secretColumns, `FROM secrets
		WHERE project = $1 AND owner = $2 AND use = $3 AND retired_at = 0`, s.Project, s.Owner, s.Use)
	if err != nil || !found {
		return nil, named("read the present one", err)
	}
	return &present, nil
}

// secretDiff is which secret is the present one, before and after; nothing of the secret itself.
func secretDiff(before, after *store.Secret) auditDiff {
	var d auditDiff
	was := before
	if was == nil {
		was = new(store.Secret)
	}
	differ(&d, "secret", was.ID, after.ID)
	differ(&d, "label", was.Label, after.Label)
	differ(&d, "key_id", was.KeyID, after.KeyID)
	if !slices.Equal(was.Hosts, after.Hosts) {
		d.add("hosts", was.Hosts, after.Hosts)
	}
	if before == nil {
		return d.made()
	}
	return d
}

// retireSecrets makes room for a new present secret.
func (t *tx) retireSecrets(s *store.Secret, retireAt int64) error {
	const which = ` AND project = $2 AND owner = $3 AND use = $4 AND id <> $5`
	if _, err := t.Exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at > $1`+which,
		s.CreatedAt, s.Project, s.Owner, s.Use, s.ID); err != nil {
		return fmt.Errorf("end those that were retired: %w", err)
	}
	// Not zero, which is what the present one has.
	if _, err := t.Exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at = 0`+which,
		max(retireAt, 1), s.Project, s.Owner, s.Use, s.ID); err != nil {
		return fmt.Errorf("retire the present one: %w", err)
	}
	return nil
}
