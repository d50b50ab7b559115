package faults

import (
	"database/sql"
	"encoding/json"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// snapshotSpan is shorter while the test is being worked on.
var snapshotSpan = flag.Duration("snapshot", 10*time.Minute,
	"how long TestASnapshotHeldForMinutes holds its snapshot")

// sweepPage is the statement of a page of the sweep, from the low-water mark on.
const sweepPage = `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM callbacks
	WHERE state = 'scheduled'
		AND (due_at, id) > (COALESCE($1::bigint, 0), '')
		AND due_at < $2
		AND claim_until <= $2
	ORDER BY due_at, id
	LIMIT 1000`

// A transaction that holds a snapshot for ten minutes, as a report or a dump does, keeps PostgreSQL from
// cleaning the index over due times. A saturated dispatcher delivers as much as without it, and a page of its
// sweep does not read more from minute to minute.
func TestASnapshotHeldForMinutes(t *testing.T) {
	harness.BlackBox(t) // alone: it measures
	on := harness.NewBackend(t, harness.PostgresRedis)
	on.KeepApart("it ends in the middle of its load")
	p := harness.Serve(t, harness.Launch{On: on})
	s := saturate(t, p)
	db := on.Database(t)
	apart := max(20*time.Second, *snapshotSpan/10)
	s.during(t, 10*time.Second) // it warms up
	before := s.during(t, apart).delivered

	snapshot, err := db.BeginTx(t.Context(),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Rollback() //nolint:errcheck // it has written nothing
	if _, err := snapshot.ExecContext(t.Context(), `SELECT 1 FROM callbacks LIMIT 1`); err != nil {
		t.Fatal(err)
	}
	var within float64
	var pages []int64
	const parts = 10
	for range parts {
		within += s.during(t, *snapshotSpan/parts).delivered / parts
		pages = append(pages, buffersOfSweep(t, db))
	}
	if err := snapshot.Rollback(); err != nil {
		t.Fatal(err)
	}
	after := s.during(t, apart).delivered
	without := (before + after) / 2
	t.Logf("delivered %.0f/s while a snapshot is held for %s, %.0f/s before and %.0f/s after: %.2f; "+
		"a page of the sweep reads %d buffers", within, *snapshotSpan, before, after, within/without, pages)
	if within < 0.9*without {
		t.Errorf("delivered %.0f/s while a snapshot is held, %.0f/s without", within, without)
	}
	// The mark is one to two minutes behind the clock: only then what a page reads is as much as it will be.
	most := 1.5
	if *snapshotSpan < 4*time.Minute {
		most = 4
	}
	first, last := slices.Max(pages[:parts/2]), slices.Max(pages[parts/2:])
	if float64(last) > most*float64(first) {
		t.Errorf("a page of the sweep reads up to %d buffers in the second half, %d in the first",
			last, first)
	}
}

// buffersOfSweep is how many buffers PostgreSQL reads for a page of the sweep.
func buffersOfSweep(t *testing.T, db *sql.DB) int64 {
	t.Helper()
	var mark sql.NullInt64
	if err := db.QueryRowContext(t.Context(), `SELECT MAX(due_at) FROM cursors WHERE name = 'low due'`).
		Scan(&mark); err != nil {
		t.Fatal(err)
	}
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	// As the program does: its plan must not follow statistics of a table that was empty.
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL enable_seqscan = off`); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := tx.QueryRowContext(t.Context(), sweepPage, mark, time.Now().Add(-5*time.Second).UnixMilli()).
		Scan(&text); err != nil {
		t.Fatal(err)
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
