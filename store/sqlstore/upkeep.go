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
// the index's row it returns store.ErrNotFound.
func (db *DB) NextGeneration(ctx context.Context, from, now int64) (int64, error) {
	var generation int64
	err := db.change(ctx, func(t *tx) error {
		if _, err := t.exec(`UPDATE index_meta SET generation = generation + 1, made_at = $2
			WHERE id = 1 AND generation = $1`, from, now); err != nil {
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
		return nil
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
	var c store.Cursor
	err := queryEach(ctx, db.read, func(rows scanner) error {
		return rows.Scan(&c.DueAt, &c.ID)
	}, `SELECT due_at, id FROM cursors WHERE name = $1`, sweepCursor)
	if err != nil {
		return store.Cursor{}, readError("sweep cursor", err)
	}
	return c, nil
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

// Fold adds what transactions noted since the last time to the counters and to the feed of outcomes, drops the counters of hours that passed
// more than a day ago, and removes idempotency keys that have ended: those older than seven days whose callbacks are terminal or gone. All
// are bounded; what is left waits for the next call.
func (db *DB) Fold(ctx context.Context, now int64) error {
	for range foldNotes / db.dialect.maintenanceBatch {
		taken := 0
		err := db.maintain(ctx, func(t *tx) error {
			var err error
			taken, err = t.fold(now)
			return err
		})
		if err != nil {
			return fmt.Errorf("fold: %w", err)
		}
		if taken < db.dialect.maintenanceBatch {
			break
		}
	}
	if err := db.dropPastHours(ctx, now); err != nil {
		return fmt.Errorf("fold: drop counters of hours that have passed: %w", err)
	}
	for _, end := range []func(*tx) error{
		func(t *tx) error { return t.endKeys(now) },
		func(t *tx) error { return t.endEvents(now) },
	} {
		if err := db.maintain(ctx, end); err != nil {
			return fmt.Errorf("fold: remove idempotency keys: %w", err)
		}
	}
	return nil
}

// endAged looks at the next rows that are old enough to end, from where the last call ended, and has those removed that may. The cursor
// keeps those of long-lived callbacks from being looked at in every call. query takes the cursor's time and id, the time before which rows
// are old enough, and how many are looked at.
func (t *tx) endAged(cursor string, now int64, look func(scanner, *store.Cursor) error, query string, remove func() error) error {
	var at store.Cursor
	if err := t.each(func(rows scanner) error {
		return rows.Scan(&at.DueAt, &at.ID)
	}, `SELECT due_at, id FROM cursors WHERE name = $1`, cursor); err != nil {
		return err
	}
	start := at
	seen := 0
	if err := t.each(func(rows scanner) error {
		seen++
		return look(rows, &at)
	}, query, at.DueAt, at.ID, now-store.IdempotencyAge.Milliseconds(), t.db.dialect.maintenanceBatch); err != nil {
		return err
	}
	if err := remove(); err != nil {
		return err
	}
	if seen < t.db.dialect.maintenanceBatch {
		at = store.Cursor{} // That was the end: begin again.
	}
	if at == start {
		return nil
	}
	return t.setCursor(cursor, at)
}

// endKeys looks at the next keys that are old enough, and removes those whose callback is not open.
func (t *tx) endKeys(now int64) error {
	type endedKey struct {
		idempotencyKey
		callbackID string
	}
	var ended []endedKey
	return t.endAged(idempotencyCursor, now, func(rows scanner, at *store.Cursor) error {
		var k idempotencyKey
		var open int
		err := rows.Scan(&k.project, &k.route, &k.key, &at.DueAt, &at.ID, &open)
		if open == 0 {
			ended = append(ended, endedKey{k, at.ID})
		}
		return err
	}, `SELECT project, route, key, created_at, callback_id,
			CASE WHEN EXISTS (SELECT 1 FROM callbacks WHERE callbacks.id = idempotency.callback_id AND callbacks.state = 'scheduled')
				THEN 1 ELSE 0 END
		FROM idempotency
		WHERE (created_at, callback_id) > ($1, $2) AND created_at < $3
		ORDER BY created_at, callback_id
		LIMIT $4`, func() error {
		if len(ended) == 0 {
			return nil
		}
		input, args, _, err := t.input([]column{
			texts("project", ended, func(k endedKey) string { return k.project }),
			texts("route", ended, func(k endedKey) string { return k.route }),
			texts("key", ended, func(k endedKey) string { return k.key }),
			texts("callback_id", ended, func(k endedKey) string { return k.callbackID }),
		})
		if err != nil {
			return err
		}
		// An accept may have taken the key over since it was read.
		_, err = t.exec(`DELETE FROM idempotency WHERE (project, route, key, callback_id) IN (
			SELECT i.project, i.route, i.key, i.callback_id FROM `+input+`)`, args...)
		return err
	})
}
