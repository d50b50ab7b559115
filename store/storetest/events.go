package storetest

import (
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// eventPlan is a plan for as many endpoints as there are ids.
func (f *fixture) eventPlan(key, fingerprint string, endpoints ...string) store.EventPlan {
	p := store.EventPlan{
		ID: f.id(), Project: project, CreatedAt: f.now,
		Idempotency: store.Idempotency{Route: "events", Key: key, Fingerprint: []byte(fingerprint)},
	}
	for _, id := range endpoints {
		p.Targets = append(p.Targets, store.EventTarget{EndpointID: id, CallbackID: f.id()})
	}
	return p
}

func (f *fixture) plan(p store.EventPlan) (plan store.EventPlan, known bool) {
	f.Helper()
	plan, known, err := f.PlanEvent(f.ctx(), p)
	f.ok(err)
	return plan, known
}

// A plan stands: a repetition of the request gets it, with what was accepted of it; another request with its key is refused.
func testEventPlan(f *fixture) {
	first := f.eventPlan("k", "one", "e1", "e2")
	if got, known := f.plan(first); known || got.ID != first.ID || !slices.Equal(got.Targets, first.Targets) {
		f.Errorf("the first: %+v, known %v", got, known)
	}
	f.accept(func(d *store.Draft) { d.Callback.ID = first.Targets[1].CallbackID })
	want := slices.Clone(first.Targets)
	want[1].Accepted = true
	got, known := f.plan(f.eventPlan("k", "one", "e1", "e2", "e3"))
	if !known || got.ID != first.ID || got.CreatedAt != first.CreatedAt || !slices.Equal(got.Targets, want) {
		f.Errorf("repeated: %+v, known %v; want %+v", got, known, want)
	}
	if got, known := f.plan(first); known || !slices.Equal(got.Targets, want) {
		f.Errorf("the same once more, as where a reply was lost: %+v, known %v", got, known)
	}
	_, _, err := f.PlanEvent(f.ctx(), f.eventPlan("k", "two"))
	f.fails(store.ErrIdempotencyMismatch, "another request with its key", err)
	nobody := f.eventPlan("nobody", "one")
	f.plan(nobody)
	if got, known := f.plan(f.eventPlan("nobody", "one", "e1")); !known || got.ID != nobody.ID || len(got.Targets) != 0 {
		f.Errorf("one that went to nobody: %+v, known %v", got, known)
	}
	elsewhere := f.eventPlan("k", "two")
	elsewhere.Idempotency.Route = "alerts"
	if _, known := f.plan(elsewhere); known {
		f.Error("a key of one route is known on another")
	}
	elsewhere = f.eventPlan("k", "two")
	elsewhere.Project = "other"
	if _, known := f.plan(elsewhere); known {
		f.Error("a key of one project is known in another")
	}
}

// Many that plan the same event at once agree on one plan.
func testEventCrowd(f *fixture) {
	const crowd = 16
	plans := make([]store.EventPlan, crowd)
	fresh := make([]bool, crowd)
	var wg sync.WaitGroup
	for i := range crowd {
		p := f.eventPlan("k", "one", "e1", "e2", "e3")
		wg.Go(func() {
			plan, known, err := f.PlanEvent(f.ctx(), p)
			if err != nil {
				f.Errorf("plan event: %v", err)
			}
			plans[i], fresh[i] = plan, !known
		})
	}
	wg.Wait()
	first := slices.Index(fresh, true)
	if first < 0 || slices.Contains(fresh[first+1:], true) {
		f.Fatalf("who was the first: %v", fresh)
	}
	for i := range plans {
		if plans[i].ID != plans[first].ID || !slices.Equal(plans[i].Targets, plans[first].Targets) {
			f.Errorf("%d has %+v, want %+v", i, plans[i], plans[first])
		}
	}
}

// A plan lives for seven days, and for as long as one of its callbacks is open.
func testEventEnds(f *fixture) {
	open, ended, nobody := f.eventPlan("open", "one", "e1", "e2"), f.eventPlan("ended", "one", "e1"), f.eventPlan("nobody", "one")
	for _, p := range []store.EventPlan{open, ended, nobody} {
		f.plan(p)
		for _, target := range p.Targets {
			f.accept(func(d *store.Draft) { d.Callback.ID = target.CallbackID })
		}
	}
	f.win(f.succeeded(f.claim(open.Targets[0].CallbackID)))
	f.win(f.succeeded(f.claim(ended.Targets[0].CallbackID)))
	end := func() {
		f.Helper()
		for range 3 {
			if _, more, err := f.PurgeKeys(f.ctx(), f.now, 100); err != nil || more {
				f.Fatalf("purge keys: %t, %v", more, err)
			}
		}
	}
	f.now += (7 * 24 * time.Hour).Milliseconds()
	end()
	for _, key := range []string{"open", "ended", "nobody"} {
		if _, known := f.plan(f.eventPlan(key, "one")); !known {
			f.Errorf("the key %q ended before seven days had passed", key)
		}
	}
	f.now++
	end()
	if got, known := f.plan(f.eventPlan("open", "one")); !known || len(got.Targets) != 2 {
		f.Errorf("a plan ended while a callback of it was open: %+v, known %v", got, known)
	}
	for _, key := range []string{"ended", "nobody"} {
		if got, known := f.plan(f.eventPlan(key, "one")); known || len(got.Targets) != 0 {
			f.Errorf("the key %q outlived seven days: %+v", key, got)
		}
	}
}
