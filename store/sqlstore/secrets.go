package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const secretColumns = `id, project, owner, use, label, hosts, key_id, ciphertext, created_at, retired_at`

// scanSecret reads secretColumns.
func scanSecret(rows scanner) (store.Secret, error) {
	var s store.Secret
	var hosts string
	if err := rows.Scan(&s.ID, &s.Project, &s.Owner, &s.Use, &s.Label, &hosts, &s.KeyID, &s.Ciphertext, &s.CreatedAt,
		&s.RetiredAt); err != nil {
		return s, fmt.Errorf("scan secret: %w", err)
	}
	return s, decode("hosts", hosts, &s.Hosts)
}

// OwnedSecrets returns what an endpoint of the project has of each use, newest first: the present ones and
// those that still sign beside them at now. With no owner it returns the project's own.
func (db *DB) OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var secrets []store.Secret
	err := queryEach(ctx, db.read, func(rows scanner) error {
		s, err := scanSecret(rows)
		secrets = append(secrets, s)
		return err
	}, `SELECT `+secretColumns+` FROM secrets
		WHERE project = $1 AND owner = $2 AND (retired_at = 0 OR retired_at > $3)
		ORDER BY CASE WHEN retired_at = 0 THEN 0 ELSE 1 END, retired_at DESC, id DESC`, project, owner, now)
	if err != nil {
		return nil, readError("read secrets", err)
	}
	return secrets, nil
}

// AddSecret stores a new present secret of its owner and use, and retires the present one, if any, at retireAt; one that was retired
// before ends now, at the new one's CreatedAt, so that no more than two are valid. With onlyIfNone it does nothing if there is one already.
func (db *DB) AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error {
	hosts := ""
	if len(s.Hosts) > 0 {
		var err error
		if hosts, err = encode(s.Hosts); err != nil {
			return fmt.Errorf("add secret: %w", err)
		}
	}
	err := db.change(ctx, func(t *tx) error {
		if t.again {
			if stored, err := t.hasSecret(&s); err != nil || stored {
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
		n, err := t.exec(`INSERT INTO secrets (`+secretColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)
			ON CONFLICT DO NOTHING`, s.ID, s.Project, s.Owner, s.Use, s.Label, hosts, s.KeyID, s.Ciphertext, s.CreatedAt)
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
	if err != nil {
		return fmt.Errorf("add secret: %w", err)
	}
	return nil
}

// hasSecret says whether the very secret is stored.
func (t *tx) hasSecret(s *store.Secret) (stored bool, err error) {
	found := func(scanner) error { stored = true; return nil }
	err = t.each(found, `SELECT 1 FROM secrets WHERE id = $1`, s.ID)
	return stored, err
}

// presentSecret returns the one that a new secret replaces; nil: there is none.
func (t *tx) presentSecret(s *store.Secret) (present *store.Secret, err error) {
	err = t.each(func(rows scanner) error {
		found, err := scanSecret(rows)
		present = &found
		return err
	}, `SELECT `+secretColumns+` FROM secrets
		WHERE project = $1 AND owner = $2 AND use = $3 AND retired_at = 0`, s.Project, s.Owner, s.Use)
	if err != nil {
		return nil, fmt.Errorf("read the present one: %w", err)
	}
	return present, nil
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
	if _, err := t.exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at > $1`+which,
		s.CreatedAt, s.Project, s.Owner, s.Use, s.ID); err != nil {
		return fmt.Errorf("end those that were retired: %w", err)
	}
	// Not zero, which is what the present one has.
	if _, err := t.exec(`UPDATE secrets SET retired_at = $1 WHERE retired_at = 0`+which,
		max(retireAt, 1), s.Project, s.Owner, s.Use, s.ID); err != nil {
		return fmt.Errorf("retire the present one: %w", err)
	}
	return nil
}
