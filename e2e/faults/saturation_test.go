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
)

// A saturation keeps a dispatcher as busy as it can be: callers hand over batches as long as fewer than a few
// thousand callbacks are open, and the receiver answers at once.
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

// saturate loads a dispatcher of these arguments until the test ends. It is alone on its server, and has as
// many connections to SQL as usual. Its books are not compared, for that reason.
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

// busy says whether enough is open, or the load has ended by an error.
func (s *saturation) busy() bool {
	ended, err := s.p.Counter(endedMetric)
	if err != nil {
		s.Errorf("the load ended: %v", err)
	}
	return s.Failed() || float64(s.accepted.Load())-ended > saturationOpen
}

// endedMetric counts callbacks that have become terminal.
const endedMetric = "dispatcher_callbacks_terminal_total"

// removed is how many callbacks retention has removed.
func (s *saturation) removed() int { return s.p.Count(purgedMetric, `what="callback"`) }

// during measures for that long how many callbacks are delivered and removed a second.
func (s *saturation) during(span time.Duration) (delivered, removed float64) {
	began, d, r := time.Now(), s.p.Count(endedMetric), s.removed()
	time.Sleep(span) // what is measured
	took := time.Since(began).Seconds()
	return float64(s.p.Count(endedMetric)-d) / took, float64(s.removed()-r) / took
}

// fellDue measures over span how many callbacks are delivered a second and how many are removed. What is
// removed is counted one retention later, when those that were delivered fall due.
func (s *saturation) fellDue(span, retention time.Duration) (delivered, removed float64) {
	d := s.p.Count(endedMetric)
	time.Sleep(retention)
	r := s.removed()
	time.Sleep(span - retention) // what is measured
	d = s.p.Count(endedMetric) - d
	time.Sleep(retention)
	return float64(d) / span.Seconds(), float64(s.removed()-r) / span.Seconds()
}

// Retention removes callbacks as fast as a saturated dispatcher delivers them, payloads first and rows later:
// what should be gone does not gather.
func TestRetentionKeepsUpWithSaturation(t *testing.T) {
	// It runs alone, because it measures.
	// Retention works in runs seconds apart, so rows of some seconds may wait at the end that did not at the
	// beginning: in two minutes they are below the twentieth that is allowed.
	span := sized(2*time.Minute, 2*time.Minute, 5*time.Minute)
	harness.OnEach(t, harness.BothEnds, func(tr *harness.Trial) {
		const retention = 5 * time.Second
		s := saturate(tr, "retention removes callbacks",
			"--retention-payload", "1s", "--retention-metadata", retention.String())
		s.AtLeast(time.Minute, "retention begins", 1, s.removed)
		s.during(10 * time.Second) // what had gathered before the first run goes
		before := s.overdue(retention)
		delivered, removed := s.fellDue(span, retention)
		after := s.overdue(retention)
		s.Logf("%.0f/s delivered, %.0f/s removed: %.2f; the oldest callback is overdue by %s, "+
			"after %s before",
			delivered, removed, removed/delivered, after, before)
		if removed < 0.95*delivered {
			s.Errorf("removed %.0f/s of %.0f/s that were delivered", removed, delivered)
		}
		if more := after - before; more > span/5 {
			s.Errorf("what should be gone is older by %s than %s before", more, span)
		}
	})
}

// overdue is for how long the oldest terminal callback has outstayed its retention.
func (s *saturation) overdue(retention time.Duration) time.Duration {
	s.Helper()
	oldest := s.sqlCount(`SELECT coalesce(MIN(finished_at), 0) FROM callbacks WHERE finished_at > 0`)
	if oldest == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMilli(int64(oldest)))-retention).Round(100 * time.Millisecond)
}

// snapshotSpan is shorter while the test is being worked on.
var snapshotSpan = flag.Duration("snapshot", 10*time.Minute,
	"how long TestASnapshotHeldForMinutes holds its snapshot")

// sweepPage is the statement of a page of the sweep, from the low-water mark on.
const sweepPage = `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT id FROM callbacks
	WHERE state = 'scheduled'
		AND (due_at, id) > ($1::bigint, '')
		AND due_at < $2
		AND claim_until <= $2
	ORDER BY due_at, id
	LIMIT 1000`

// A transaction that holds a snapshot for ten minutes, as a report or a dump does, keeps PostgreSQL from
// cleaning the index over due times. A saturated dispatcher delivers as much as without it, and a page of its
// sweep does not read more from minute to minute.
func TestASnapshotHeldForMinutes(t *testing.T) {
	// It runs alone, because it measures.
	harness.OnEach(t, onlyPostgresRedis, snapshotHeld)
}

func snapshotHeld(tr *harness.Trial) {
	s := saturate(tr, "it ends in the middle of its load")
	apart := max(20*time.Second, *snapshotSpan/10)
	s.during(10 * time.Second) // it warms up
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
	// The mark is one to two minutes behind the clock: only then what a page reads is as much as it will be.
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

// buffersOfSweep is how many buffers PostgreSQL reads for a page of the sweep.
func (s *saturation) buffersOfSweep() int64 {
	mark := s.sqlCount(`SELECT coalesce(MAX(due_at), 0) FROM cursors WHERE name = 'low due'`)
	tx, err := s.Database().BeginTx(s.Context(), nil)
	s.Check(err)
	defer tx.Rollback() //nolint:errcheck // it has written nothing
	// As the program does: its plan must not follow statistics of a table that was empty.
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
