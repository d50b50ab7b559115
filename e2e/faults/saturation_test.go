package faults

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A saturation keeps a dispatcher as busy as possible: callers submit batches while fewer than a few thousand
// callbacks are open, and the receiver responds at once.
type saturation struct {
	*trial
	p        *harness.Process
	accepted atomic.Int64
}

// The load of a saturation.
const (
	saturationCallers = 4
	saturationBatch   = 250
	saturationOpen    = 4000
)

// saturate loads a dispatcher with these arguments until the test's end. The dispatcher has the server to
// itself, and the usual number of connections to SQL. why is the reason to skip the reconciliation.
func saturate(tr *harness.Trial, why string, args ...string) *saturation {
	tr.Backend.SkipReconciliation(why)
	tr.Args = nil
	s := &saturation{trial: &trial{Trial: tr}, p: tr.Serve(args...)}
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	tr.Cleanup(receiver.Close)
	for caller := range saturationCallers {
		n := 0
		s.Repeat(time.Nanosecond, func(int) {
			if s.busy() {
				harness.Pause()
				return
			}
			list := make([]harness.Submission, saturationBatch)
			for i := range list {
				ref := fmt.Sprintf("order-%d-%d", caller, n)
				list[i] = harness.Submission{
					"url": receiver.URL, "ref": ref, "payload": harness.Payload(ref), "idempotency_key": ref,
				}
				n++
			}
			s.accepted.Add(saturationBatch)
			if _, err := s.p.AcceptBatch(context.Background(), list); err != nil {
				s.Errorf("the load ended: %v", err)
			}
		})
	}
	return s
}

// busy reports whether enough callbacks are open, or the load has failed.
func (s *saturation) busy() bool {
	ended, err := s.p.Counter(endedMetric)
	if err != nil {
		s.Errorf("the load ended: %v", err)
	}
	return s.Failed() || float64(s.accepted.Load())-ended > saturationOpen
}

// endedMetric counts the callbacks that became terminal.
const endedMetric = "dispatcher_callbacks_terminal_total"

// removed returns the number of callbacks that retention has removed.
func (s *saturation) removed() int { return s.p.Count(purgedMetric, `kind="callback"`) }

// during measures for span how many callbacks are delivered and removed a second.
func (s *saturation) during(span time.Duration) (delivered, removed float64) {
	began, d, r := time.Now(), s.p.Count(endedMetric), s.removed()
	time.Sleep(span) // the measured time
	took := time.Since(began).Seconds()
	return float64(s.p.Count(endedMetric)-d) / took, float64(s.removed()-r) / took
}

// fellDue measures over span how many callbacks are delivered a second, and how many are removed. It counts
// the removed ones one retention later, when the delivered ones fall due.
func (s *saturation) fellDue(span, retention time.Duration) (delivered, removed float64) {
	d := s.p.Count(endedMetric)
	time.Sleep(retention)
	r := s.removed()
	time.Sleep(span - retention) // the measured time
	d = s.p.Count(endedMetric) - d
	time.Sleep(retention)
	return float64(d) / span.Seconds(), float64(s.removed()-r) / span.Seconds()
}

// Retention removes callbacks as fast as a saturated dispatcher delivers them, first the payloads and later
// the rows. So expired data does not accumulate.
func TestRetentionKeepsUpWithSaturation(t *testing.T) {
	// The test runs alone, because it measures. Retention runs every few seconds, so the backlog at the end
	// may be some seconds larger than at the start. In two minutes that is less than the allowed 5 %.
	span := testserver.Sized(2*time.Minute, 2*time.Minute, 5*time.Minute)
	harness.OnEach(t, harness.BothEnds, func(tr *harness.Trial) {
		const retention = 5 * time.Second
		s := saturate(tr, "retention removes callbacks",
			"--retention-payload", "1s", "--retention-metadata", retention.String())
		s.AtLeast(time.Minute, "retention begins", 1, s.removed)
		s.during(10 * time.Second) // removes the backlog from before the first run
		before := s.overdue(retention)
		delivered, removed := s.fellDue(span, retention)
		after := s.overdue(retention)
		s.Logf("%.0f/s delivered, %.0f/s removed: %.2f; the oldest callback is overdue by %s, before by %s",
			delivered, removed, removed/delivered, after, before)
		if removed < 0.95*delivered {
			s.Errorf("removed %.0f/s, and delivered %.0f/s", removed, delivered)
		}
		if more := after - before; more > span/5 {
			s.Errorf("the backlog of retention grew by %s in %s", more, span)
		}
	})
}

