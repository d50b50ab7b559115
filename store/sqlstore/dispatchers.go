package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxDispatchers is the most that are listed.
	maxDispatchers = 1000
	// dispatcherAge is for how long one is kept that does not report itself any more.
	dispatcherAge = 24 * time.Hour
)

const dispatcherColumns = `name, host, version, roles, workers, in_flight, held, draining, clock_offset, started_at, seen_at`

// ReportDispatcher writes down how a process is, in the place of what it said before.
func (db *DB) ReportDispatcher(ctx context.Context, d store.Dispatcher) error {
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`INSERT INTO dispatchers (`+dispatcherColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
			ON CONFLICT (name) DO UPDATE SET
				host = excluded.host,
				version = excluded.version,
				roles = excluded.roles,
				workers = excluded.workers,
				in_flight = excluded.in_flight,
				held = excluded.held,
				draining = excluded.draining,
				clock_offset = excluded.clock_offset,
				started_at = excluded.started_at,
				seen_at = excluded.seen_at,
				ended_at = 0`,
			d.Name, d.Host, d.Version, d.Roles, d.Workers, d.InFlight, flag(d.Held), flag(d.Draining), d.ClockOffset, d.StartedAt, d.SeenAt)
		return err
	})
	if err != nil {
		return fmt.Errorf("report dispatcher %s: %w", d.Name, err)
	}
	return nil
}

// WithdrawDispatcher takes a process that has ended off the list. When it was there is kept for LastWorker.
func (db *DB) WithdrawDispatcher(ctx context.Context, name string, now int64) error {
	err := db.change(ctx, func(t *tx) error {
		_, err := t.exec(`UPDATE dispatchers SET ended_at = $2, seen_at = $2
			WHERE name = $1 AND ended_at = 0`, name, now)
		return err
	})
	if err != nil {
		return fmt.Errorf("withdraw dispatcher %s: %w", name, err)
	}
	return nil
}

// listDispatchers takes those that were seen last.
const listDispatchers = `SELECT ` + dispatcherColumns + `
	FROM (
		SELECT * FROM dispatchers WHERE seen_at >= $1 AND ended_at = 0
		ORDER BY seen_at DESC
		LIMIT $2) AS seen
	ORDER BY started_at, name`

// Dispatchers returns the processes that have reported themselves at seenSince or later, the first that started first; at most a thousand.
func (db *DB) Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var seen []store.Dispatcher
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var d store.Dispatcher
		var held, draining int
		err := rows.Scan(&d.Name, &d.Host, &d.Version, &d.Roles, &d.Workers, &d.InFlight, &held, &draining, &d.ClockOffset, &d.StartedAt, &d.SeenAt)
		d.Held, d.Draining = held != 0, draining != 0
		seen = append(seen, d)
		return err
	}, listDispatchers, seenSince, maxDispatchers)
	if err != nil {
		return nil, readError("list dispatchers", err)
	}
	return seen, nil
}

// LastWorker returns when a process with workers was last seen, whether it runs, has died or has ended; zero:
// there never was one.
func (db *DB) LastWorker(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var seen int64
	err := queryEach(ctx, db.read, func(rows scanner) error { return rows.Scan(&seen) },
		`SELECT COALESCE(MAX(seen_at), 0) FROM dispatchers WHERE workers > 0`)
	if err != nil {
		return 0, readError("find the last worker", err)
	}
	return seen, nil
}

// oldDispatchers spares the last process with workers: LastWorker is to know it for however long there is
// none.
const oldDispatchers = `SELECT name FROM dispatchers
	WHERE seen_at < $1 AND name <> COALESCE((
		SELECT last.name FROM dispatchers AS last WHERE last.workers > 0
		ORDER BY last.seen_at DESC
		LIMIT 1), '')
	ORDER BY seen_at
	LIMIT $2`

// PurgeDispatchers removes up to limit processes that have not reported themselves for a day. It returns how many.
func (db *DB) PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error) {
	n, err := db.inBatches(ctx, limit, func(t *tx, batch int) (int, error) {
		n, err := t.exec(`DELETE FROM dispatchers WHERE name IN (`+oldDispatchers+`)`, now-dispatcherAge.Milliseconds(), batch)
		return int(n), err
	})
	if err != nil {
		return n, fmt.Errorf("purge dispatchers: %w", err)
	}
	return n, nil
}
