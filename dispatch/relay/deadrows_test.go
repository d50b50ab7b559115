package relay

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// A deadRows is a connection to a table whose snapshot is held: what passes the dead rows at its beginning
// takes long. A read from the beginning may; every other call breaks off after callWithin.
type deadRows struct {
	Conn
	cost func(op string) time.Duration
}

const callWithin = 30 * time.Second

// hold lets the connections of a world pass dead rows.
func (w *world) hold(cost func(op string) time.Duration) {
	connect := w.connect
	w.connect = func(ctx context.Context, c SourceConfig) (Conn, error) {
		conn, err := connect(ctx, c)
		return &deadRows{conn, cost}, err
	}
}

// pass takes as long as dead rows do.
func (c *deadRows) pass(op string) error {
	cost := c.cost(op)
	time.Sleep(min(cost, callWithin))
	if cost > callWithin {
		return errBroken
	}
	return nil
}

func (c *deadRows) Read(ctx context.Context, after int64, limit int) ([]source.Row, bool, error) {
	if after == beginning {
		time.Sleep(c.cost("read"))
	}
	return c.Conn.Read(ctx, after, limit)
}

func (c *deadRows) Waiting(ctx context.Context, after int64, limit int) (int, error) {
	if after == beginning {
		if err := c.pass("waiting"); err != nil {
			return 0, err
		}
	}
	return c.Conn.Waiting(ctx, after, limit)
}

func (c *deadRows) PruneKept(ctx context.Context, keep time.Duration, limit int) (int, error) {
	if err := c.pass("prune"); err != nil {
		return 0, err
	}
	return c.Conn.PruneKept(ctx, keep, limit)
}

// TestHeldSnapshotStopsNoSource has dead rows that a call has no time to pass, and rows that keep coming.
func TestHeldSnapshotStopsNoSource(t *testing.T) {
	inWorld(t, func(w *world) {
		w.hold(func(string) time.Duration { return 35 * time.Second })
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

// TestSlowPruningHoldsUpNoRow has kept rows that take seconds to delete, or more than a call may take.
func TestSlowPruningHoldsUpNoRow(t *testing.T) {
	for _, tc := range []struct {
		prune, longest time.Duration
		connects       int
	}{{3 * time.Second, 4 * time.Second, 1}, {time.Minute, 40 * time.Second, 3}} {
		inWorld(t, func(w *world) {
			w.c.Keep = time.Second
			w.hold(func(op string) time.Duration {
				if op == "prune" {
					return tc.prune
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
				t.Errorf("a prune takes %s: rows wait %s, %d connections", tc.prune, longest, w.tb.connects)
			}
			if n := len(w.tb.kept); tc.prune < callWithin && n > 6000 {
				t.Errorf("%d rows are kept", n)
			}
		})
	}
}
