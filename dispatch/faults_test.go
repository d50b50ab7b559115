package dispatch_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A verify at the very start waits for the index to be filled, instead of finding it lost.
func TestVerifyWaitsForTheIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		first := startFixture(t, path, always(200, ""))
		first.accept(accept.Submission{Delay: &[]time.Duration{time.Hour}[0]})
		first.stop()
		second := startFixture(t, path, always(200, ""))
		if drift, err := second.engine.Verify(t.Context()); err != nil || !drift.Clean() || drift.Rows != 1 || drift.Items != 1 {
			t.Errorf("verify at the start: %+v, %v", drift, err)
		}
	})
}

// What the index did not hear of is sent once it answers again, without waiting for the sweep.
func TestAnIndexThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		index := new(faults)
		b := newFixture(t, always(200, ""), faultyIndex(index))
		time.Sleep(time.Second)
		index.set(fail(errBroken), "Ensure", "Claim")
		start := time.Now()
		id := b.accept(accept.Submission{}).ID
		if took := time.Since(start); took > time.Second {
			t.Errorf("an accept took %v while the index did not answer", took)
		}
		time.Sleep(time.Minute)
		h := b.engine.Health(t.Context())
		if !h.Ready || len(h.Degraded) != 1 || h.Degraded[0] != "redis" {
			t.Errorf("health: %+v", h)
		}
		index.set(nil, "Ensure", "Claim")
		b.await(id, 5*time.Second)
		// The callback may be sent before the probe has asked everything that failed: health follows a probe or two later.
		for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			h = b.engine.Health(t.Context())
			if h.Ready && len(h.Degraded) == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("health afterwards: %+v", h)
			}
		}
	})
}

// While SQL does not commit nothing is claimed, and what was sent is recorded once it does.
func TestSQLDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql, down := new(faults), []string{"Stamp", "Commit", "Ping"}
		b := newFixture(t, func(_ context.Context, _ hit, before int) (*http.Response, error) {
			time.Sleep(time.Second)
			return answer(200, ""), nil
		}, faultySQL(sql))
		flying := b.accept(accept.Submission{}).ID
		time.Sleep(500 * time.Millisecond)
		sql.set(fail(errDown), down...)
		waiting := b.accept(accept.Submission{}).ID
		time.Sleep(20 * time.Second)
		if h := b.engine.Health(t.Context()); h.Ready {
			t.Errorf("ready while SQL is down: %+v", h)
		}
		if n := sql.count("Stamp"); n > 4 {
			t.Errorf("%d stamps while SQL was down: claiming went on", n)
		}
		if n := len(b.receiver.seen()); n != 1 {
			t.Errorf("%d requests while SQL was down, want the one in flight", n)
		}
		sql.set(nil, down...)
		for _, id := range []string{flying, waiting} {
			if c := b.await(id, 10*time.Second); c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
		}
		if n := len(b.receiver.seen()); n != 2 {
			t.Errorf("%d requests in all, want 2", n)
		}
	})
}

// A process that dies during an attempt charges no attempt: it is recorded as crashed, and made again. It counts as
// unknown, and nothing is known of its time.
func TestCrashInTheMiddleOfAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		first := startFixture(t, path, always(200, ""), func(o *dispatch.Options) { o.Hold = true })
		id := first.accept(accept.Submission{}).ID
		stamped, _, err := first.db.Stamp(t.Context(), store.Stamp{
			Token: "of-a-process-that-died", Now: first.engine.Now(), Margin: 15_000, Claims: []store.StampClaim{{ID: id}},
		})
		if err != nil || len(stamped) != 1 {
			t.Fatalf("stamp: %v, %v", stamped, err)
		}
		time.Sleep(time.Second) // it has begun
		first.stop()
		second := startFixture(t, path, always(200, ""))
		if c := second.await(id, time.Minute); c.State != store.Succeeded || c.AttemptCount != 1 {
			t.Errorf("got %s with %d charged", c.State, c.AttemptCount)
		}
		rows := second.attempts(id)
		if len(rows) != 2 || rows[0].Class != store.ClassCrashed || rows[0].Outcome != store.AttemptUnknown || rows[0].Charged || rows[1].Class != store.ClassOK {
			t.Errorf("rows: %+v", rows)
		}
		second.stopRun()
		second.counted(store.Activity{Accepted: 1, Succeeded: 1, Unknown: 1}, 1, 1)
	})
}
