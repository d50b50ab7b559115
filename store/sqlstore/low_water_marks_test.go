package sqlstore

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestOpenSnapshotDoesNotSlowTheSweep: while a snapshot is open, a vacuum cannot remove the index entries of
// ended callbacks. The sweep and similar statements still read the same number of pages, however many
// callbacks have ended.
func TestOpenSnapshotDoesNotSlowTheSweep(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	now := testNow
	snapshot := must(db.sql.Pool.BeginTx(t.Context(), nil))
	defer snapshot.Rollback() //nolint:errcheck // it wrote nothing
	must(snapshot.ExecContext(t.Context(),
		`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`))
	must(snapshot.ExecContext(t.Context(), `SELECT count(*) FROM callbacks`))
	reads := map[string][]int64{}
	for range 4 {
		passThrough(t, db, 3000, now)
		now += 10 * settleTime
		for range 2 { // the first call only inserts the marks
			noError(db.AdvanceMarks(t.Context(), now, false))
		}
		after := must(db.fromLowWater(t.Context(), store.Cursor{}))
		low := must(db.lowWaterMark(t.Context(), expiryMark))
		reads["sweep"] = append(reads["sweep"],
			buffersOf(t, db, selecting(openColumns, walkRest(overdue, 5)), after.DueAt, after.ID, now, now,
				1000))
		reads["mark"] = append(reads["mark"], buffersOf(t, db, firstDue, after.DueAt, now))
		reads["expiry"] = append(reads["expiry"], buffersOf(t, db, firstExpiry, low, now))
		noError(db.Fold(t.Context(), now))
		reads["fold"] = append(reads["fold"], buffersOf(t, db, oldestNotes, db.folded.from(now), 1000))
		reads["count"] = append(reads["count"],
			buffersOf(t, db, selecting(cursorColumns, windowOfDue), after.DueAt, after.ID, now, 199))
	}
	for what, n := range reads {
		t.Logf("%s: %d buffers", what, n)
		const tolerance = 8
		if n[3] > n[1]+tolerance {
			t.Errorf("%s reads more pages as more callbacks end: %d", what, n)
		}
	}
}

// passThrough accepts callbacks and ends them.
func passThrough(t *testing.T, db *DB, n int, now int64) {
	t.Helper()
	drafts := newDrafts(n, now)
	for i := range drafts {
		drafts[i].Callback.ExpiresAt = now + 1
	}
	for some := range slices.Chunk(drafts, 20) { // each call is a group with a note
		must(db.Accept(t.Context(), some))
	}
	must(db.sql.Pool.ExecContext(t.Context(), `UPDATE callbacks
		SET state = 'succeeded', due_at = 0, finished_at = $1 WHERE state = 'scheduled'`, now))
}

// buffersOf returns how many pages PostgreSQL reads for a statement, from memory or from disk.
func buffersOf(t *testing.T, db *DB, query string, args ...any) int64 {
	t.Helper()
	var text string
	if err := db.sql.Groups.QueryRowContext(t.Context(),
		`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+query, args...).Scan(&text); err != nil {
		t.Fatalf("%v\n%s", err, query)
	}
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// TestMarkStaysBelowALateCommit: a transaction inserts an overdue row, and AdvanceMarks runs before it
// commits. The marks must not pass the row.
func TestMarkStaysBelowALateCommit(t *testing.T) {
	needsPostgres(t)
	db := openPostgres(t)
	now := testNow
	for range 2 { // the first call only inserts the marks
		noError(db.AdvanceMarks(t.Context(), now, false))
	}
	drafts := newDrafts(1, now+10*settleTime)
	drafts[0].Callback.DueAt, drafts[0].Callback.ExpiresAt = now, now
	advanced := make(chan error, 1)
	err := db.change(t.Context(), "accept", func(tx *tx) error {
		entry := acceptEntry{draft: &drafts[0]}
		if err := entry.encode(&db.written); err != nil {
			return err
		}
		if err := tx.acceptAll([]*acceptEntry{&entry}); err != nil {
			return err
		}
		go func() { advanced <- db.AdvanceMarks(t.Context(), now+10*settleTime, false) }()
		for { // until AdvanceMarks returns, or waits for this transaction
			select {
			case err := <-advanced:
				advanced <- err
				return nil
			case <-time.After(5 * time.Millisecond):
			}
			if countLocked(t, db.sql.Pool) > 0 {
				return nil
			}
		}
	})
	noError(errors.Join(err, <-advanced))
	for _, mark := range []string{dueMark, expiryMark} {
		if low, err := db.lowWaterMark(t.Context(), mark); err != nil || low > now {
			t.Errorf("the mark %q is %d ms above the row, %v", mark, low-now, err)
		}
	}
}
