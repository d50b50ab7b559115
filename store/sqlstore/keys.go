package sqlstore

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const keyColumns = `id, project, name, scopes, hash, hint, created_at, expires_at, revoked_at, last_used_at`

func (db *DB) readKeys(ctx context.Context, which string, args ...any) ([]store.Key, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var keys []store.Key
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var k store.Key
		var scopes, hash string
		if err := rows.Scan(&k.ID, &k.Project, &k.Name, &scopes, &hash, &k.Hint, &k.CreatedAt, &k.ExpiresAt, &k.RevokedAt, &k.LastUsedAt); err != nil {
			return fmt.Errorf("scan key: %w", err)
		}
		var err error
		if k.Hash, err = hex.DecodeString(hash); err != nil {
			return fmt.Errorf("decode hash: %w", err)
		}
		if err := decode("scopes", scopes, &k.Scopes); err != nil {
			return err
		}
		keys = append(keys, k)
		return nil
	}, `SELECT `+keyColumns+` FROM api_keys WHERE `+which, args...)
	if err != nil {
		return nil, readError("read keys", err)
	}
	return keys, nil
}

// Keys returns the project's API keys, newest first, those that have ended too.
func (db *DB) Keys(ctx context.Context, project string) ([]store.Key, error) {
	return db.readKeys(ctx, `project = $1 ORDER BY id DESC`, project)
}

// KeyByHash returns the key whose text has the hash, of whatever project, or store.ErrNotFound. Whether it is still valid its caller
// must say.
func (db *DB) KeyByHash(ctx context.Context, hash []byte) (store.Key, error) {
	found, err := db.readKeys(ctx, `hash = $1`, hex.EncodeToString(hash))
	if err != nil {
		return store.Key{}, err
	}
	if len(found) == 0 {
		return store.Key{}, fmt.Errorf("key by its hash: %w", store.ErrNotFound)
	}
	return found[0], nil
}

// AddKey stores a new key, at its CreatedAt. Without its project it returns store.ErrNotFound; for an id or a hash that is taken,
// store.ErrExists.
func (db *DB) AddKey(ctx context.Context, k store.Key, by store.Actor) error {
	scopes, err := encode(k.Scopes)
	if err != nil {
		return fmt.Errorf("add key: %w", err)
	}
	err = db.change(ctx, func(t *tx) error {
		known := false
		if err := t.each(func(scanner) error { known = true; return nil }, `SELECT 1 FROM projects WHERE id = $1`, k.Project); err != nil {
			return err
		}
		if !known {
			return store.ErrNotFound
		}
		n, err := t.exec(`INSERT INTO api_keys (id, project, name, scopes, hash, hint, created_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT DO NOTHING`,
			k.ID, k.Project, k.Name, scopes, hex.EncodeToString(k.Hash), k.Hint, k.CreatedAt, k.ExpiresAt)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrExists
		}
		return t.auditChange(k.Project, actionAddKey, k.ID, k.CreatedAt, by, keyDiff(&k).made(),
			map[string]any{"name": k.Name, "scopes": k.Scopes, "expires_at": k.ExpiresAt})
	})
	if err != nil {
		return fmt.Errorf("add key: %w", err)
	}
	return nil
}

// keyDiff is what a key is, beside none.
func keyDiff(k *store.Key) auditDiff {
	var d auditDiff
	d.add("name", nil, k.Name)
	d.add("scopes", nil, k.Scopes)
	d.add("expires_at", nil, shownTime(k.ExpiresAt))
	return d
}

// RevokeKey ends a key at once; one that was revoked before stays as it is. An id that is not in the project is store.ErrNotFound.
func (db *DB) RevokeKey(ctx context.Context, project, id string, now int64, by store.Actor) error {
	err := db.change(ctx, func(t *tx) error {
		n, err := t.exec(`UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND project = $3 AND revoked_at = 0`, now, id, project)
		if err != nil {
			return err
		}
		if n > 0 {
			var d auditDiff
			d.add("revoked_at", nil, shownTime(now))
			return t.auditChange(project, actionRevokeKey, id, now, by, d, nil)
		}
		known := false
		if err := t.each(func(scanner) error { known = true; return nil },
			`SELECT 1 FROM api_keys WHERE id = $1 AND project = $2`, id, project); err != nil {
			return err
		}
		if !known {
			return store.ErrNotFound
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("revoke key %s: %w", id, err)
	}
	return nil
}

// TouchKeys notes when keys, by their ids, were last used. An earlier time than is noted changes nothing.
func (db *DB) TouchKeys(ctx context.Context, used map[string]int64) error {
	if len(used) == 0 {
		return nil
	}
	ids := sortedKeys(used)
	err := db.maintain(ctx, func(t *tx) error {
		input, args, _, err := t.input([]column{
			{name: "id", texts: ids},
			ints("used_at", ids, func(id string) int64 { return used[id] }),
		})
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE api_keys SET last_used_at = i.used_at FROM `+input+`
			WHERE api_keys.id = i.id AND api_keys.last_used_at < i.used_at`, args...)
		return err
	})
	if err != nil {
		return fmt.Errorf("touch keys: %w", err)
	}
	return nil
}
