package sqlstore

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestExpiredKeyIsTakenOverOnce: a key whose callback was purged is free. If two processes accept with it at
// once, one makes a callback, and the other is answered with it. Only PostgreSQL has two writers.
func TestExpiredKeyIsTakenOverOnce(t *testing.T) {
	needsPostgres(t)
	k := newExpiredKey(t)
	locked := k.lock(t)
	var wg sync.WaitGroup
	answers := make([]store.Accepted, 2)
	for i, db := range []*DB{k.db, k.other} {
		wg.Go(func() { answers[i] = k.accept(t, db) })
	}
	awaitLocked(t, k.sql, 2)
	noError(locked.Rollback())
	wg.Wait()
	a, b := answers[0], answers[1]
	if a.Err != nil || b.Err != nil || a.Replayed == b.Replayed || a.Callback.ID != b.Callback.ID {
		t.Errorf("two accepts with a key that has expired: %s (replayed: %t, %v) and %s (replayed: %t, %v)",
			a.Callback.ID, a.Replayed, a.Err, b.Callback.ID, b.Replayed, b.Err)
	}
	if n := countRows(t, k.sql, `SELECT count(*) FROM callbacks`); n != 1 {
		t.Errorf("%d callbacks were accepted, want 1", n)
	}
}

// TestPurgeKeepsAKeyThatWasTakenOver: a purge found that a key is old, and an accept takes it over before the
// purge deletes it. The key must stay.
func TestPurgeKeepsAKeyThatWasTakenOver(t *testing.T) {
	needsPostgres(t)
	k := newExpiredKey(t)
	locked := k.lock(t)
	var wg sync.WaitGroup
	var taken store.Accepted
	wg.Go(func() { taken = k.accept(t, k.db) })
	awaitLocked(t, k.sql, 1)
	wg.Go(func() {
		if _, _, err := k.other.PurgeKeys(t.Context(), k.now, 100); err != nil {
			t.Error(err)
		}
	})
	awaitLocked(t, k.sql, 2)
	noError(locked.Rollback())
	wg.Wait()
	if taken.Err != nil || taken.Replayed {
		t.Fatalf("the first accept with a key that has expired: %+v", taken)
	}
	if again := k.accept(t, k.other); again.Err != nil || !again.Replayed ||
		again.Callback.ID != taken.Callback.ID {
		t.Errorf("the same request again: %s (replayed: %t, %v), want %s",
			again.Callback.ID, again.Replayed, again.Err, taken.Callback.ID)
	}
}

// An expiredKey is a stored key whose callback was purged, in a database that two processes have opened.
type expiredKey struct {
	db, other *DB
	sql       *sql.DB
	now       int64
}

func newExpiredKey(t *testing.T) *expiredKey {
	t.Helper()
	url := postgresURL(t)
	k := &expiredKey{db: openSlow(t, url), other: openSlow(t, url), now: time.Now().UnixMilli()}
	k.sql = k.db.sql.Pool
	if first := k.accept(t, k.db); first.Err != nil || first.Replayed {
		t.Fatalf("accepted %+v", first)
	}
	k.now += store.IdempotencyAge.Milliseconds() + 1
	must(k.sql.ExecContext(t.Context(), `DELETE FROM callbacks`))
	return k
}

// lock locks the key's row until the transaction ends.
func (k *expiredKey) lock(t *testing.T) *sql.Tx {
	t.Helper()
	tx := must(k.sql.BeginTx(t.Context(), nil))
	t.Cleanup(func() { _ = tx.Rollback() }) // an error means that the test has ended it
	must(tx.ExecContext(t.Context(), `SELECT 1 FROM idempotency FOR UPDATE`))
	return tx
}

// accept sends the request with the key. Each call has a draft with a new id.
func (k *expiredKey) accept(t *testing.T, db *DB) store.Accepted {
	t.Helper()
	d := newDrafts(1, k.now)[0]
	d.Idempotency = &store.Idempotency{Route: "POST /v1/callbacks", Key: "key", Fingerprint: []byte("one")}
	accepted, err := db.Accept(t.Context(), []store.Draft{d})
	if err != nil {
		t.Error(err)
		return store.Accepted{Err: err}
	}
	return accepted[0]
}

// awaitLocked waits until n statements wait for row locks.
func awaitLocked(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for countLocked(t, db) < n {
		if ctx.Err() != nil {
			t.Fatalf("%d statements never waited at once", n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// countLocked returns how many statements wait for row locks.
func countLocked(t *testing.T, db *sql.DB) int {
	t.Helper()
	return countRows(t, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

func countRows(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	noError(db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}
