package relay

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
)

func TestRowsAreHandedOverAndRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		var ids []string
		for i := range 35 {
			ids = append(ids, fmt.Sprint("row-", i))
		}
		w.insert(ids...)
		p := w.start("a")
		w.pass(time.Millisecond)
		w.wants(0, ids...)
		w.insert("later")
		w.pass(w.c.Poll)
		w.wants(0, append(ids, "later")...)
		if list := p.Degraded(); list != nil {
			t.Errorf("degraded: %v", list)
		}
		if n := len(p.series(t)); n != 10 {
			t.Errorf("%d series", n)
		}
		w.metric(p, `rows_total{result="accepted",source="pay"}`, 36)
		w.metric(p, `leader{source="pay"}`, 1)
		w.metric(p, `late_rows_total{source="pay"}`, 0)
		w.metric(p, `errors_total{side="source",source="pay"}`, 0)
		w.metric(p, `lag_seconds{source="pay"}`, 0)
	})
}

// TestIdleSourceIsReadOncePerPoll bounds the cost of an idle source.
func TestIdleSourceIsReadOncePerPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		w.insert("a", "b")
		w.start("a")
		w.pass(10 * time.Second)
		reads, renewals := w.tb.reads, len(w.srv.renewed)
		w.pass(10 * time.Minute)
		if n := w.tb.reads - reads; n < 5990 || n > 6000 {
			t.Errorf("%d reads in 6000 polls", n)
		}
		if n := len(w.srv.renewed) - renewals; n < 200 || n > 240 {
			t.Errorf("%d renewals in 10 minutes", n)
		}
		if n := len(w.srv.rowCalls); n != 1 {
			t.Errorf("%d calls with rows", n)
		}
	})
}

// TestLateCommits has transactions that are open for a while. Their row is found at the next poll, by a
// window scan, or by a full scan.
func TestLateCommits(t *testing.T) {
	for _, tc := range []struct{ open, found time.Duration }{
		{time.Second, 100 * time.Millisecond},
		{1900 * time.Millisecond, 100 * time.Millisecond},
		{10 * time.Second, 5200 * time.Millisecond},
		{55 * time.Second, 5200 * time.Millisecond},
		{20 * time.Minute, 61 * time.Second},
	} {
		inWorld(t, func(w *world) {
			w.start("a")
			w.pass(90 * time.Second)
			w.tb.insert("late", tc.open)
			committed := time.Now().Add(tc.open)
			for i := range int((tc.open + 65*time.Second) / (50 * time.Millisecond)) {
				w.insert(fmt.Sprint("row-", i))
				w.pass(50 * time.Millisecond)
			}
			if found := w.srv.acceptedAfter("late", committed); found < 0 || found > tc.found {
				t.Errorf("open %s: found after %s, want %s", tc.open, found, tc.found)
			}
			if n := w.tb.count(); n > 2 {
				t.Errorf("open %s: %d rows wait", tc.open, n)
			}
		})
	}
}

// TestLateCommitsCostNoFullScans has a transaction a second that is open for 10 s.
func TestLateCommitsCostNoFullScans(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.start("a")
		for i := range 200 {
			w.insert(fmt.Sprint("row-", i))
			w.tb.insert(fmt.Sprint("late-", i), 10*time.Second)
			w.pass(time.Second)
		}
		if n := p.series(t)[`late_rows_total{source="pay"}`]; n < 50 {
			t.Errorf("%v rows were late", n)
		}
		full := 0
		for _, from := range w.tb.from[w.tb.reads-600:] {
			if from == beginning {
				full++
			}
		}
		if full > 2 {
			t.Errorf("%d of 600 scans were full", full)
		}
	})
}

// TestNumbersGoBack has a table that was truncated. Its first row is found within a minute, the others at
// once.
func TestNumbersGoBack(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.start("a")
		for i := range 100 {
			w.insert(fmt.Sprint("old-", i))
		}
		w.pass(5 * time.Minute)
		w.tb.last = 0
		w.insert("first")
		inserted := time.Now()
		w.pass(62 * time.Second)
		if found := w.srv.acceptedAfter("first", inserted); found < 0 || found > 61*time.Second {
			t.Errorf("first row found after %s", found)
		}
		for i := range 50 {
			id := fmt.Sprint("new-", i)
			w.insert(id)
			inserted := time.Now()
			w.pass(333 * time.Millisecond)
			if found := w.srv.acceptedAfter(id, inserted); found < 0 || found > w.c.Poll {
				t.Errorf("%s found after %s", id, found)
			}
		}
		w.metric(p, `late_rows_total{source="pay"}`, 1)
	})
}

func TestWithoutTailsEveryScanIsFull(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Tail = false
		w.start("a")
		for i := range 50 {
			w.insert(fmt.Sprint("row-", i))
			w.pass(time.Second)
		}
		if i := slices.IndexFunc(w.tb.from, func(at int64) bool { return at != beginning }); i >= 0 {
			t.Errorf("read %d begins at %d", i, w.tb.from[i])
		}
	})
}

