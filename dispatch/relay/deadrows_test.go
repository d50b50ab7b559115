package relay

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// A deadRows is a connection to a table whose snapshot is held: what passes all rows that were removed takes
// long. A patient read may; every other call breaks off after callWithin.
type deadRows struct {
	Conn
	cost func(op string) time.Duration
	dead *span
}

// A span is from the first number to the last one.
type span struct{ first, last int64 }

const (
	callWithin = 30 * time.Second
	manyDead   = 10_000
)

// hold lets the connections of a world pass dead rows.
func (w *world) hold(cost func(op string) time.Duration) {
	connect, dead := w.connect, &span{first: math.MaxInt64}
	w.connect = func(ctx context.Context, c SourceConfig) (Conn, error) {
		conn, err := connect(ctx, c)
		return &deadRows{conn, cost, dead}, err
	}
}

// pass takes a time.
func pass(cost time.Duration) error {
	time.Sleep(min(cost, callWithin))
	if cost > callWithin {
		return errBroken
	}
	return nil
}

func (c *deadRows) Read(ctx context.Context, after int64, limit int, patient bool) ([]source.Row, bool,
	error) {
	rows, more, err := c.Conn.Read(ctx, after, limit, patient)
	end := c.dead.last
	if more {
		end = min(end, rows[len(rows)-1].Seq)
	}
	passed := max(end-max(after, c.dead.first), 0)
	cost := c.cost("read") * time.Duration(passed) / time.Duration(max(c.dead.last-c.dead.first, manyDead))
	if patient {
		time.Sleep(cost)
		return rows, more, err
	}
	return rows, more, cmp.Or(err, pass(cost))
}

func (c *deadRows) Remove(ctx context.Context, keys []source.Key) (int, error) {
	for _, key := range keys {
		c.dead.first, c.dead.last = min(c.dead.first, key.Seq), max(c.dead.last, key.Seq)
	}
	return c.Conn.Remove(ctx, keys)
}

func (c *deadRows) Waiting(ctx context.Context, after int64, limit int) (int, error) {
	if after < c.dead.first {
		if err := pass(c.cost("waiting")); err != nil {
			return 0, err
		}
	}
	return c.Conn.Waiting(ctx, after, limit)
}

func (c *deadRows) CountRefused(ctx context.Context, f source.Filter, limit int) (int, error) {
	if err := pass(c.cost("refused")); err != nil {
		return 0, err
	}
	return c.Conn.CountRefused(ctx, f, limit)
}

func (c *deadRows) PruneKept(ctx context.Context, keep time.Duration, limit int) (int, error) {
	if err := pass(c.cost("prune")); err != nil {
		return 0, err
	}
	return c.Conn.PruneKept(ctx, keep, limit)
}

// TestHeldSnapshotStopsNoSource has dead rows that a call has no time to pass, and rows that keep coming.
func TestHeldSnapshotStopsNoSource(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hold(func(op string) time.Duration {
			if op == "refused" {
				return 0
			}
			return 35 * time.Second
		})
		p := w.start("a")
		for i := range 30 * 60 {
			for j := range 20 {
				w.insert(fmt.Sprint("row-", i, "-", j))
			}
			w.pass(time.Second)
		}
		w.pass(time.Minute)
		if n := w.tb.count(); n > 0 || w.tb.connects != 1 || p.Degraded() != nil {
			t.Errorf("%d rows wait, %d connections, degraded %v", n, w.tb.connects, p.Degraded())
		}
	})
}

// TestRowsBeforeDeadOnes has more rows that stay or fail than a page, and a relay that is restarted.
func TestRowsBeforeDeadOnes(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusInternalServerError} {
		inWorld(t, func(w *world) { testRowsBeforeDeadOnes(w, status) })
	}
}

func testRowsBeforeDeadOnes(w *world, status int) {
	w.c.Batch = 10
	w.hold(func(op string) time.Duration {
		if op == "read" {
			return 35 * time.Second
		}
		return 0
	})
	w.srv.judge = func(row *client.RelayRow) *client.RelayResult {
		if strings.HasPrefix(row.ID, "stays") {
			return result(status, "some")
		}
		return nil
	}
	for i := range 20 {
		w.insert(fmt.Sprint("stays-", i))
	}
	flood := w.flood(20)
	p := w.start("a")
	w.pass(10 * time.Minute)
	p.end()
	before := w.tb.connects
	w.start("b")
	w.pass(10 * time.Minute)
	flood()
	w.pass(2 * time.Minute)
	if n := w.tb.count(); n > 20 || w.tb.connects != before+1 {
		w.Errorf("%d: %d rows wait, %d connections after the restart", status, n, w.tb.connects-before)
	}
}

// TestSlowUpkeepHoldsUpNoRow has upkeep that takes seconds, or more than a call may take.
func TestSlowUpkeepHoldsUpNoRow(t *testing.T) {
	for _, tc := range []struct {
		op            string
		cost, longest time.Duration
		connects      int
	}{
		{"prune", 3 * time.Second, 4 * time.Second, 1}, {"prune", time.Minute, 40 * time.Second, 3},
		{"refused", 3 * time.Second, 4 * time.Second, 1}, {"refused", time.Minute, 40 * time.Second, 3},
	} {
		inWorld(t, func(w *world) {
			w.c.Keep = time.Second
			w.hold(func(op string) time.Duration {
				if op == tc.op {
					return tc.cost
				}
				return 0
			})
			for i := range 10_000 {
				w.insert(fmt.Sprint("old-", i))
			}
			w.start("a")
			waited, longest := time.Duration(0), time.Duration(0)
			for i := range 15 * 60 {
				for j := range 10 {
					w.insert(fmt.Sprint("row-", i, "-", j))
				}
				w.pass(time.Second)
				waited += time.Second
				if w.tb.count() == 0 {
					waited = 0
				}
				longest = max(longest, waited)
			}
			if longest > tc.longest || w.tb.connects > tc.connects {
				t.Errorf("%s takes %s: rows wait %s, %d connections", tc.op, tc.cost, longest, w.tb.connects)
			}
			if n := len(w.tb.kept); tc.cost < callWithin && n > 6000 {
				t.Errorf("%d rows are kept", n)
			}
		})
	}
}
