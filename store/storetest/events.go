package storetest

import (
	"slices"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

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

// plan plans an event, which is that of the other plan: known says whether it had been planned before.
func (f *fixture) plan(p store.EventPlan, known bool, want store.EventPlan) {
	got, was := must2(f.PlanEvent(f.ctx(), p))
	f.check(was == known && got.ID == want.ID && got.CreatedAt == want.CreatedAt &&
		slices.Equal(got.Targets, want.Targets), "%+v, known %t; want %+v, known %t", got, was, want, known)
}

// testEventPlan: a plan stands. A repetition of the request gets it, with what was accepted of it; another
// request with its key is refused.
func testEventPlan(f *fixture) {
	first := f.eventPlan("k", "one", "e1", "e2")
	f.plan(first, false, first)
	f.accept(withID(first.Targets[1].CallbackID))
	f.check(!must(f.EventPlanned(f.ctx(), project, "events", "none")) &&
		must(f.EventPlanned(f.ctx(), project, "events", "k")), "another key is planned than the event's")
	want := first
	want.Targets = slices.Clone(first.Targets)
	want.Targets[1].Accepted = true
	f.plan(f.eventPlan("k", "one", "e1", "e2", "e3"), true, want)
	f.plan(first, false, want) // the reply was lost
	f.fails(store.ErrIdempotencyMismatch, "another request with its key",
		errOf2(f.PlanEvent(f.ctx(), f.eventPlan("k", "two"))))
	empty := f.eventPlan("empty", "one")
	f.plan(empty, false, empty)
	f.plan(f.eventPlan("empty", "one", "e1"), true, empty)
	for _, change := range []func(*store.EventPlan){
		func(p *store.EventPlan) { p.Idempotency.Route = "alerts" },
		func(p *store.EventPlan) { p.Project = "other" },
	} {
		elsewhere := f.eventPlan("k", "two")
		change(&elsewhere)
		f.plan(elsewhere, false, elsewhere)
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
		f.check(p.ID == plans[0].ID && slices.Equal(p.Targets, plans[0].Targets), "%+v, want %+v", p, plans[0])
	}
}

// testEventEnds: a plan lives for seven days, and for as long as one of its callbacks is open.
func testEventEnds(f *fixture) {
	plans := []store.EventPlan{
		f.eventPlan("open", "one", "e1", "e2"), f.eventPlan("ended", "one", "e1"), f.eventPlan("empty", "one"),
	}
	for i, p := range plans {
		f.plan(p, false, p)
		for n, target := range p.Targets {
			f.accept(withID(target.CallbackID))
			plans[i].Targets[n].Accepted = true
		}
	}
	f.succeed(plans[0].Targets[0].CallbackID)
	f.succeed(plans[1].Targets[0].CallbackID)
	f.now += store.IdempotencyAge.Milliseconds()
	f.purgeThrice()
	for _, p := range plans {
		f.plan(f.eventPlan(p.Idempotency.Key, "one"), true, p)
	}
	f.now++
	f.purgeThrice()
	f.plan(f.eventPlan("open", "one"), true, plans[0])
	for _, key := range []string{"ended", "empty"} {
		again := f.eventPlan(key, "one")
		f.plan(again, false, again)
	}
}
