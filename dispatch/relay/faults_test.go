package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
)

// TestFailingDispatcherRefusesNothing has errors that say nothing about a row.
func TestFailingDispatcherRefusesNothing(t *testing.T) {
	for _, failure := range []error{
		problem(http.StatusUnauthorized, "unauthorized", "wrong key"),
		problem(http.StatusForbidden, "forbidden", ""),
		problem(http.StatusNotFound, "no_route", "no such route"),
		problem(http.StatusTooManyRequests, "", ""),
		problem(http.StatusServiceUnavailable, "unavailable", ""), problem(http.StatusConflict, "", ""),
		&client.NoAnswerError{Err: errors.New("connection refused")}, context.DeadlineExceeded,
		&client.NoAnswerError{Err: problem(http.StatusBadGateway, "", "")},
	} {
		inWorld(t, func(w *world) {
			var calls []time.Time
			failing := true
			w.srv.call = func(b *client.RelayBatch, after bool) error {
				if failing && !after && len(b.Rows) > 0 {
					calls = append(calls, time.Now())
					return failure
				}
				return nil
			}
			w.insert("a", "b")
			p := w.start("a")
			w.pass(2 * time.Minute)
			// 1, 2, 4, 8, 16, 30, 30, 30 s, of which a part is random
			if n := len(calls); n < 6 || n > 13 {
				t.Errorf("%v: %d calls in two minutes", failure, n)
			}
			w.wants(2)
			if list := p.Degraded(); len(list) != 1 {
				t.Errorf("%v: degraded %v", failure, list)
			}
			if w.srv.report.Error == "" || w.srv.report.LagMs < 100_000 {
				t.Errorf("%v: report %+v", failure, w.srv.report)
			}
			failing = false
			w.pass(35 * time.Second)
			w.wants(0, "a", "b")
			if len(w.tb.refused) > 0 || p.Degraded() != nil {
				t.Errorf("%v: %d refused, degraded %v", failure, len(w.tb.refused), p.Degraded())
			}
			failing, calls = true, nil // the pauses begin again
			w.insert("c")
			w.pass(5 * time.Second)
			if n := len(calls); n < 3 {
				t.Errorf("%v: %d calls in five seconds", failure, n)
			}
		})
	}
}

// TestRetryAfterIsRespected checks that the relay waits as long as the server asks for, but no day.
func TestRetryAfterIsRespected(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{
		time.Minute: time.Minute, 24 * time.Hour: longestRetryAfter,
	} {
		inWorld(t, func(w *world) {
			var calls []time.Time
			w.srv.call = func(b *client.RelayBatch, after bool) error {
				if !after && len(b.Rows) > 0 {
					calls = append(calls, time.Now())
					busy := problem(http.StatusTooManyRequests, "rate_limited", "too many requests")
					busy.RetryAfter = asked
					return busy
				}
				return nil
			}
			w.insert("a")
			w.start("a")
			w.pass(11 * time.Minute)
			if len(calls) < 3 || calls[1].Sub(calls[0]) < want || calls[2].Sub(calls[1]) > want+time.Second {
				t.Errorf("asked for %s: calls at %v", asked, calls)
			}
		})
	}
}

// TestLockedRowIsRemovedLater has a row that another session locks for a minute.
func TestLockedRowIsRemovedLater(t *testing.T) {
	inWorld(t, func(w *world) {
		locked := true
		w.tb.locked = func(key source.Key) bool { return locked && key.ID == "locked" }
		w.insert("a", "locked", "b")
		p := w.start("a")
		w.pass(time.Second)
		w.wants(1, "a", "locked", "b")
		if n := p.series(t)[`errors_total{side="source",source="pay"}`]; n != 1 {
			t.Errorf("%v errors", n)
		}
		w.insert("c")
		w.pass(w.c.Poll)
		w.wants(1, "a", "locked", "b", "c")
		w.pass(time.Minute)
		locked = false
		w.pass(2 * time.Minute)
		w.wants(0, "a", "locked", "b", "c")
		w.metric(p, `rows_total{result="accepted",source="pay"}`, 4)
	})
}

// TestWithoutRemovalNoPageIsRead has a table that cannot be changed: at most one page is accepted.
func TestWithoutRemovalNoPageIsRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 20
		denied := true
		w.tb.call = func(op string, after bool) error {
			if denied && op == "remove" {
				return errors.New("permission denied")
			}
			return nil
		}
		for i := range 100 {
			w.insert(fmt.Sprint("row-", i))
		}
		p := w.start("a")
		w.pass(5 * time.Minute)
		if n := len(w.srv.accepted); n != 20 {
			t.Errorf("%d rows are accepted", n)
		}
		if n := len(w.srv.rowCalls); n > 20 {
			t.Errorf("%d calls in five minutes", n)
		}
		if e := w.srv.report.Error; !strings.Contains(e, "permission denied") || len(p.Degraded()) != 1 {
			t.Errorf("error %q, degraded %v", e, p.Degraded())
		}
		denied = false
		w.pass(35 * time.Second)
		if n := w.tb.count(); n > 0 {
			t.Errorf("%d rows wait", n)
		}
	})
}

