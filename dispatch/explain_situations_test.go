package dispatch_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is how each thing that keeps a callback comes about.

// slowly answers after a minute.
func slowly(context.Context, hit, int) (*http.Response, error) {
	time.Sleep(time.Minute)
	return answer(200, ""), nil
}

// later lets some time pass, so that since is not the present.
func later() time.Time {
	time.Sleep(7 * time.Second)
	return time.Now()
}

// in is what is due after d.
func in(d time.Duration) accept.Submission { return dueAt(time.Now().Add(d)) }

func whileAttempted(t *testing.T) hold {
	b := newFixture(t, slowly)
	now := later()
	h := b.since(b.accept(accept.Submission{}).ID, now)
	later()
	return h
}

func whileSQLFails(t *testing.T) hold {
	sql := new(faults)
	b := newFixture(t, always(200, ""), faultySQL(sql))
	id := b.accept(in(time.Minute)).ID
	time.Sleep(time.Second)
	sql.set(fail(errDown), "Stamp", "Commit", "Ping")
	time.Sleep(time.Minute - time.Second)
	h := hold{b, id, time.Now().Add(-time.Second), time.Now().Add(500 * time.Millisecond)}
	later()
	return h
}

// beside makes an engine on the database and the index of another one.
func (b *fixture) beside(name string, change func(*dispatch.Options)) *fixture {
	b.t.Helper()
	return newFixture(b.t, always(200, ""), func(o *dispatch.Options) {
		o.Name, o.Store, o.Schedule, o.Alone = name, b.db, b.index, false
		change(o)
	})
}

// api is an engine that others send for.
func api(t *testing.T) *fixture {
	return newFixture(t, always(200, ""), onlyAPI)
}

func onlyAPI(o *dispatch.Options) { o.Name, o.Alone, o.NoWorker = "api", false, true }

func sends(*dispatch.Options) {}

func holds(o *dispatch.Options) { o.Hold = true }

func withoutWorker(t *testing.T) hold {
	b := api(t)
	worker := b.beside("worker", sends)
	later()
	id := b.accept(in(time.Second)).ID
	worker.stopRun()
	h := b.since(id, time.Now())
	later()
	return h
}

func whileAllHold(t *testing.T) hold {
	b := api(t)
	id := b.accept(accept.Submission{}).ID
	b.beside("first", holds)
	now := later()
	b.beside("second", holds)
	later()
	return b.since(id, now)
}

// indexCalls are the calls to the index that an engine makes all the time.
var indexCalls = []string{
	"Claim", "Ensure", "Settle", "Stats", "Generation", "Lookup", "LaneStates", "Audit", "Scan",
}

func whileIndexFails(t *testing.T) hold {
	index := new(faults)
	b := newFixture(t, always(200, ""), faultyIndex(index))
	now := later()
	index.set(fail(errBroken), indexCalls...)
	h := hold{b, b.accept(accept.Submission{}).ID, now, now.Add(2 * time.Second)}
	later()
	later()
	return h
}

func whileRebuilding(t *testing.T) hold {
	index := new(faults)
	b := newFixture(t, always(200, ""), faultyIndex(index))
	id := b.accept(in(5 * time.Second)).ID
	time.Sleep(time.Second)
	index.set(slow(time.Minute), "IndexOpen")
	h := b.since(id, time.Now())
	ended := make(chan error, 1)
	go func() {
		_, err := b.engine.Rebuild(context.WithoutCancel(t.Context()), false, operator)
		ended <- err
	}()
	t.Cleanup(func() { b.ok(<-ended) })
	later()
	return h
}

// pausedTwice returns the end of a pause, and of another that takes its place while it lasts.
func pausedTwice(pause func(until int64)) (began time.Time) {
	began = later()
	pause(began.Add(time.Hour).UnixMilli())
	pause(later().Add(2 * time.Hour).UnixMilli())
	later()
	return began
}

func whileProjectPaused(t *testing.T) hold {
	b := newFixture(t, always(200, ""))
	began := pausedTwice(func(until int64) {
		b.must(b.engine.PauseProject(t.Context(), store.DefaultProject, until, operator))
	})
	return b.since(b.accept(accept.Submission{}).ID, began)
}

func (b *fixture) acceptTo(ep store.Endpoint) store.Callback {
	return b.accept(accept.Submission{Endpoint: store.EndpointPrefix + ep.ID})
}

func whileEndpointPaused(t *testing.T) hold {
	b := newFixture(t, always(200, ""))
	ep := b.endpoint(control.EndpointChange{})
	began := pausedTwice(func(until int64) {
		b.must(b.engine.PauseEndpoint(t.Context(), store.DefaultProject, ep.ID, until, operator))
	})
	return b.since(b.acceptTo(ep).ID, began)
}

