package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A purge deletes rows from the old end of an index. On PostgreSQL the index entries of deleted rows stay
// there until a vacuum removes them, and a vacuum cannot while any older snapshot is open. A purge that
// begins at the first entry reads all of them each time. Therefore a purge begins where the last one ended,
// and this file keeps that position for each kind of row.

const (
	// settleTime is the maximum delay between a row's time and its visibility, in milliseconds. The length of
	// a transaction and the difference between clocks stay below it.
	settleTime = 60_000
	// fullPassEvery is how often a purge begins at the first entry again, in milliseconds. The full pass
	// finds rows that were locked or still in use when the purge passed them.
	fullPassEvery = 3_600_000
	// saveEvery is the minimum time between two writes of a position, in milliseconds. On PostgreSQL a row
	// that changes more often gets slow to read while a snapshot is open.
	saveEvery = 60_000
)

// purgeProgress is how far the purge of one kind of row has come. Times are Unix milliseconds. Only one purge
// of a kind runs at a time, so only the fields below mu are shared with Overstays.
type purgeProgress struct {
	// size is the number of rows for the next transaction.
	size int
	// savedAt is when the position was last written to SQL, and fullPassAt when the last full pass began.
	// fullPass is the position of a running full pass, nil if none runs. unsaved is set if the purge saw rows
	// after savedAt.
	savedAt, fullPassAt int64
	fullPass            *store.Cursor
	unsaved             bool

	mu sync.Mutex
	at store.Cursor
	// readAt is when the position of other processes was last read.
	readAt int64
}

// start is the position where a statement begins. It is at most now minus settleTime, because younger rows
// may have become visible after the purge passed.
func (p *purgeProgress) start(now int64) store.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return settledBy(p.at, now)
}

// settledBy returns the cursor, or now minus settleTime if that is earlier: no row becomes visible before it.
func settledBy(at store.Cursor, now int64) store.Cursor {
	if settled := now - settleTime; settled < at.DueAt {
		return store.Cursor{DueAt: settled}
	}
	return at
}

// isDue reports whether the interval has passed since last. It is also true after the clock went back.
func isDue(last, every, now int64) bool { return now-last >= every || now < last }

// next is the position where the purge goes on. It starts a full pass if one is due.
func (p *purgeProgress) next(now int64) store.Cursor {
	if isDue(p.fullPassAt, fullPassEvery, now) {
		p.fullPassAt, p.fullPass = now, new(store.Cursor)
	}
	if p.fullPass != nil {
		return settledBy(*p.fullPass, now)
	}
	return p.start(now)
}

// reach records that the purge has come to this position. A full pass ends when it overtakes the position of
// the purge.
func (p *purgeProgress) reach(at store.Cursor) {
	if p.fullPass != nil {
		p.fullPass = &at
	}
	if p.catchUp(at) {
		p.fullPass = nil
	}
}

// catchUp raises the position and reports whether it was lower.
func (p *purgeProgress) catchUp(at store.Cursor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.DueAt > at.DueAt || p.at.DueAt == at.DueAt && p.at.ID >= at.ID {
		return false
	}
	p.at = at
	return true
}

// allProgress holds the progress of every purge of this process, by the names of their cursors.
type allProgress struct {
	mu  sync.Mutex
	all map[string]*purgeProgress
}

// A batch is what one transaction of a purge reads.
type batch struct {
	// from is the position where the transaction begins. The step sets it to the last row that it read.
	from store.Cursor
	// before: only rows that are older are removed. rows is the maximum number of rows to read.
	before int64
	rows   int
}

// purgeInBatches runs step in maintenance transactions until a step sees fewer rows than it may, or limit
// rows were seen in all. Only the second case sets more. A step reads rows from b.from on, sets b.from to the
// last one, and returns how many rows it saw and removed. After a crash the purge repeats from the last saved
// position, which only costs reads.
func (db *DB) purgeInBatches(
	ctx context.Context, name string, now, before int64, limit int,
	step func(t *tx, b *batch) (seen, removed int, err error),
) (removed int, more bool, err error) {
	p, err := db.progressOf(ctx, name, now)
	if err != nil {
		return 0, false, err
	}
	at := p.next(now)
	for looked := 0; looked < limit; {
		b := batch{from: at, before: before, rows: min(limit-looked, p.size)}
		seen, gone, took, err := db.purgeBatch(ctx, &b, step)
		if err != nil {
			p.size = max(p.size/2, leastBatch)
			p.fullPass = nil // a full pass that takes too long must not stop the purge: go on at its position
			return removed, false, err
		}
		p.unsaved = p.unsaved || seen > 0
		looked, removed, at = looked+seen, removed+gone, b.from
		if seen < b.rows && at.DueAt < before {
			at = store.Cursor{DueAt: before} // rows that were skipped are found by the next full pass
		}
		p.reach(at)
		p.size = db.nextSize(p.size, seen, took)
		if seen < b.rows {
			return removed, false, db.saveProgress(ctx, name, p, now)
		}
	}
	return removed, true, db.saveProgress(ctx, name, p, now)
}

