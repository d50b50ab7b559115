package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A low-water mark is a time before which no open row is due (dueMark) or expires (expiryMark). Statements
// that read open rows from the earliest on begin at the mark. Without it, on PostgreSQL, they get slower
// while any old snapshot is open: each ended callback leaves a dead entry at the head of the index, and a
// vacuum cannot remove it until the snapshot is closed. SQLite leaves no such entries and has no marks.
//
// These rules keep every open row at or above the mark:
//   - A mark stays settleTime behind the clock, because a row becomes visible some time after its times were
//     set.
//   - A transaction that gives a row an earlier time also lowers the mark, and holds the mark's lock until
//     it ends (lowerMarks).
//   - The full pass of AdvanceMarks corrects a mark that is too high for any other reason.

// The names of the marks in table cursors.
const (
	dueMark    = "low due"
	expiryMark = "low expiry"
)

// The first open row in a span of time. The indexes callbacks_due and callbacks_expiry serve these
// statements.
const (
	firstDue = `SELECT due_at FROM callbacks
		WHERE state = 'scheduled' AND due_at >= $1 AND due_at < $2
		ORDER BY due_at, id LIMIT 1`
	firstExpiry = `SELECT expires_at FROM callbacks
		WHERE state = 'scheduled' AND expires_at > 0 AND expires_at >= $1 AND expires_at < $2
		ORDER BY expires_at LIMIT 1`
)

// AdvanceMarks moves each low-water mark up to the first open row. A full pass searches from the beginning of
// the index and may also lower the mark. If the full pass fails, mostly because it takes longer than a read
// may, AdvanceMarks searches from the mark.
func (db *DB) AdvanceMarks(ctx context.Context, now int64, full bool) error {
	if db.sql.Embedded() {
		return nil
	}
	for _, m := range []struct{ name, first string }{{dueMark, firstDue}, {expiryMark, firstExpiry}} {
		var err error
		if full {
			err = db.advanceMark(ctx, m.name, m.first, now, true)
			if err == nil {
				continue
			}
			db.logger.Info("full pass of a low-water mark failed; the search continues from the mark",
				"mark", m.name, "error", err)
		}
		err = db.advanceMark(ctx, m.name, m.first, now, false)
		if err != nil {
			return err
		}
	}
	return nil
}

// advanceMark moves one mark in one maintenance transaction. first is the statement that finds the first open
// row.
func (db *DB) advanceMark(ctx context.Context, name, first string, now int64, full bool) error {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	return db.maintain(ctx, fmt.Sprintf("advance the mark %q", name), func(t *tx) error {
		// The lock makes transactions that lower the mark wait until the new mark is committed.
		mark, known, err := sqldb.Value[int64](t, `SELECT due_at FROM cursors WHERE name = $1 FOR UPDATE`,
			name)
		if err != nil {
			return err
		}
		if !known { // a missing row cannot be locked: make it, and let the next call move the mark
			return t.setCursor(name, store.Cursor{})
		}
		settled := now - settleTime // rows with earlier times are visible by now
		from := min(mark, settled)
		if full {
			from = 0
		}
		next, found, err := sqldb.Value[int64](t, first, from, settled)
		if err != nil {
			return err
		}
		if !found {
			next = settled
		}
		if next >= mark && next < mark+settleTime/4 {
			return nil // the gain is smaller than the cost of the write
		}
		return t.setCursor(name, store.Cursor{DueAt: next})
	})
}

// lowWaterMark reads a mark. It is zero on SQLite, and before the first AdvanceMarks.
func (db *DB) lowWaterMark(ctx context.Context, name string) (int64, error) {
	if db.sql.Embedded() {
		return 0, nil
	}
	c, err := db.cursor(ctx, "read a low-water mark", name)
	return c.DueAt, err
}

// fromLowWater returns the later of the cursor and the low-water mark of due times.
func (db *DB) fromLowWater(ctx context.Context, after store.Cursor) (store.Cursor, error) {
	low, err := db.lowWaterMark(ctx, dueMark)
	if low > after.DueAt {
		after = store.Cursor{DueAt: low}
	}
	return after, err
}

// earliestTimes are the earliest due time and expiry that a transaction gives to open rows, as far as a mark
// may be above them. Zero means none. Rows that are due now or later never count.
type earliestTimes struct{ due, expiry int64 }

// add takes the times of an open row. Times later than half of settleTime before now are above every mark.
func (e *earliestTimes) add(c *store.Callback, now int64) {
	if c.State != store.Scheduled {
		return
	}
	earlier := func(first, at int64) int64 {
		if at > 0 && at < now-settleTime/2 && (first == 0 || at < first) {
			return at
		}
		return first
	}
	e.due, e.expiry = earlier(e.due, c.DueAt), earlier(e.expiry, c.ExpiresAt)
}

// lowerMarks lowers the marks to these times, and holds their locks until the transaction ends. The
// transaction that writes the rows calls it before its commit.
func (t *tx) lowerMarks(e earliestTimes) error {
	if t.db.sql.Embedded() {
		return nil
	}
	return errors.Join(t.lowerMark(dueMark, e.due), t.lowerMark(expiryMark, e.expiry))
}

// lowerMark locks the mark even if it is low enough. AdvanceMarks cannot see the rows of this transaction
// before their commit, and without the lock would move the mark past them.
func (t *tx) lowerMark(name string, at int64) error {
	if at == 0 {
		return nil
	}
	n, err := t.Exec(`UPDATE cursors SET due_at = $1 WHERE name = $2 AND due_at > $1`, at, name)
	if err != nil || n > 0 {
		return err
	}
	mark, _, err := sqldb.Value[int64](t, `SELECT due_at FROM cursors WHERE name = $1 FOR SHARE`, name)
	if err == nil && mark > at { // AdvanceMarks moved it between the two statements: repeat the transaction
		err = fmt.Errorf("lower the mark %q: %w", name, sqldb.ErrOvertaken)
	}
	return err
}

// A foldMark is the number of a note: all notes that are still to be folded have larger numbers. Like a
// low-water mark, it keeps the fold from reading entries that PostgreSQL cannot remove yet.
//
// A note gets its number before its transaction commits, so a smaller number may become visible after a
// larger one. Therefore the mark is the last number that a fold saw settleTime ago. Once every fullPassEvery
// a fold starts at the first note, and finds any that took longer. The zero value is the beginning.
type foldMark struct {
	mu sync.Mutex
	// mark is in use. next replaces it settleTime after seenAt, when it was the last number.
	mark, next, seenAt int64
	// fullPassAt is when a fold last began at the first note, in Unix milliseconds.
	fullPassAt int64
}

// from returns the number after which a fold at now begins. It is zero for a full pass, and after the clock
// went back.
func (m *foldMark) from(now int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fullPassAt == 0 {
		m.fullPassAt = now
	}
	if now-m.fullPassAt >= fullPassEvery || now < m.seenAt {
		m.fullPassAt = now
		return 0
	}
	return m.mark
}

// saw takes the last number of a fold that committed at now.
func (m *foldMark) saw(last, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.next == 0 || now < m.seenAt:
		m.mark, m.next, m.seenAt = 0, last, now
	case now-m.seenAt >= settleTime:
		m.mark, m.next, m.seenAt = m.next, max(last, m.next), now
	}
}
