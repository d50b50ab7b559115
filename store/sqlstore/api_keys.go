package sqlstore

import (
	"context"
	"encoding/hex"
	"maps"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// keyFields are the columns of a new API key, which has never been used or revoked.
var keyFields = sqldb.Named[store.Key](`id project name scopes endpoint_id hint created_at
	expires_at`)

func keyColumns(k *store.Key) sqldb.Columns {
	return append(keyFields(k), col("hash", sqldb.Hex(&k.Hash)))
}

var usedFields = sqldb.Named[store.Key](`revoked_at last_used_at`)

func usedKeyColumns(k *store.Key) sqldb.Columns { return append(keyColumns(k), usedFields(k)...) }

// Keys returns the project's API keys, newest first, including expired and revoked ones.
func (db *DB) Keys(ctx context.Context, project string) ([]store.Key, error) {
	return sqldb.Select(db.read(ctx, "read keys"), usedKeyColumns,
		`FROM api_keys WHERE project = $1 ORDER BY id DESC`, project)
}

// KeyByHash returns the key of any project whose text has the hash, or store.ErrNotFound. The caller must
// check that the key is still valid.
func (db *DB) KeyByHash(ctx context.Context, hash []byte) (store.Key, error) {
	return sqldb.Get(db.read(ctx, "read keys"), "key by its hash", usedKeyColumns,
		`FROM api_keys WHERE hash = $1`, hex.EncodeToString(hash))
}

// AddKey stores a new key with its CreatedAt, and audits it. It returns store.ErrNotFound if the project or
// the key's endpoint does not exist, and store.ErrExists if the id or the hash is taken.
func (db *DB) AddKey(ctx context.Context, k store.Key, by store.Actor) error {
	return db.change(ctx, "add key", func(t *tx) error {
		if err := t.mustExist(`SELECT 1 FROM projects WHERE id = $1`, k.Project); err != nil {
			return err
		}
		added := fields{"name": k.Name, "scopes": k.Scopes}
		if k.EndpointID != "" {
			added["endpoint"] = store.EndpointPrefix + k.EndpointID
			if err := t.mustExist(`SELECT 1 FROM endpoints WHERE endpoints.id = $1 AND endpoints.project = $2
				AND `+endpointExists, k.EndpointID, k.Project); err != nil {
				return err
			}
		}
		n, err := keyColumns(&k).Insert(t.Tx, "api_keys", `ON CONFLICT DO NOTHING`)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrExists
		}
		detail := maps.Clone(added)
		added["expires_at"], detail["expires_at"] = printedTime(k.ExpiresAt), k.ExpiresAt
		return t.auditChange(k.Project, "key.create", k.ID, k.CreatedAt, by, auditDiff{after: added}, detail)
	})
}

// RevokeKey revokes a key at once, and audits it. A revoked key stays as it is. It returns store.ErrNotFound
// for an id that is not in the project.
func (db *DB) RevokeKey(ctx context.Context, project, id string, now int64, by store.Actor) error {
	return db.change(ctx, "revoke key "+id, func(t *tx) error {
		n, err := t.Exec(
			`UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND project = $3 AND revoked_at = 0`, now, id,
			project)
		if err != nil {
			return err
		}
		if n == 0 {
			return t.mustExist(`SELECT 1 FROM api_keys WHERE id = $1 AND project = $2`, id, project)
		}
		return t.auditChange(project, "key.revoke", id, now, by,
			changeOf("revoked_at", nil, printedTime(now)), nil)
	})
}

// TouchKeys stores when keys were last used, by their ids. A stored time that is later stays.
func (db *DB) TouchKeys(ctx context.Context, used map[string]int64) error {
	if len(used) == 0 {
		return nil
	}
	return db.maintain(ctx, "store the last use of keys", func(t *tx) error {
		_, err := t.Exec(`UPDATE api_keys SET last_used_at = i.used_at FROM $i
			WHERE api_keys.id = i.id AND api_keys.last_used_at < i.used_at`,
			sqldb.Rows(sortedKeys(used), func(id *string) sqldb.Columns {
				return append(theID(id), calc("used_at", func() int64 { return used[*id] }))
			}))
		return err
	})
}