// TestDemotedServerIsLeft has a server that becomes a replica: it can be read, and has no new rows.
func TestDemotedServerIsLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		demoted := false
		w.tb.call = func(op string, after bool) error {
			if demoted && op == "check" {
				return fmt.Errorf("read-only: %w", source.ErrBroken)
			}
			return nil
		}
		w.start("a")
		w.pass(5 * time.Minute)
		if w.tb.connects != 1 {
			t.Errorf("%d connections", w.tb.connects)
		}
		demoted = true
		w.pass(62 * time.Second)
		if w.tb.connects != 2 {
			t.Errorf("%d connections", w.tb.connects)
		}
	})
}

// TestBrokenConnectionIsLeft checks that a change is not tried again on a connection that has ended.
func TestBrokenConnectionIsLeft(t *testing.T) {
	inWorld(t, func(w *world) {
		removals := 0
		w.tb.call = func(op string, after bool) error {
			if op == "remove" && !after {
				removals++
				if removals == 1 {
					w.tb.epoch++
				}
			}
			return nil
		}
		w.insert("a", "b")
		w.start("a")
		w.pass(5 * time.Second)
		w.wants(0, "a", "b")
		if removals != 2 || w.srv.replays != 2 {
			t.Errorf("%d removals, %d replays", removals, w.srv.replays)
		}
	})
}

// TestSourceDown has a source that cannot be reached, then one that hangs.
func TestSourceDown(t *testing.T) {
	inWorld(t, func(w *world) {
		down, connects := true, 0
		w.tb.call = func(op string, after bool) error {
			if down && op == "connect" {
				connects++
				return errors.New("no route to host")
			}
			if down {
				return errBroken
			}
			return nil
		}
		p := w.start("a")
		w.pass(10 * time.Minute)
		if connects < 20 || connects > 50 {
			t.Errorf("%d connections in ten minutes", connects)
		}
		if r := w.srv.report; r.LagMs < 590_000 || r.Error != "no route to host" || len(p.Degraded()) != 1 {
			t.Errorf("report %+v, degraded %v", r, p.Degraded())
		}
		w.insert("a")
		down = false
		w.pass(31 * time.Second)
		w.wants(0, "a")
		down = true
		w.insert("b")
		w.pass(40 * time.Second)
		if len(p.Degraded()) != 1 {
			t.Error("not degraded")
		}
		down = false
		w.pass(31 * time.Second)
		w.wants(0, "a", "b")
		w.pass(3 * time.Second)
		if r := w.srv.report; r.LagMs != 0 || r.Error != "" || p.Degraded() != nil {
			t.Errorf("report %+v, degraded %v", r, p.Degraded())
		}
	})
}

// TestLostLeaseStopsReading has a server that gives the source to another relay while pages take long.
func TestLostLeaseStopsReading(t *testing.T) {
	inWorld(t, func(w *world) {
		w.c.Batch = 10
		w.srv.call = func(b *client.RelayBatch, after bool) error {
			if len(b.Rows) > 0 && !after {
				time.Sleep(15 * time.Second) // longer than the lease
			}
			return nil
		}
		for i := range 100 {
			w.insert(fmt.Sprint("row-", i))
		}
		p := w.start("a")
		w.pass(50 * time.Second)
		if n := w.tb.count(); n != 70 {
			t.Errorf("%d rows wait", n)
		}
		w.srv.mu.Lock()
		w.srv.holder, w.srv.until = "other", time.Now().Add(time.Hour)
		w.srv.mu.Unlock()
		w.pass(20 * time.Second)
		waiting := w.tb.count()
		if waiting != 60 {
			t.Errorf("%d rows wait", waiting)
		}
		w.metric(p, `leader{source="pay"}`, 0)
		w.pass(2 * time.Minute)
		if n := w.tb.count(); n != waiting || p.Degraded() != nil {
			t.Errorf("%d rows wait, degraded %v", n, p.Degraded())
		}
		w.metric(p, `lag_seconds{source="pay"}`, 0)
	})
}

