package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// Low-water marks: no open row is due, or expires, before its mark. Statements that read open rows from the
// first one on begin there. On PostgreSQL each callback that has ended leaves an entry at the head of the
// index, which a vacuum cannot take while any older snapshot is held: without a mark such statements read
// more of them each time.
//
// A mark stays settleTime behind the clock, for rows become visible after their times. A transaction that
// makes a row with an earlier time lowers the mark itself, and holds it there until it ends. Whatever else
// may come below the mark is found by the full pass of AdvanceMarks. SQLite keeps no such entries, and has no
// marks.

// The marks.
const (
	dueMark    = "low due"
	expiryMark = "low expiry"
)

// The first open rows from a time on and before another.
const (
	firstDue = `SELECT due_at FROM callbacks
		WHERE state = 'scheduled' AND due_at >= $1 AND due_at < $2
		ORDER BY due_at, id LIMIT 1`
	firstExpiry = `SELECT expires_at FROM callbacks
		WHERE state = 'scheduled' AND expires_at > 0 AND expires_at >= $1 AND expires_at < $2
		ORDER BY expires_at LIMIT 1`
)

// AdvanceMarks moves the low-water marks on to the first open rows. With full it looks for those from the
// first entry of the index on, which may lower a mark; where that takes too long it goes on from the mark.
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
			db.logger.Info("the full pass of a low-water mark did not end in time",
				"mark", m.name, "error", err)
		}
		err = db.advanceMark(ctx, m.name, m.first, now, false)
		if err != nil {
			return err
		}
	}
	return nil
}

func (db *DB) advanceMark(ctx context.Context, name, first string, now int64, full bool) error {
	ctx, cancel := context.WithTimeout(ctx, db.sql.Limits.Read)
	defer cancel()
	return db.maintain(ctx, fmt.Sprintf("advance the mark %q", name), func(t *tx) error {
		// The lock keeps transactions that lower the mark from doing so between the look and the new mark.
		mark, known, err := sqldb.Value[int64](t, `SELECT due_at FROM cursors WHERE name = $1 FOR UPDATE`,
			name)
		if err != nil {
			return err
		}
		if !known { // there is nothing to lock: the next call moves it
			return t.setCursor(name, store.Cursor{})
		}
		settled := now - settleTime
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
			return nil // that little costs less than to write it down
		}
		return t.setCursor(name, store.Cursor{DueAt: next})
	})
}

// low is a low-water mark.
func (db *DB) lowWaterMark(ctx context.Context, name string) (int64, error) {
	if db.sql.Embedded() {
		return 0, nil
	}
	c, err := db.cursor(ctx, "read a low-water mark", name)
	return c.DueAt, err
}

// fromLowWater is the cursor, or the place before the first open row if that is later.
func (db *DB) fromLowWater(ctx context.Context, after store.Cursor) (store.Cursor, error) {
	low, err := db.lowWaterMark(ctx, dueMark)
	if low > after.DueAt {
		after = store.Cursor{DueAt: low}
	}
	return after, err
}

// earliestTimes are the first due time and the first expiry of rows that a transaction opens, or gives other
// times, of those times that a mark may have passed. Zero: there is none.
type earliestTimes struct{ due, expiry int64 }

// add takes the times of an open row that are earliest at now.
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

// lowerMarks keeps the marks at these times or below until the transaction has ended.
func (t *tx) lowerMarks(e earliestTimes) error {
	if t.db.sql.Embedded() {
		return nil
	}
	return errors.Join(t.lowerMark(dueMark, e.due), t.lowerMark(expiryMark, e.expiry))
}

// lowerMark locks the mark even where it is low enough: AdvanceMarks does not see the rows of this
// transaction, and would move the mark past them.
func (t *tx) lowerMark(name string, at int64) error {
	if at == 0 {
		return nil
	}
	n, err := t.Exec(`UPDATE cursors SET due_at = $1 WHERE name = $2 AND due_at > $1`, at, name)
	if err != nil || n > 0 {
		return err
	}
	mark, _, err := sqldb.Value[int64](t, `SELECT due_at FROM cursors WHERE name = $1 FOR SHARE`, name)
	if err == nil && mark > at { // It was moved between the two statements.
		err = fmt.Errorf("lower the mark %q: %w", name, sqldb.ErrOvertaken)
	}
	return err
}

// A foldMark is a number that all notes are above which are still to be folded. Like a low-water mark it
// keeps the fold from reading what PostgreSQL cannot clean. Notes have their numbers before they commit, so
// the mark is the last number that a fold saw settleTime ago. The zero value is the beginning.
type foldMark struct {
	mu sync.Mutex
	// mark is in force; next, which was the last number at seenAt, will be.
	mark, next, seenAt int64
	// fullPassAt is when a fold last began at the first note.
	fullPassAt int64
}

// from is the number after which a fold at now begins.
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

// saw says that a fold at now has committed, and what its last number was.
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
