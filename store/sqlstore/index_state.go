package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// This file holds what the index keeps in SQL: its generation, cursors and leases.

var metaColumns = sqldb.Named[store.IndexMeta](`generation built built_at made_at shards prefix`)

// IndexMeta returns the index's row. If it is missing, it is inserted with the values of want. An embedded
// index has no shards or prefix; if the row has none, they become those of want. If several processes call it
// at once, one of them writes and all return the same row.
func (db *DB) IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error) {
	const row = `FROM index_meta WHERE id = 1`
	read := db.read(ctx, "index meta")
	meta, found, err := sqldb.One(read, metaColumns, row)
	if err != nil || found && (meta.Shards != 0 || want.Shards == 0) {
		return meta, err
	}
	if err := db.changeBy(ctx, "index meta",
		`INSERT INTO index_meta (id, generation, built, shards, prefix) VALUES (1, $1, $2, $3, $4)
		ON CONFLICT (id) DO UPDATE SET shards = excluded.shards, prefix = excluded.prefix
		WHERE index_meta.shards = 0`, want.Generation, want.Built, want.Shards, want.Prefix); err != nil {
		return store.IndexMeta{}, err
	}
	meta, _, err = sqldb.One(read, metaColumns, row)
	return meta, err
}

// MarkBuilt records that the index of this generation was filled completely at now. If this generation or a
// later one is recorded already, the record stays as it is, with its time.
func (db *DB) MarkBuilt(ctx context.Context, generation, now int64) error {
	return db.changeBy(ctx, "mark built",
		`UPDATE index_meta SET built = $1, built_at = $2 WHERE id = 1 AND built < $1`, generation, now)
}

// NextGeneration raises the generation by one if it is still from, and returns the present one. So only one
// of several processes starts a new generation. It returns store.ErrNotFound if the index's row is missing.
// by is the person who asked for a rebuild, for the audit; nil means that the index was lost.
func (db *DB) NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error) {
	return changed(ctx, db.change, "next generation", func(t *tx) (int64, error) {
		raised, err := t.Exec(`UPDATE index_meta SET generation = generation + 1, made_at = $2
			WHERE id = 1 AND generation = $1`, from, now)
		if err != nil {
			return 0, err
		}
		generation, found, err := sqldb.Value[int64](t, `SELECT generation FROM index_meta WHERE id = 1`)
		if err == nil && !found {
			err = store.ErrNotFound
		}
		if err != nil || raised == 0 || by == nil {
			return generation, err
		}
		object := fmt.Sprintf("generation %d", generation)
		return generation, t.auditChange(store.DefaultProject, "index.rebuild", object, now, *by,
			changeOf("generation", from, generation), nil)
	})
}

// SweepCursor returns the position of the sweep, or the beginning if none is stored.
func (db *DB) SweepCursor(ctx context.Context) (store.Cursor, error) {
	return db.cursor(ctx, "sweep cursor", sweepCursor)
}

// SetSweepCursor stores the position of the sweep.
func (db *DB) SetSweepCursor(ctx context.Context, c store.Cursor) error {
	return db.maintain(ctx, "set sweep cursor", func(t *tx) error { return t.setCursor(sweepCursor, c) })
}

// The names of this package's rows in tables cursors and leases.
const (
	sweepCursor       = "sweep"
	idempotencyCursor = "idempotency"
	eventsCursor      = "events"
	wholePurge        = "purge whole"
	payloadPurge      = "purge payloads"
	callbackPurge     = "purge callbacks"
	versionsPurge     = "purge versions"
	feedPurge         = "purge outcomes"
	pingLease         = "ping"
)

var cursorColumns = sqldb.Named[store.Cursor](`due_at id`)

// cursor reads a cursor, or the beginning if none is stored.
func (db *DB) cursor(ctx context.Context, operation, name string) (store.Cursor, error) {
	c, _, err := sqldb.One(db.read(ctx, operation), cursorColumns, `FROM cursors WHERE name = $1`, name)
	return c, err
}

// setCursor stores a cursor.
func (t *tx) setCursor(name string, c store.Cursor) error {
	_, err := t.Exec(`INSERT INTO cursors (name, due_at, id) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, id = excluded.id`, name, c.DueAt, c.ID)
	return err
}

// leaseSlack is the maximum by which a lease may end later than one taken now, in milliseconds. No lease
// lasts longer than that. One that ends later was taken before the clock went back, and would outlive its
// holder by the same amount.
const leaseSlack = 60_000

// TryLease takes or renews the named lease for holder until now+ttl, and reports whether holder has it. A
// lease saves double work and is no guard: a process that hangs beyond the end of its lease may still run
// while its successor works.
func (db *DB) TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	return changed(ctx, db.change, "lease "+name, func(t *tx) (bool, error) {
		n, err := t.Exec(`INSERT INTO leases (name, holder, held_until) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
			WHERE leases.holder = excluded.holder OR leases.held_until <= $4
				OR leases.held_until > excluded.held_until + `+strconv.Itoa(leaseSlack), name, holder,
			now+ttl.Milliseconds(), now)
		return n > 0, err
	})
}

// Ping commits a write. It returns nil if the database can commit, and else the error.
func (db *DB) Ping(ctx context.Context) error {
	return db.changeBy(ctx, "ping", `INSERT INTO leases (name, holder, held_until) VALUES ($1, '', 0)
		ON CONFLICT (name) DO UPDATE SET held_until = leases.held_until + 1`, pingLease)
}
