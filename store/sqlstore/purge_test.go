package sqlstore

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// TestPurgeUsesIndexes: misleading statistics say that each callback has 20,000 attempts, so that reading the
// whole table would be cheaper. A purge must still find its rows by indexes.
func TestPurgeUsesIndexes(t *testing.T) {
	needsPostgres(t)
	// The database is not reused: its statistics would change the plans of other tests.
	db := openSlow(t, testserver.SharedPostgres(t).Copy(t, "schema", fillTemplate))
	const n = 100
	drafts := newDrafts(n, testNow)
	ids := make([]string, n)
	for i := range drafts {
		ids[i] = drafts[i].Callback.ID
	}
	must(db.Accept(t.Context(), drafts))
	var results []store.Result
	for _, s := range stampAll(t, db, ids...) {
		results = append(results, succeeded(s))
	}
	must(db.Commit(t.Context(), results, testNow))
	const rest = `project, trigger, outcome, charged, class, status, error, started_at, ended_at, due_at,
		lateness, next_due_at, fence, stale, key_id, response_body, response_truncated, detail`
	must(db.sql.Pool.ExecContext(t.Context(), `INSERT INTO attempts (callback_id, number, `+rest+`)
		SELECT 'gone', n, `+rest+
		` FROM (SELECT * FROM attempts LIMIT 1) AS one, generate_series(1, 20000) AS n`))
	must(db.sql.Pool.ExecContext(t.Context(), `ANALYZE`))

	b := batch{before: testNow + 1, rows: n}
	var scans int64
	_, removed, _, err := db.purgeBatch(t.Context(), &b, func(t *tx, b *batch) (int, int, error) {
		count := func() int64 {
			n, _, err := sqldb.Value[int64](t, `SELECT SUM(seq_scan)::bigint FROM pg_stat_xact_user_tables`)
			noError(err)
			return n
		}
		before := count()
		seen, removed, err := removeCallbacks(withPayload)(t, b)
		scans = count() - before
		return seen, removed, err
	})
	noError(err)
	if removed != n || scans != 0 {
		t.Errorf("%d of %d callbacks are removed, and whole tables were read %d times", removed, n, scans)
	}
}