// TestSaturatedSourceFindsLateRows has more rows than the relay can hand over. Each scan ends after 5 s, so a
// row that is committed late is found all the same.
func TestSaturatedSourceFindsLateRows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		w.tb.call = func(op string, after bool) error {
			if op == "read" && !after {
				time.Sleep(100 * time.Millisecond)
			}
			return nil
		}
		for i := range 2000 {
			w.insert(fmt.Sprint("a", i))
		}
		w.tb.insert("late", 10*time.Second)
		committed := time.Now().Add(10 * time.Second)
		for i := range 8000 {
			w.insert(fmt.Sprint("b", i))
		}
		p := w.start("a")
		w.pass(50 * time.Second)
		if n := w.tb.count(); n < 4000 {
			t.Fatalf("only %d rows wait", n)
		}
		if n := p.series(t)[`rows_waiting{source="pay"}`]; n < 4000 || n > 6000 {
			t.Errorf("%v rows wait by the metric", n)
		}
		if r := w.srv.report; r.RowsPerSecond < 80 || r.RowsPerSecond > 110 || r.LagMs < 40_000 ||
			r.Waiting < 4000 {
			t.Errorf("report %+v", r)
		}
		if found := w.srv.acceptedAfter("late", committed); found < 0 || found > 11*time.Second {
			t.Errorf("found after %s", found)
		}
		if n := get(w.srv, func() int { return w.srv.replays }); n > 0 {
			t.Errorf("%d replays", n)
		}
	})
}

// TestMinAgeLeavesYoungRows checks that a young row is not read, and none behind it.
func TestMinAgeLeavesYoungRows(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.MinAge = 3 * time.Second
		p := w.start("a")
		w.insert("a")
		w.pass(time.Second)
		w.insert("b")
		w.pass(2*time.Second - time.Millisecond)
		w.wants(2)
		w.metric(p, `lag_seconds{source="pay"}`, 0)
		w.pass(w.c.Poll)
		w.wants(1, "a")
		w.pass(time.Second)
		w.wants(0, "a", "b")
		w.tb.skew = -30 * time.Second // clocks may differ a little
		w.insert("c")
		w.pass(20 * time.Second)
		w.wants(1, "a", "b")
		w.tb.skew = -2 * time.Hour // no row is that young
		w.pass(time.Second)
		w.wants(0, "a", "b", "c")
	})
}

// TestClockOfTheSourceIsSetBack has rows from the future. The dispatcher judges them.
func TestClockOfTheSourceIsSetBack(t *testing.T) {
	inWorld(t, func(w *world) {
		w.tb.skew = -time.Hour
		w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
			if age := time.Duration(row.AgeMs) * time.Millisecond; age < -time.Hour || age > -59*time.Minute {
				t.Errorf("%s has the age %s", row.ID, age)
			}
			return nil
		}
		p := w.start("a")
		w.insert("a")
		w.pass(w.c.Poll)
		w.wants(0, "a")
		w.metric(p, `lag_seconds{source="pay"}`, 0)
	})
}

// TestShutdownFinishesThePage checks that the page in hand is removed and the lease given back, so that the
// next relay takes over soon.
func TestShutdownFinishesThePage(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if len(b.Rows) > 0 && !after {
				time.Sleep(2 * time.Second)
			}
			return nil
		}
		for i := range 100 {
			w.insert(fmt.Sprint("row-", i))
		}
		a, b := w.start("a"), w.start("b")
		w.pass(9 * time.Second)
		holder := get(w.srv, func() string { return w.srv.holder })
		if holder == "b" {
			a, b = b, a
		}
		if w.tb.connects != 1 {
			t.Errorf("%d connections: a standby has none", w.tb.connects)
		}
		w.metric(a, `leader{source="pay"}`, 1)
		w.metric(b, `leader{source="pay"}`, 0)
		began := time.Now()
		a.end()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end took %s", took)
		}
		if accepted := get(w.srv, func() int { return len(w.srv.accepted) }); accepted != 100-w.tb.count() {
			t.Errorf("%d rows accepted, %d not removed", accepted, w.tb.count())
		}
		w.pass(4 * time.Second)
		w.metric(b, `leader{source="pay"}`, 1)
		w.pass(time.Minute)
		if w.tb.count() > 0 || w.srv.replays > 0 {
			t.Errorf("%d rows wait, %d replays", w.tb.count(), w.srv.replays)
		}
	})
}

// TestShutdownAtTheEndOfARead has a read that succeeds, while the end of its context closes the connection.
// The page must not be handed over, because nothing could remove it.
func TestShutdownAtTheEndOfARead(t *testing.T) {
	inWorld(t, func(w *world) {
		p, ended := w.start("a"), make(chan struct{})
		w.pass(time.Second)
		w.tb.call = func(op string, after bool) error {
			if op != "read" || !after || w.tb.count() == 0 {
				return nil
			}
			w.tb.call = func(string, bool) error { return nil }
			go func() {
				defer close(ended)
				p.end()
			}()
			time.Sleep(time.Millisecond)
			w.tb.mu.Lock()
			defer w.tb.mu.Unlock()
			w.tb.epoch++
			return nil
		}
		w.insert("a")
		w.pass(time.Second)
		<-ended
		w.start("b")
		w.pass(10 * time.Second)
		w.wants(0, "a")
		if w.srv.replays > 0 {
			t.Errorf("%d replays", w.srv.replays)
		}
	})
}

// TestShutdownIsBounded has a dispatcher that hangs during the shutdown.
func TestShutdownIsBounded(t *testing.T) {
	inWorld(t, func(w *world) {
		w.insert("a")
		w.sink = hangingSink{w.srv}
		p := w.start("a")
		w.pass(time.Second)
		began := time.Now()
		p.end()
		if took := time.Since(began); took < shutdownGrace || took > shutdownGrace+renewWithin {
			t.Errorf("the end took %s", took)
		}
	})
}

// A hangingSink answers no call with rows, and none that gives the lease back.
type hangingSink struct{ *server }

func (s hangingSink) Submit(ctx context.Context, source string, b client.RelayBatch) (
	client.RelayReply, error) {
	if len(b.Rows) > 0 || b.Release {
		<-ctx.Done()
		return client.RelayReply{}, ctx.Err()
	}
	return s.server.Submit(ctx, source, b)
}