// overdue returns how long the oldest terminal callback has exceeded its retention.
func (s *saturation) overdue(retention time.Duration) time.Duration {
	s.Helper()
	oldest := s.sqlCount(`SELECT coalesce(MIN(finished_at), 0) FROM callbacks WHERE finished_at > 0`)
	if oldest == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(int64(oldest)))-retention).Round(100 * time.Millisecond)
}

// snapshotSpan is shorter during work on the test.
var snapshotSpan = flag.Duration("snapshot", 10*time.Minute,
	"how long TestASnapshotHeldForMinutes holds its snapshot")

// sweepPage is the query of one page of the sweep, from the low-water mark on.
const sweepPage = `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM callbacks
	WHERE state = 'scheduled'
		AND (due_at, id) > ($1::bigint, '')
		AND due_at < $2
		AND claim_until <= $2
	ORDER BY due_at, id
	LIMIT 1000`

// A transaction with a snapshot, such as a report or a dump, runs for ten minutes. Meanwhile PostgreSQL
// cannot vacuum the index of due times. A saturated dispatcher delivers as much as without it, and the pages
// of its sweep do not grow from minute to minute.
func TestASnapshotHeldForMinutes(t *testing.T) {
	// The test runs alone, because it measures.
	harness.OnEach(t, onlyPostgresRedis, snapshotHeld)
}

func snapshotHeld(tr *harness.Trial) {
	s := saturate(tr, "the test ends under load")
	apart := max(20*time.Second, *snapshotSpan/10)
	s.during(10 * time.Second) // warm-up
	before, _ := s.during(apart)

	snapshot, err := s.Database().BeginTx(s.Context(),
		&sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	s.Check(err)
	defer snapshot.Rollback() //nolint:errcheck // it has written nothing
	_, err = snapshot.ExecContext(s.Context(), `SELECT 1 FROM callbacks LIMIT 1`)
	s.Check(err)
	var within float64
	var pages []int64
	const parts = 10
	for range parts {
		delivered, _ := s.during(*snapshotSpan / parts)
		within += delivered / parts
		pages = append(pages, s.buffersOfSweep())
	}
	s.Check(snapshot.Rollback())
	after, _ := s.during(apart)
	without := (before + after) / 2
	s.Logf("delivered %.0f/s while a snapshot is held for %s, %.0f/s before and %.0f/s after: %.2f; "+
		"a page of the sweep reads %d buffers", within, *snapshotSpan, before, after, within/without, pages)
	if within < 0.9*without {
		s.Errorf("delivered %.0f/s while a snapshot is held, %.0f/s without", within, without)
	}
	// The low-water mark is one to two minutes behind the clock. Before that a page does not yet read its
	// full amount.
	most := 1.5
	if *snapshotSpan < 4*time.Minute {
		most = 4
	}
	first, last := slices.Max(pages[:parts/2]), slices.Max(pages[parts/2:])
	if float64(last) > most*float64(first) {
		s.Errorf("a page of the sweep reads up to %d buffers in the second half, %d in the first",
			last, first)
	}
}

// buffersOfSweep returns how many buffers PostgreSQL reads for a page of the sweep.
func (s *saturation) buffersOfSweep() int64 {
	mark := s.sqlCount(`SELECT coalesce(MAX(due_at), 0) FROM cursors WHERE name = 'low due'`)
	tx, err := s.Database().BeginTx(s.Context(), nil)
	s.Check(err)
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	// As in the program: the plan must not depend on the statistics of a table that was empty.
	_, err = tx.ExecContext(s.Context(), `SET LOCAL enable_seqscan = off`)
	s.Check(err)
	var text string
	s.Check(tx.QueryRowContext(s.Context(), sweepPage, mark,
		time.Now().Add(-5*time.Second).UnixMilli()).Scan(&text))
	var plans []struct {
		Plan struct {
			Hit  int64 `json:"Shared Hit Blocks"`
			Read int64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil || len(plans) != 1 {
		s.Fatalf("%v: %s", err, text)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
