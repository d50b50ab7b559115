package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var metaColumns = sqldb.Named[store.IndexMeta](`generation built built_at made_at shards prefix`)

// IndexMeta returns the index's row. It is made with want's values if it is missing; shards and prefix that
// were left open (an embedded index has none to name) become want's.
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

// MarkBuilt notes that the generation was filled to the end, and when; an older one than is noted, or the
// same again, changes nothing.
func (db *DB) MarkBuilt(ctx context.Context, generation, now int64) error {
	return db.changeBy(ctx, "mark built",
		`UPDATE index_meta SET built = $1, built_at = $2 WHERE id = 1 AND built < $1`, generation, now)
}

// NextGeneration adds one to the generation at now if it is still from, and returns what it is then. Without
// the index's row it returns store.ErrNotFound. That by asked for it is audited; nil: the index was lost.
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

// SweepCursor returns the sweep's place; the beginning when none was kept.
func (db *DB) SweepCursor(ctx context.Context) (store.Cursor, error) {
	return db.cursor(ctx, "sweep cursor", sweepCursor)
}

// SetSweepCursor keeps the sweep's place.
func (db *DB) SetSweepCursor(ctx context.Context, c store.Cursor) error {
	return db.maintain(ctx, "set sweep cursor", func(t *tx) error { return t.setCursor(sweepCursor, c) })
}

// The names of cursors and leases that this package keeps for itself.
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

// cursor reads a cursor; it is the beginning when none was kept.
func (db *DB) cursor(ctx context.Context, operation, name string) (store.Cursor, error) {
	c, _, err := sqldb.One(db.read(ctx, operation), cursorColumns, `FROM cursors WHERE name = $1`, name)
	return c, err
}

func (t *tx) setCursor(name string, c store.Cursor) error {
	_, err := t.Exec(`INSERT INTO cursors (name, due_at, id) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, id = excluded.id`, name, c.DueAt, c.ID)
	return err
}

// leaseSlack is by how many milliseconds a lease may end later than one that is taken now, none of which
// lasts longer. One that ends later still was taken before the clock was set back, and would outlive its
// holder by as much.
const leaseSlack = 60_000

// TryLease takes or renews the named lease for holder until now+ttl, and says whether it is held.
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

// Ping commits something and returns nil, or says why it could not.
func (db *DB) Ping(ctx context.Context) error {
	return db.changeBy(ctx, "ping", `INSERT INTO leases (name, holder, held_until) VALUES ($1, '', 0)
		ON CONFLICT (name) DO UPDATE SET held_until = leases.held_until + 1`, pingLease)
}
