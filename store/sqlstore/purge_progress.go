package sqlstore

import (
	"context"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// Purges remove rows from the old end of an index. On PostgreSQL the entries of removed rows stay there until
// a vacuum takes them, which it cannot while any snapshot is held that is older. A purge that began at the
// first entry would read all of them each time, so it begins where the last one ended.

const (
	// settleTime is how long after its time a row may become visible: transactions and clocks differ by less.
	settleTime = 60_000
	// fullPassEvery is how often a purge begins at the first entry all the same: it finds rows that were
	// locked or still needed when it passed them.
	fullPassEvery = 3_600_000
	// saveEvery is how often a place is written down: on PostgreSQL a row that is changed more often is
	// itself slow to read while a snapshot is held.
	saveEvery = 60_000
)

// A place is how far the purge of one kind of row has come. Times are Unix milliseconds. Of one kind one
// purge runs at a time.
type purgeProgress struct {
	// size is how many rows the next transaction takes.
	size int
	// saved and fullPassAt say when the place was written down, and when the purge last began at the first
	// entry. back is how far it has come since then; nil: it has passed the place again. moved says that the
	// purge has passed rows since the place was written down.
	savedAt, fullPassAt int64
	fullPass            *store.Cursor
	unsaved             bool

	mu sync.Mutex
	at store.Cursor
	// readAt is when it was read what another process may have written down.
	readAt int64
}

// start is where a statement begins: what is younger than settleTime may have come since.
func (p *purgeProgress) start(now int64) store.Cursor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return settledBy(p.at, now)
}

// settledBy is the cursor, or an earlier one before which no row becomes visible any more.
func settledBy(at store.Cursor, now int64) store.Cursor {
	if settled := now - settleTime; settled < at.DueAt {
		return store.Cursor{DueAt: settled}
	}
	return at
}

// isDue says whether that long has passed since last, or the clock was set back since then.
func isDue(last, every, now int64) bool { return now-last >= every || now < last }

// next is where a purge goes on: at the place, or before it once in fullPassEvery.
func (p *purgeProgress) next(now int64) store.Cursor {
	if isDue(p.fullPassAt, fullPassEvery, now) {
		p.fullPassAt, p.fullPass = now, new(store.Cursor)
	}
	if p.fullPass != nil {
		return settledBy(*p.fullPass, now)
	}
	return p.start(now)
}

// reach moves the place on, or what is before it.
func (p *purgeProgress) reach(at store.Cursor) {
	if p.fullPass != nil {
		p.fullPass = &at
	}
	if p.catchUp(at) {
		p.fullPass = nil
	}
}

// catchUp moves the place on, unless it is as far, and says whether it did.
func (p *purgeProgress) catchUp(at store.Cursor) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.DueAt > at.DueAt || p.at.DueAt == at.DueAt && p.at.ID >= at.ID {
		return false
	}
	p.at = at
	return true
}

// places are those of all kinds in this process, by the names of their cursors.
type allProgress struct {
	mu  sync.Mutex
	all map[string]*purgeProgress
}

// A batch is what one transaction of a purge looks at.
type batch struct {
	// from is where the transaction begins; it moves from on as it reads.
	from store.Cursor
	// before is the time before which rows are too old, and rows how many it may take.
	before int64
	rows   int
}

// purgeInBatches runs step in maintenance transactions until one finds fewer rows than it may take, or limit rows
// were looked at: more is true then. A step moves b.from to the last row that it read, and returns how many
// rows it saw and how many it removed. It sees no row that is older than b.from.
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
			p.fullPass = nil // where looking back takes too long, the next call goes on at the place
			return removed, false, err
		}
		p.unsaved = p.unsaved || seen > 0
		looked, removed, at = looked+seen, removed+gone, b.from
		if seen < b.rows && at.DueAt < before {
			at = store.Cursor{DueAt: before} // all that is older is gone, or is looked at again in an hour
		}
		p.reach(at)
		p.size = db.nextSize(p.size, seen, took)
		if seen < b.rows {
			return removed, false, db.saveProgress(ctx, name, p, now)
		}
	}
	return removed, true, db.saveProgress(ctx, name, p, now)
}

// saveProgress writes the place down for other processes, if it is time to.
func (db *DB) saveProgress(ctx context.Context, name string, p *purgeProgress, now int64) error {
	if !p.unsaved || !isDue(p.savedAt, saveEvery, now) {
		return nil
	}
	p.mu.Lock()
	at := p.at
	p.mu.Unlock()
	if err := db.maintain(ctx, "write down where a purge goes on", func(t *tx) error {
		return t.setCursor(name, at)
	}); err != nil {
		return err
	}
	p.unsaved, p.savedAt = false, now
	return nil
}

// purgeBatch runs step in one transaction. The time it returns is that of the step: not of the wait for
// other transactions, and not of the commit. On a busy disk a commit takes as long for few rows as for many:
// with smaller transactions less would be removed, and others would wait as long.
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

// purgeByStatement is purgeInBatches for rows that go by one statement. It takes the time to begin at, the time before
// which rows are too old, and how many it may take, and returns the time of each that it removed.
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

// place returns how far the purge has come, in this process or in another one.
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

// leastBatch is the fewest rows of a transaction that removes rows.
const leastBatch = 25

// nextSize is how many rows the next transaction takes after one that took so long for so many.
func (db *DB) nextSize(size, rows int, took time.Duration) int {
	if rows < leastBatch {
		return size // it says little
	}
	aim := db.sql.Dialect.PurgeTime
	if db.sql.Busy() {
		aim /= 2
	}
	fit := int(float64(rows) * float64(aim) / float64(max(took, time.Microsecond)))
	return min(max(min(fit, 2*size), size/2, leastBatch), db.sql.Dialect.PurgeBatch)
}
