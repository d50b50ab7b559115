package relay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

// A transaction inserts a row at a time, and commits it a while later or not at all.
type transaction struct {
	at, open time.Duration
	rollback bool
	// stays is for how long after the INSERT the dispatcher does not accept the row.
	stays time.Duration
}

// A promptRun are transactions and latencies of a run of scans.
type promptRun struct {
	transactions []transaction
	// reads and calls are how long those take, in turn. A call that takes no time fails.
	reads, calls []time.Duration
	minAge       time.Duration
	batch        int
}

// millis draws a number of milliseconds.
func millis(least, most int) *rapid.Generator[time.Duration] {
	return rapid.Map(rapid.IntRange(least, most), func(n int) time.Duration {
		return time.Duration(n) * time.Millisecond
	})
}

func drawPromptRun(t *rapid.T) promptRun {
	open := rapid.OneOf(millis(0, 50), millis(0, 1999), millis(0, 1999), millis(2000, 59_999),
		millis(60_000, 90_000))
	mostlyZero := func(most int) *rapid.Generator[time.Duration] {
		return rapid.OneOf(millis(0, 0), millis(0, 0), millis(0, most))
	}
	one := rapid.Custom(func(t *rapid.T) transaction {
		return transaction{
			at: millis(0, 100_000).Draw(t, "at"), open: open.Draw(t, "open"),
			rollback: rapid.IntRange(0, 5).Draw(t, "rollback") == 0, stays: mostlyZero(9000).Draw(t, "stays"),
		}
	})
	return promptRun{
		transactions: rapid.SliceOfN(one, 1, 150).Draw(t, "transactions"),
		reads:        rapid.SliceOfN(millis(1, 400), 1, 10).Draw(t, "reads"),
		calls:        rapid.SliceOfN(rapid.OneOf(millis(1, 900), millis(0, 1)), 1, 10).Draw(t, "calls"),
		minAge:       mostlyZero(3000).Draw(t, "min age"),
		batch:        rapid.IntRange(1, 5).Draw(t, "batch"),
	}
}

// TestFirstCompletedScanReadsTheRow is invariant N4, and the same for the longer reach of window and full
// scans: a completed scan that begins after a commit has read the row, if it is old enough to be read.
func TestFirstCompletedScanReadsTheRow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		run := drawPromptRun(rt)
		var failure string
		synctest.Test(t, func(t *testing.T) { failure = run.check(t) })
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// TestTimedOutScanKeepsTheRest has a scan that ends early, before rows that an earlier scan passed over.
func TestTimedOutScanKeepsTheRest(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 1
		s := w.session()
		w.tb.call = func(op string, after bool) error {
			if op == "read" && !after {
				time.Sleep(time.Second)
			}
			return nil
		}
		for i := range 15 {
			commit := time.Duration(0)
			if i > 0 && i < 12 {
				commit = 5 * time.Second
			}
			w.tb.insert(fmt.Sprint("row-", i), commit)
		}
		for i, want := range []int64{math.MaxInt64, 10, math.MaxInt64} {
			sc := s.newScan()
			if err := sc.run(t.Context()); err != nil || sc.edge != want {
				t.Errorf("scan %d: edge %d, %v", i, sc.edge, err)
			}
			w.pass(100 * time.Millisecond)
		}
		if n := w.tb.count(); n > 0 {
			t.Errorf("%d rows wait", n)
		}
	})
}

// session returns a session that no other goroutine uses, with a lease for an hour.
func (w *world) session() *session {
	w.Helper()
	r, err := New(Options{Sources: []SourceConfig{w.c}, Sink: func(string) Sink { return w.sink },
		Connect: w.connect})
	if err != nil {
		w.Fatal(err)
	}
	conn, err := w.connect(context.Background(), w.c)
	if err != nil {
		w.Fatal(err)
	}
	r.readers[0].lease.set(time.Now().Add(time.Hour))
	return newSession(r.readers[0], conn, context.Background())
}

// check runs scans and returns what was wrong.
func (run *promptRun) check(t *testing.T) string {
	began := time.Now()
	tb, srv := newTable(), newServer()
	rows := make(map[string]transaction)
	slices.SortStableFunc(run.transactions, func(a, b transaction) int { return cmp.Compare(a.at, b.at) })
	for i, tx := range run.transactions {
		rows[rowID(i)] = tx
	}
	reads, calls := 0, 0
	tb.call = func(op string, after bool) error {
		if op == "read" && after {
			time.Sleep(run.reads[reads%len(run.reads)])
			reads++
		}
		return nil
	}
	srv.call = func(b *client.RelayBatch, after bool) error {
		if after {
			return nil
		}
		calls++
		wait := run.calls[calls%len(run.calls)]
		time.Sleep(wait)
		if wait == 0 {
			return problem(http.StatusServiceUnavailable, "unavailable", "")
		}
		return nil
	}
	srv.judge = func(row *client.RelayRow) *client.RelayResult {
		if tx := rows[row.ID]; time.Since(began) < tx.at+tx.stays {
			return result(http.StatusConflict, "idempotency_in_progress")
		}
		return nil
	}
	c := SourceConfig{Name: "pay", Batch: run.batch, Poll: 100 * time.Millisecond, Tail: true,
		MinAge: run.minAge}
	s := (&world{T: t, c: c, connect: tb.connect, sink: srv}).session()
	inserted := make(chan struct{})
	go func() {
		defer close(inserted)
		run.insert(tb)
	}()
	defer func() { <-inserted }()
	for time.Since(began) < 110*time.Second {
		sc := s.newScan()
		start := time.Since(began)
		_ = sc.run(context.Background())
		if failure := run.judge(sc, start, tb, srv, rows); sc.completed && failure != "" {
			return failure
		}
		time.Sleep(c.Poll)
	}
	return ""
}

// insert inserts the rows in the order of time.
func (run *promptRun) insert(tb *table) {
	began := time.Now()
	for i, tx := range run.transactions {
		time.Sleep(tx.at - time.Since(began))
		if tx.rollback {
			tx.open = 1000 * time.Hour
		}
		tb.insert(rowID(i), tx.open)
	}
}

func rowID(i int) string { return fmt.Sprint("row-", i) }

// judge returns what a completed scan left out.
func (run *promptRun) judge(sc *scan, start time.Duration, tb *table, srv *server,
	rows map[string]transaction) string {
	reach := tailReach
	if sc.window {
		reach = windowReach
	}
	if sc.full {
		reach = 1000 * time.Hour
	}
	tb.mu.Lock()
	defer tb.mu.Unlock()
	for key := range tb.rows {
		tx := rows[key.ID]
		committed := tx.at + tx.open
		switch {
		case tx.rollback || committed >= start || tx.open >= reach || key.Seq >= sc.edge || srv.has(key.ID):
		case tx.at+max(run.minAge, tx.stays) > start: // too young, or it may stay
		default:
			return fmt.Sprintf("scan at %s, window %t, full %t: row %d, inserted at %s and committed at %s, "+
				"is not read", start, sc.window, sc.full, key.Seq, tx.at, committed)
		}
	}
	return ""
}
