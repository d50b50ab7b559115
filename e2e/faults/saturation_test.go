package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A saturation keeps a dispatcher as busy as it can be: callers hand over batches as long as fewer than a few
// thousand callbacks are open, and the receiver answers at once.
type saturation struct {
	p        *harness.Process
	address  string
	accepted atomic.Int64
}

// The load of a saturation.
const (
	saturationCallers = 4
	saturationBatch   = 250
	saturationOpen    = 4000
)

// saturate loads the dispatcher until the test ends.
func saturate(t *testing.T, p *harness.Process) *saturation {
	t.Helper()
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s := &saturation{p: p, address: receiver.URL}
	ctx, cancel := context.WithCancel(context.Background())
	var callers errgroup.Group
	for caller := range saturationCallers {
		callers.Go(func() error { return s.call(ctx, caller) })
	}
	t.Cleanup(func() {
		cancel()
		if err := callers.Wait(); err != nil {
			t.Errorf("the load ended: %v", err)
		}
		receiver.Close()
	})
	return s
}

// call hands over batches until ctx ends.
func (s *saturation) call(ctx context.Context, caller int) error {
	for n := 0; ctx.Err() == nil; {
		ended, err := s.ended()
		if err != nil {
			return err
		}
		if float64(s.accepted.Load())-ended > saturationOpen {
			harness.Pause()
			continue
		}
		list := make([]harness.Submission, saturationBatch)
		for i := range list {
			ref := fmt.Sprintf("order-%d-%d", caller, n)
			list[i] = harness.Submission{
				"url": s.address, "ref": ref, "payload": harness.Payload(ref), "idempotency_key": ref,
			}
			n++
		}
		s.accepted.Add(saturationBatch)
		if _, err := s.p.AcceptBatch(ctx, list); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// ended is how many callbacks have become terminal.
func (s *saturation) ended() (float64, error) {
	return s.p.Counter("dispatcher_callbacks_terminal_total")
}

// rates are what two counters did in a span of time, each a second.
type rates struct{ delivered, removed float64 }

// during measures for that long.
func (s *saturation) during(t *testing.T, span time.Duration) rates {
	t.Helper()
	began := time.Now()
	first := s.read(t)
	time.Sleep(span) // what is measured
	last, took := s.read(t), time.Since(began).Seconds()
	return rates{(last.delivered - first.delivered) / took, (last.removed - first.removed) / took}
}

func (s *saturation) read(t *testing.T) rates {
	t.Helper()
	delivered, err := s.ended()
	removed, err2 := s.p.Counter("dispatcher_purged_total", `what="callback"`)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return rates{delivered, removed}
}

// Retention removes callbacks as fast as a saturated dispatcher delivers them, payloads first and rows later:
// what should be gone does not gather.
func TestRetentionKeepsUpWithSaturation(t *testing.T) {
	harness.BlackBox(t) // alone: it measures
	// Retention works in runs seconds apart, so rows of some seconds may wait at the end that did not at the
	// beginning: in two minutes they are below the twentieth that is allowed.
	span := sized(2*time.Minute, 2*time.Minute, 5*time.Minute)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, on harness.Backend) {
		on.KeepApart("retention removes callbacks")
		p := harness.Serve(t, harness.Launch{On: on, Args: []string{
			"--retention-payload", "1s", "--retention-metadata", "5s",
		}})
		s := saturate(t, p)
		harness.AtLeast(t, time.Minute, "retention begins", 1,
			func() int { return p.Count("dispatcher_purged_total", `what="callback"`) })
		s.during(t, 10*time.Second) // what had gathered before the first run goes
		db := on.Database(t)
		before := overdue(t, db, 5*time.Second)
		got := s.during(t, span)
		after := overdue(t, db, 5*time.Second)
		t.Logf("%.0f/s delivered, %.0f/s removed: %.2f; the oldest callback is overdue by %s, "+
			"after %s before",
			got.delivered, got.removed, got.removed/got.delivered, after, before)
		if got.removed < 0.95*got.delivered {
			t.Errorf("removed %.0f/s of %.0f/s that were delivered", got.removed, got.delivered)
		}
		if more := after - before; more > span/5 {
			t.Errorf("what should be gone is older by %s than %s before", more, span)
		}
	})
}

// overdue is for how long the oldest terminal callback has outstayed its retention.
func overdue(t *testing.T, db *sql.DB, retention time.Duration) time.Duration {
	t.Helper()
	var oldest sql.NullInt64
	if err := db.QueryRowContext(t.Context(),
		`SELECT MIN(finished_at) FROM callbacks WHERE finished_at > 0`).Scan(&oldest); err != nil {
		t.Fatal(err)
	}
	if !oldest.Valid {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(oldest.Int64))-retention).Round(100 * time.Millisecond)
}

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
