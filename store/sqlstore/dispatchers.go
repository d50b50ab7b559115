package sqlstore

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

const (
	// maxDispatchers is the maximum number of processes in the list.
	maxDispatchers = 1000
	// dispatcherAge is how long the row of a silent process is kept.
	dispatcherAge = 24 * time.Hour
)

var dispatcherColumns = sqldb.Named[store.Dispatcher](
	`name host version roles workers in_flight held=SendingOff draining clock_offset started_at seen_at`)

// ReportDispatcher stores the state of a process, and replaces what it reported before.
func (db *DB) ReportDispatcher(ctx context.Context, d store.Dispatcher) error {
	columns := dispatcherColumns(&d)
	return db.change(ctx, "report dispatcher "+d.Name, func(t *tx) error {
		_, err := columns.Insert(t.Tx, "dispatchers",
			`ON CONFLICT (name) DO UPDATE SET `+columns.Overwrite("name")+`, ended_at = 0`)
		return err
	})
}

// WithdrawDispatcher takes a process that shut down off the list. Its row stays for LastWorker.
func (db *DB) WithdrawDispatcher(ctx context.Context, name string, now int64) error {
	return db.changeBy(ctx, "withdraw dispatcher "+name,
		`UPDATE dispatchers SET ended_at = $2, seen_at = $2 WHERE name = $1 AND ended_at = 0`, name, now)
}

// lastDispatchers finds the processes that were seen last, by the index dispatchers_seen.
const lastDispatchers = `FROM (
		SELECT * FROM dispatchers WHERE seen_at >= $1 AND ended_at = 0
		ORDER BY seen_at DESC
		LIMIT $2) AS seen
	ORDER BY started_at, name`

// Dispatchers returns the running processes that reported at seenSince or later, in the order of their
// starts; at most a thousand.
func (db *DB) Dispatchers(ctx context.Context, seenSince int64) ([]store.Dispatcher, error) {
	return sqldb.Select(db.read(ctx, "list dispatchers"), dispatcherColumns, lastDispatchers, seenSince,
		maxDispatchers)
}

// LastWorker returns when a process with workers was last seen, whether it runs, died or shut down. Zero
// means never.
func (db *DB) LastWorker(ctx context.Context) (int64, error) {
	seen, _, err := sqldb.Value[int64](db.read(ctx, "find the last worker"),
		`SELECT COALESCE(MAX(seen_at), 0) FROM dispatchers WHERE workers > 0`)
	return seen, err
}

// oldDispatchers finds rows to delete. It keeps the last process with workers, so that LastWorker still
// returns it after any time without one.
const oldDispatchers = `SELECT name FROM dispatchers
	WHERE seen_at < $1 AND name <> COALESCE((
		SELECT last.name FROM dispatchers AS last WHERE last.workers > 0
		ORDER BY last.seen_at DESC
		LIMIT 1), '')
	ORDER BY seen_at
	LIMIT $2`

// PurgeDispatchers deletes the rows of up to limit processes that have not reported for a day. It returns how
// many.
func (db *DB) PurgeDispatchers(ctx context.Context, now int64, limit int) (int, error) {
	return db.deleteBatches(ctx, "purge dispatchers", limit,
		`DELETE FROM dispatchers WHERE name IN (`+oldDispatchers+`)`, now-dispatcherAge.Milliseconds())
}
