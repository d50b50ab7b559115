package dispatch_test

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is how each thing that keeps a callback comes about.

// A hold is what a test expects of a situation: what keeps the callback, and since when, at the earliest and
// at the latest.
type hold struct {
	id     string
	lo, hi time.Time
}

// since expects a time, or little later: what happens then takes a while to be noticed.
func since(id string, at time.Time) hold { return hold{id, at, at.Add(500 * time.Millisecond)} }

// A situation makes, with such a receiver and engine, what it is said of.
type situation struct {
	setup
	comes func(b *fixture) hold
}

// later lets some time pass, so that since is not the present.
func later() time.Time {
	time.Sleep(7 * time.Second)
	return time.Now()
}

// onlyAPI is an engine that others send for.
func onlyAPI(o *options) { o.Name, o.Alone, o.NoWorker = "api", false, true }

// second accepts two callbacks, one after the other, and expects that the other is kept since then.
func second(b *fixture, s accept.Submission) hold {
	b.accept(s)
	now := later()
	return since(b.accept(s).ID, now)
}

// secondTo is that for an endpoint.
func secondTo(ch control.EndpointChange) func(*fixture) hold {
	return func(b *fixture) hold {
		ep := b.endpoint(ch)
		h := second(b, accept.Submission{Endpoint: store.EndpointPrefix + ep.ID})
		later()
		return h
	}
}

// paused accepts a callback for an endpoint, and expects that it is kept since a pause that another one has
// taken the place of.
func paused(pause func(b *fixture, ep store.Endpoint, until int64)) func(*fixture) hold {
	return func(b *fixture) hold {
		ep := b.endpoint(control.EndpointChange{})
		began := later()
		pause(b, ep, soon(time.Hour))
		later()
		pause(b, ep, soon(2*time.Hour))
		later()
		return since(b.acceptTo(ep, accept.Submission{}).ID, began)
	}
}

var slowly = with(takes(time.Minute))