// TestServerDown has a dispatcher that cannot be reached at all: the lease runs out, and the source is not
// read.
func TestServerDown(t *testing.T) {
	inWorld(t, func(w *world) {
		p := w.start("a")
		w.pass(time.Minute)
		down := true
		w.srv.call = func(*client.RelayBatch, bool) error {
			if down {
				return &client.NoAnswerError{Err: errors.New("connection refused")}
			}
			return nil
		}
		w.insert("a")
		w.pass(20 * time.Second)
		reads := w.tb.reads
		w.pass(20 * time.Second)
		if n := w.tb.reads - reads; n > 0 || len(p.Degraded()) != 1 {
			t.Errorf("%d reads, degraded %v", n, p.Degraded())
		}
		down = false
		w.pass(31 * time.Second)
		w.wants(0, "a")
		if list := p.Degraded(); list != nil {
			t.Errorf("degraded: %v", list)
		}
	})
}

// TestOtherTableIsNotRead has a name that stands for another table.
func TestOtherTableIsNotRead(t *testing.T) {
	inWorld(t, func(w *world) {
		w.srv.origin = "db2:3306/pay/dispatcher_outbox"
		w.insert("a")
		p := w.start("a")
		w.pass(time.Minute)
		w.wants(1)
		if w.tb.connects > 0 || len(p.Degraded()) != 1 {
			t.Errorf("%d connections, degraded %v", w.tb.connects, p.Degraded())
		}
		if n := p.series(t)[`errors_total{side="dispatcher",source="pay"}`]; n < 10 {
			t.Errorf("%v errors", n)
		}
		w.srv.origin = ""
		w.pass(4 * time.Second)
		w.wants(0, "a")
	})
}

// TestReplyOfAnotherLength has a server that returns too few results.
func TestReplyOfAnotherLength(t *testing.T) {
	inWorld(t, func(w *world) {
		w.sink = shortSink{w.srv}
		p := w.start("a")
		w.insert("a", "b")
		w.pass(time.Minute)
		if n := w.tb.count(); n != 2 || len(p.Degraded()) != 1 {
			t.Errorf("%d rows wait, degraded %v", n, p.Degraded())
		}
	})
}

// A shortSink leaves out the last result.
type shortSink struct{ *server }

func (s shortSink) Submit(ctx context.Context, source string, b client.RelayBatch) (
	client.RelayReply, error) {
	reply, err := s.server.Submit(ctx, source, b)
	if n := len(reply.Results); n > 0 {
		reply.Results = reply.Results[:n-1]
	}
	return reply, err
}

// TestUnreachableSourceIsLeftToAnother has a holder that cannot connect, and a standby that can.
func TestUnreachableSourceIsLeftToAnother(t *testing.T) {
	inWorld(t, func(w *world) {
		refused := func(context.Context, SourceConfig) (Conn, error) { return nil, errors.New("no route") }
		w.connect = refused
		w.insert("a")
		a := w.start("a")
		w.pass(5 * time.Second)
		w.connect = w.tb.connect
		b := w.start("b")
		w.pass(40 * time.Second)
		w.wants(0, "a")
		w.metric(b, `leader{source="pay"}`, 1)
		w.pass(time.Minute)
		if a.Degraded() != nil || b.Degraded() != nil {
			t.Errorf("degraded %v, %v", a.Degraded(), b.Degraded())
		}
		b.end() // a takes the source again
		b = w.start("b")
		w.insert("b")
		w.pass(11 * time.Minute)
		w.wants(0, "a", "b")
		w.metric(b, `leader{source="pay"}`, 1)

		b.end()
		w.connect = refused
		w.start("c")
		taken := w.logTo()
		w.start("d")
		w.pass(4 * time.Minute)
		if r := get(w.srv, func() client.RelayReport { return w.srv.report }); r.LagMs < 200_000 {
			t.Errorf("no process can connect: report %+v", r)
		}
		if n := strings.Count(taken.String(), "relay source taken"); n > 2 {
			t.Errorf("taken %d times by one process", n)
		}
	})
}

// TestLoneRelayKeepsAnUnreachableSource checks that health and lag go on although the lease is given back.
func TestLoneRelayKeepsAnUnreachableSource(t *testing.T) {
	inWorld(t, func(w *world) {
		w.connect = func(context.Context, SourceConfig) (Conn, error) { return nil, errors.New("no route") }
		logged := w.logTo()
		p := w.start("a")
		w.pass(31 * time.Second)
		for i := range 20 {
			w.pass(10 * time.Second)
			lag, want := p.series(t)[`lag_seconds{source="pay"}`], float64(41+10*i)
			if len(p.Degraded()) != 1 || lag != want {
				t.Fatalf("degraded %v, lag %v, want %v", p.Degraded(), lag, want)
			}
		}
		if r := get(w.srv, func() client.RelayReport { return w.srv.report }); r.LagMs < 225_000 {
			t.Errorf("report %+v", r)
		}
		if n := strings.Count(logged.String(), "relay source"); n != 3 {
			t.Errorf("the log is %s", logged)
		}
	})
}
