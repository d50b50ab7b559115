package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testAcceptAnswersInPlace(f *fixture) {
	const n = 1000
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[n-1-i] = f.draft(inLane(fmt.Sprint("lane-", i%10)))
	}
	lanes := make(map[string]int64)
	for i, a := range f.acceptAll(drafts...) {
		f.require(a.Err == nil && a.Callback.ID == drafts[i].Callback.ID, "draft %d was answered with %+v", i,
			a)
		id, ok := lanes[a.Callback.Lane]
		f.require(!ok || id == a.Callback.LaneID, "lane %s is %d and %d", a.Callback.Lane, id,
			a.Callback.LaneID)
		lanes[a.Callback.Lane] = a.Callback.LaneID
	}
	same(f, "lanes for 10 keys", 10, len(lanes))
	other := f.accept(inLane("lane-1"), inProject("other"))
	f.check(other.LaneID != lanes["lane-1"], "two projects share a lane")
}

// testAcceptConcurrently lets many callers accept at once, some of them with the same key, some giving up.
func testAcceptConcurrently(f *fixture) {
	for _, accepted := range crowd(f, 40, func(i int) []store.Accepted {
		drafts := f.drafts(5)
		keyed("shared", "same")(&drafts[0])
		ctx, cancel := context.WithCancel(f.ctx())
		defer cancel()
		if i%4 == 3 {
			go cancel()
		}
		accepted, err := f.Accept(ctx, drafts)
		f.check(err == nil || errors.Is(err, context.Canceled), "accept: %v", err)
		return accepted
	}) {
		for _, a := range accepted {
			f.ok(a.Err)
			f.get(a.Callback.ID)
		}
	}
	f.wantOpen(int64(len(f.list(store.Filter{}))))
}

// testExpiredKey accepts with a key whose callback is gone: twice in one call, and in many calls at once that
// each fill a group.
func testExpiredKey(f *fixture) {
	for round := range 3 {
		key := keyed(fmt.Sprint("key-", round), "one")
		f.succeed(f.accept(key).ID)
		f.now += store.IdempotencyAge.Milliseconds() + 1
		must(f.Purge(f.ctx(), store.Retention{Now: f.now, Payloads: f.now, Callbacks: f.now}, 100))
		const callers, each = 6, 300
		calls := make([][]store.Draft, callers)
		for i := range calls {
			calls[i] = f.drafts(each)
			key(&calls[i][i])
			key(&calls[i][each-1])
		}
		made := map[string]int{}
		for i, answer := range crowd(f, callers, func(i int) []store.Accepted {
			return f.acceptAll(calls[i]...)
		}) {
			for n, a := range answer {
				f.ok(a.Err)
				if n != i && n != each-1 {
					continue
				}
				made[a.Callback.ID] += 0
				if !a.Replayed {
					made[a.Callback.ID]++
				}
			}
		}
		for id, n := range made {
			f.check(len(made) == 1 && n == 1,
				"an expired key is that of callback %s, made %d times, one of %d", id, n, len(made))
		}
	}
}

// eventPlan is a plan for as many endpoints as there are ids.
func (f *fixture) eventPlan(key, fingerprint string, endpoints ...string) store.EventPlan {
	return store.EventPlan{
		ID: f.id(), Project: project, CreatedAt: f.now,
		Idempotency: store.Idempotency{Route: "events", Key: key, Fingerprint: []byte(fingerprint)},
		Targets: each(endpoints, func(id string) store.EventTarget {
			return store.EventTarget{EndpointID: id, CallbackID: f.id()}
		}),
	}
}

// testEventCrowd: many that plan the same event at once agree on one plan.
func testEventCrowd(f *fixture) {
	var made atomic.Int64
	plans := crowd(f, 16, func(int) store.EventPlan {
		plan, known := must2(f.PlanEvent(f.ctx(), f.eventPlan("k", "one", "e1", "e2", "e3")))
		if !known {
			made.Add(1)
		}
		return plan
	})
	same(f, "made", 1, made.Load())
	for _, p := range plans {
		f.check(p.ID == plans[0].ID && slices.Equal(p.Targets, plans[0].Targets), "%+v, want %+v", p,
			plans[0])
	}
}