var situations = map[string]situation{
	control.BlockAttempting: {slowly, func(b *fixture) hold {
		now := later()
		h := since(b.accept(accept.Submission{}).ID, now)
		later()
		return h
	}},
	control.BlockSQLDown: {with(nil), func(b *fixture) hold {
		id := b.accept(in(time.Minute)).ID
		time.Sleep(time.Second)
		b.set(fail(errDown), "Stamp", "Commit", "Ping")
		time.Sleep(time.Minute - time.Second)
		h := hold{id, time.Now().Add(-time.Second), time.Now().Add(500 * time.Millisecond)}
		later()
		return h
	}},
	control.BlockNoWorker: {with(nil, onlyAPI), func(b *fixture) hold {
		worker := b.beside("worker")
		later()
		id := b.accept(in(time.Second)).ID
		worker.stopRun()
		h := since(id, time.Now())
		later()
		return h
	}},
	control.BlockSendingHeld: {with(nil, onlyAPI), func(b *fixture) hold {
		id := b.accept(accept.Submission{}).ID
		b.beside("first", onHold)
		now := later()
		b.beside("second", onHold)
		later()
		return since(id, now)
	}},
	control.BlockIndexUnanswered: {with(nil), func(b *fixture) hold {
		now := later()
		b.set(fail(errBroken), "Claim", "Ensure", "Settle", "Stats", "Generation", "Lookup", "LaneStates",
			"Audit", "Scan")
		h := hold{b.accept(accept.Submission{}).ID, now, now.Add(2 * time.Second)}
		later()
		later()
		return h
	}},
	control.BlockIndexRebuilding: {with(nil), func(b *fixture) hold {
		id := b.accept(in(5 * time.Second)).ID
		time.Sleep(time.Second)
		b.set(slow(time.Minute), "IndexOpen")
		h := since(id, time.Now())
		ended := make(chan error, 1)
		go func() {
			_, err := b.engine.Rebuild(context.WithoutCancel(b.Context()), false, operator)
			ended <- err
		}()
		b.Cleanup(func() { b.ok(<-ended) })
		later()
		return h
	}},
	control.BlockProjectPaused: {with(nil), paused(func(b *fixture, _ store.Endpoint,
		until int64) {
		b.pause(until)
	})},
	control.BlockEndpointPaused: {with(nil), paused((*fixture).pauseEndpoint)},
	control.BlockEndpointOff: {with(always(410, "")), func(b *fixture) hold {
		ep := b.endpoint(control.EndpointChange{Choice: accept.Choice{PolicyName: "short"}})
		now := later()
		b.await(b.acceptTo(ep, accept.Submission{}).ID, time.Minute) // the receiver is gone
		later()
		return hold{b.acceptTo(ep, accept.Submission{}).ID, now, now.Add(2 * time.Second)}
	}},
	control.BlockEndpointDeleted: {with(nil), func(b *fixture) hold {
		ep := b.endpoint(control.EndpointChange{})
		b.pauseEndpoint(ep, store.Forever)
		id := b.acceptTo(ep, accept.Submission{}).ID
		b.set(fail(errors.New("canceling is put off")), "CancelDeleted")
		now := time.Now()
		b.deleteEndpoint(ep)
		later()
		return since(id, now)
	}},
	control.BlockLanePaused: {with(nil), func(b *fixture) hold {
		c := b.accept(in(time.Second))
		b.pauseLane(c.Lane, store.Forever)
		return since(c.ID, time.Now())
	}},
	control.BlockNotDue: {with(after(3*time.Second, always(500, ""))), func(b *fixture) hold {
		h := since(b.accept(tiers(time.Hour)).ID, time.Now().Add(3*time.Second))
		later()
		return h
	}},
	control.BlockOrder: {slowly, func(b *fixture) hold {
		h := second(b, accept.Submission{LockKey: "order-1", Order: "strict"})
		later()
		return h
	}},
	control.BlockBreakerOpen: {with(func(context.Context, hit, int) (*http.Response, error) {
		return nil, errors.New("connection refused")
	}), func(b *fixture) hold {
		time.Sleep(time.Second)
		c := b.accept(in(13 * time.Second))
		policy := make([]time.Duration, 30)
		for i := range policy {
			policy[i] = 500 * time.Millisecond
		}
		b.accept(tiers(policy...))
		before, now := time.Now(), time.Now()
		for range 200 {
			states := must(b.index.LaneStates(b.Context(), []int64{c.LaneID}))
			if states[0].Breaker != schedule.BreakerClosed {
				break
			}
			before = now
			time.Sleep(100 * time.Millisecond)
			now = time.Now()
		}
		time.Sleep(time.Until(time.UnixMilli(c.DueAt)) + 50*time.Millisecond)
		return hold{c.ID, before, now}
	}},
	control.BlockRetryAfter: {with(always(429, "", "Retry-After", "60")), func(b *fixture) hold {
		now := later()
		b.accept(accept.Submission{})
		later()
		return since(b.accept(accept.Submission{}).ID, now)
	}},
	control.BlockRate:        {with(nil), secondTo(control.EndpointChange{Rate: new("1/m")})},
	control.BlockConcurrency: {slowly, secondTo(control.EndpointChange{Concurrency: new(1)})},
	control.BlockLock: {slowly, func(b *fixture) hold {
		now := later()
		b.accept(locked("order-1"))
		later()
		h := since(b.accept(locked("order-1")).ID, now)
		time.Sleep(300 * time.Millisecond)
		return h
	}},
	control.BlockIndexMissing: {with(nil), func(b *fixture) hold {
		c := b.accept(in(3 * time.Second))
		// A second after the start the new index gets what it missed.
		time.Sleep(1500 * time.Millisecond)
		must(b.index.Cancel(b.Context(), []schedule.Ref{{ID: c.ID, Lane: c.LaneID}})) // by accident
		time.Sleep(1600 * time.Millisecond)
		return since(c.ID, time.UnixMilli(c.DueAt))
	}},
}