func whileDisabled(t *testing.T) hold {
	b := newFixture(t, always(410, ""))
	ep := b.endpoint(control.EndpointChange{Choice: accept.Choice{PolicyName: "short"}})
	now := later()
	b.await(b.acceptTo(ep).ID, time.Minute) // the receiver is gone
	later()
	return hold{b, b.acceptTo(ep).ID, now, now.Add(2 * time.Second)}
}

func whileDeleted(t *testing.T) hold {
	sql := new(faults)
	b := newFixture(t, always(200, ""), faultySQL(sql))
	ep := b.endpoint(control.EndpointChange{})
	b.must(b.engine.PauseEndpoint(t.Context(), store.DefaultProject, ep.ID, store.Forever, operator))
	id := b.acceptTo(ep).ID
	sql.set(fail(errors.New("canceling is put off")), "CancelDeleted")
	now := time.Now()
	b.ok(b.engine.DeleteEndpoint(t.Context(), store.DefaultProject, ep.ID, operator))
	later()
	return b.since(id, now)
}

func whileLanePaused(t *testing.T) hold {
	b := newFixture(t, always(200, ""))
	id := b.accept(in(time.Second)).ID
	lane := b.get(id).Lane
	b.must(b.engine.PauseLane(t.Context(), store.DefaultProject, lane, store.Forever, operator))
	return b.since(id, time.Now())
}

func afterAFailure(t *testing.T) hold {
	b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
		time.Sleep(3 * time.Second)
		return answer(500, ""), nil
	})
	h := b.since(b.accept(tiers(time.Hour)).ID, time.Now().Add(3*time.Second))
	later()
	return h
}

func behindAnother(t *testing.T) hold {
	b := newFixture(t, slowly)
	strict := accept.Submission{LockKey: "order-1", Order: "strict"}
	b.accept(strict)
	now := later()
	h := b.since(b.accept(strict).ID, now)
	later()
	return h
}

func whileBreakerOpen(t *testing.T) hold {
	b := newFixture(t, func(context.Context, hit, int) (*http.Response, error) {
		return nil, errors.New("connection refused")
	})
	time.Sleep(time.Second)
	id := b.accept(in(13 * time.Second)).ID
	lane := b.get(id).LaneID
	policy := make([]time.Duration, 30)
	for i := range policy {
		policy[i] = 500 * time.Millisecond
	}
	b.accept(tiers(policy...))
	before, now := time.Now(), time.Now()
	for range 200 {
		states, err := b.index.LaneStates(t.Context(), []int64{lane})
		if b.ok(err); states[0].Breaker != schedule.BreakerClosed {
			break
		}
		before = now
		time.Sleep(100 * time.Millisecond)
		now = time.Now()
	}
	h := hold{b, id, before, now}
	time.Sleep(13*time.Second - time.Since(time.UnixMilli(b.get(id).CreatedAt)) + 50*time.Millisecond)
	return h
}

func whileAskedToWait(t *testing.T) hold {
	b := newFixture(t, always(429, "", "Retry-After", "60"))
	now := later()
	b.accept(accept.Submission{})
	later()
	return b.since(b.accept(accept.Submission{}).ID, now)
}

func atTheRate(t *testing.T) hold {
	b := newFixture(t, always(200, ""))
	ep := b.endpoint(control.EndpointChange{Rate: ptr("1/m")})
	b.await(b.acceptTo(ep).ID, time.Minute)
	now := later()
	h := b.since(b.acceptTo(ep).ID, now)
	later()
	return h
}

func inAFullLane(t *testing.T) hold {
	b := newFixture(t, slowly)
	ep := b.endpoint(control.EndpointChange{Concurrency: ptr(1)})
	b.acceptTo(ep)
	now := later()
	h := b.since(b.acceptTo(ep).ID, now)
	later()
	return h
}

func withoutItsLock(t *testing.T) hold {
	b := newFixture(t, slowly)
	now := later()
	b.accept(accept.Submission{LockKey: "order-1"})
	later()
	h := b.since(b.accept(accept.Submission{LockKey: "order-1"}).ID, now)
	time.Sleep(300 * time.Millisecond)
	return h
}

func whileMissing(t *testing.T) hold {
	b := newFixture(t, always(200, ""))
	c := b.accept(in(3 * time.Second))
	// A second after the start the new index gets what it missed.
	time.Sleep(1500 * time.Millisecond)
	b.must(b.index.Cancel(t.Context(), []schedule.Ref{{ID: c.ID, Lane: c.LaneID}})) // by accident
	time.Sleep(1600 * time.Millisecond)
	return b.since(c.ID, time.UnixMilli(c.DueAt))
}
