package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// IndexMeta returns the index's row. It is made with want's values if it is missing; shards and prefix that were left open (an
// embedded index has none to name) become want's.
func (db *DB) IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error) {
	meta, found, err := db.readMeta(ctx)
	if err != nil {
		return store.IndexMeta{}, fmt.Errorf("index meta: %w", err)
	}
	if found && (meta.Shards != 0 || want.Shards == 0) {
		return meta, nil
	}
	err = db.change(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO index_meta (id, generation, built, shards, prefix) VALUES (1, $1, $2, $3, $4)
			ON CONFLICT (id) DO UPDATE SET shards = excluded.shards, prefix = excluded.prefix
			WHERE index_meta.shards = 0`, want.Generation, want.Built, want.Shards, want.Prefix)
		return err
	})
	if err == nil {
		meta, _, err = db.readMeta(ctx)
	}
	if err != nil {
		return store.IndexMeta{}, fmt.Errorf("index meta: %w", err)
	}
	return meta, nil
}

func (db *DB) readMeta(ctx context.Context) (meta store.IndexMeta, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	err = queryEach(ctx, db.read, func(rows scanner) error {
		found = true
		m := &meta
		return rows.Scan(&m.Generation, &m.Built, &m.BuiltAt, &m.MadeAt, &m.Shards, &m.Prefix)
	}, `SELECT generation, built, built_at, made_at, shards, prefix FROM index_meta WHERE id = 1`)
	return meta, found, err
}

// MarkBuilt notes that the generation was filled to the end, and when; an older one than is noted, or the same again, changes nothing.
func (db *DB) MarkBuilt(ctx context.Context, generation, now int64) error {
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE index_meta SET built = $1, built_at = $2 WHERE id = 1 AND built < $1`, generation, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("mark built: %w", err)
	}
	return nil
}