// saveProgress writes the position to SQL at most once in saveEvery, so that another process can go on there.
func (db *DB) saveProgress(ctx context.Context, name string, p *purgeProgress, now int64) error {
	if !p.unsaved || !isDue(p.savedAt, saveEvery, now) {
		return nil
	}
	p.mu.Lock()
	at := p.at
	p.mu.Unlock()
	if err := db.maintain(ctx, "save where a purge goes on", func(t *tx) error {
		return t.setCursor(name, at)
	}); err != nil {
		return err
	}
	p.unsaved, p.savedAt = false, now
	return nil
}

// purgeBatch runs step in one transaction. ByIndex keeps PostgreSQL from reading whole tables when its
// statistics are out of date. took is the time of the step alone, without the wait for other transactions and
// without the commit. On a busy disk a commit takes as long for few rows as for many. If took included it,
// the batches would shrink without making others wait less.
func (db *DB) purgeBatch(
	ctx context.Context, b *batch, step func(t *tx, b *batch) (seen, removed int, err error),
) (seen, removed int, took time.Duration, err error) {
	from := b.from
	err = db.maintain(ctx, "", func(t *tx) error {
		b.from = from
		began := time.Now()
		err := t.ByIndex()
		if err != nil {
			return err
		}
		seen, removed, err = step(t, b)
		took = time.Since(began)
		return err
	})
	return seen, removed, took, err
}

// purgeByStatement is purgeInBatches for rows that one statement deletes. Its parameters are the time to
// begin at, the time before which rows are too old, and the maximum number of rows. It returns the time of
// each deleted row.
func (db *DB) purgeByStatement(
	ctx context.Context, name string, now, before int64, limit int, statement string,
) (removed int, more bool, err error) {
	removed, more, err = db.purgeInBatches(ctx, name, now, before, limit, func(
		t *tx, b *batch,
	) (int, int, error) {
		times, err := sqldb.Values[int64](t, statement, b.from.DueAt, b.before, b.rows)
		for _, at := range times {
			b.from.DueAt = max(b.from.DueAt, at)
		}
		return len(times), len(times), err
	})
	return removed, more, named(name, err)
}

// progressOf returns the progress of a purge. It takes over the position that another process saved, if that
// is further.
func (db *DB) progressOf(ctx context.Context, name string, now int64) (*purgeProgress, error) {
	db.progress.mu.Lock()
	defer db.progress.mu.Unlock()
	p := db.progress.all[name]
	if p != nil && !isDue(p.readAt, saveEvery, now) {
		return p, nil
	}
	at, err := db.cursor(ctx, "read where a purge goes on", name)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &purgeProgress{size: leastBatch, savedAt: now, fullPassAt: now}
		if db.progress.all == nil {
			db.progress.all = make(map[string]*purgeProgress)
		}
		db.progress.all[name] = p
	}
	p.readAt = now
	p.catchUp(at)
	return p, nil
}

// leastBatch is the minimum number of rows for one transaction of a purge.
const leastBatch = 25

// nextSize returns the number of rows for the next transaction, after one that took this long for so many
// rows. It aims at the dialect's PurgeTime, half of it while callers wait, and changes by a factor of two at
// most.
func (db *DB) nextSize(size, rows int, took time.Duration) int {
	if rows < leastBatch {
		return size // too few rows to measure
	}
	aim := db.sql.Dialect.PurgeTime
	if db.sql.Busy() {
		aim /= 2
	}
	fit := int(float64(rows) * float64(aim) / float64(max(took, time.Microsecond)))
	return min(max(min(fit, 2*size), size/2, leastBatch), db.sql.Dialect.PurgeBatch)
}
