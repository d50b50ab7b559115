package sqlstore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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

// leaseSlack is by how many milliseconds a lease may end later than one that is taken now, none of which lasts longer. One that
// ends later still was taken before the clock was set back, and would outlive its holder by as much.
const leaseSlack = 60_000

// TryLease takes or renews the named lease for holder until now+ttl, and says whether it is held.
func (db *DB) TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	held := false
	err := db.change(ctx, func(t *tx) error {
		n, err := t.exec(`INSERT INTO leases (name, holder, held_until) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
			WHERE leases.holder = excluded.holder OR leases.held_until <= $4
				OR leases.held_until > excluded.held_until + `+strconv.Itoa(leaseSlack), name, holder, now+ttl.Milliseconds(), now)
		held = n > 0
		return err
	})
	if err != nil {
		return false, fmt.Errorf("lease %s: %w", name, err)
	}
	return held, nil
}

// Ping commits something and returns nil, or says why it could not.
func (db *DB) Ping(ctx context.Context) error {
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO leases (name, holder, held_until) VALUES ($1, '', 0)
			ON CONFLICT (name) DO UPDATE SET held_until = leases.held_until + 1`, pingLease)
		return err
	})
	if err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	return nil
}

// NextGeneration adds one to the generation at now if it is still from, and returns what it is then. Without
// the index's row it returns store.ErrNotFound. That by asked for it is audited; nil: the index was lost.
func (db *DB) NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error) {
	var generation int64
	err := db.change(ctx, func(t *tx) error {
		changed, err := t.exec(`UPDATE index_meta SET generation = generation + 1, made_at = $2
			WHERE id = 1 AND generation = $1`, from, now)
		if err != nil {
			return err
		}
		found := false
		if err := t.each(func(rows scanner) error {
			found = true
			return rows.Scan(&generation)
		}, `SELECT generation FROM index_meta WHERE id = 1`); err != nil {
			return err
		}
		if !found {
			return store.ErrNotFound
		}
		if changed == 0 || by == nil {
			return nil
		}
		var d auditDiff
		d.add("generation", from, generation)
		object := fmt.Sprintf("generation %d", generation)
		return t.auditChange(store.DefaultProject, actionRebuildIndex, object, now, *by, d, nil)
	})
	if err != nil {
		return 0, fmt.Errorf("next generation: %w", err)
	}
	return generation, nil
}

// SweepCursor returns the sweep's place; the beginning when none was kept.
func (db *DB) SweepCursor(ctx context.Context) (store.Cursor, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	c, err := db.cursor(ctx, sweepCursor)
	if err != nil {
		return store.Cursor{}, readError("sweep cursor", err)
	}
	return c, nil
}

// cursor reads a cursor; it is the beginning when none was kept.
func (db *DB) cursor(ctx context.Context, name string) (c store.Cursor, err error) {
	err = queryEach(ctx, db.read, func(rows scanner) error {
		return rows.Scan(&c.DueAt, &c.ID)
	}, `SELECT due_at, id FROM cursors WHERE name = $1`, name)
	return c, err
}

// SetSweepCursor keeps the sweep's place.
func (db *DB) SetSweepCursor(ctx context.Context, c store.Cursor) error {
	if err := db.maintain(ctx, func(t *tx) error { return t.setCursor(sweepCursor, c) }); err != nil {
		return fmt.Errorf("set sweep cursor: %w", err)
	}
	return nil
}

func (t *tx) setCursor(name string, c store.Cursor) error {
	_, err := t.exec(`INSERT INTO cursors (name, due_at, id) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET due_at = excluded.due_at, id = excluded.id`, name, c.DueAt, c.ID)
	return err
}

// Fold adds what transactions noted since the last time to the counters and to the feed of outcomes, and
// drops the counters of hours that passed more than a day ago. Both are bounded; what is left waits for the
// next call.
func (db *DB) Fold(ctx context.Context, now int64) error {
	for range foldNotes / db.dialect.maintenanceBatch {
		taken, last := 0, int64(0)
		err := db.maintain(ctx, func(t *tx) error {
			var err error
			taken, last, err = t.fold(now)
			return err
		})
		if err != nil {
			return fmt.Errorf("fold: %w", err)
		}
		if taken > 0 {
			db.folded.saw(last, now)
		}
		if taken < db.dialect.maintenanceBatch {
			break
		}
	}
	if err := db.dropPastHours(ctx, now); err != nil {
		return fmt.Errorf("fold: drop counters of hours that have passed: %w", err)
	}
	return nil
}

// PurgeKeys removes idempotency keys that have ended: they are older than store.IdempotencyAge, and their
// callbacks are terminal or gone. Those of events go with their plans. It looks at up to limit of each; more
// says that there may be others.
func (db *DB) PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error) {
	before := now - store.IdempotencyAge.Milliseconds()
	keys, moreKeys, err := db.removeAged(ctx, idempotencyCursor, now, before, limit, (*tx).endKeys)
	if err != nil {
		return keys, false, fmt.Errorf("purge idempotency keys: %w", err)
	}
	events, moreEvents, err := db.removeAged(ctx, eventsCursor, now, before, limit, (*tx).endEvents)
	if err != nil {
		return keys + events, false, fmt.Errorf("purge plans of events: %w", err)
	}
	return keys + events, moreKeys || moreEvents, nil
}

// endKeys looks at the next keys that are old enough, and removes those whose callback is not open.
func (t *tx) endKeys(b *batch) (seen, removed int, err error) {
	type endedKey struct {
		idempotencyKey
		callbackID string
	}
	var ended []endedKey
	if err := t.each(func(rows scanner) error {
		var k endedKey
		var open int
		err := rows.Scan(&k.project, &k.route, &k.key, &b.from.DueAt, &k.callbackID, &open)
		seen, b.from.ID = seen+1, k.callbackID
		if open == 0 {
			ended = append(ended, k)
		}
		return err
	}, `SELECT project, route, key, created_at, callback_id,
			CASE WHEN EXISTS (SELECT 1 FROM callbacks WHERE callbacks.id = idempotency.callback_id AND callbacks.state = 'scheduled')
				THEN 1 ELSE 0 END
		FROM idempotency
		WHERE (created_at, callback_id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, callback_id
		LIMIT $4`, b.from.DueAt, b.from.ID, b.before, b.rows); err != nil || len(ended) == 0 {
		return seen, 0, err
	}
	input, args, _, err := t.input([]column{
		texts("project", ended, func(k endedKey) string { return k.project }),
		texts("route", ended, func(k endedKey) string { return k.route }),
		texts("key", ended, func(k endedKey) string { return k.key }),
		texts("callback_id", ended, func(k endedKey) string { return k.callbackID }),
	})
	if err != nil {
		return seen, 0, err
	}
	// An accept may have taken the key over since it was read.
	n, err := t.exec(`DELETE FROM idempotency WHERE (project, route, key, callback_id) IN (
		SELECT i.project, i.route, i.key, i.callback_id FROM `+input+`)`, args...)
	return seen, int(n), err
}
