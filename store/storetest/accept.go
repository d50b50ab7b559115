package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testAcceptOrder checks that each draft of a large call is answered in its place, and that a lane key has
// one id in a project and another id in another project.
func testAcceptOrder(f *fixture) {
	const n = 1000
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[n-1-i] = f.draft(inLane(fmt.Sprint("lane-", i%10)))
	}
	lanes := make(map[string]int64)
	for i, a := range f.acceptAll(drafts...) {
		c := a.Callback
		f.require(a.Err == nil && c.ID == drafts[i].Callback.ID, "draft %d was answered with %+v", i, a)
		id, ok := lanes[c.Lane]
		f.require(!ok || id == c.LaneID, "lane %s has the ids %d and %d", c.Lane, id, c.LaneID)
		lanes[c.Lane] = c.LaneID
	}
	same(f, "lanes for 10 keys", 10, len(lanes))
	other := f.accept(inLane("lane-1"), inProject("other"))
	f.check(other.LaneID != lanes["lane-1"], "two projects share a lane id")
}

// testTraceContext checks that every stamp returns the trace context of the accept: the first one, later
// ones, and one that repeats a token. The result callback of a poll has the context of its poll.
func testTraceContext(f *fixture) {
	want := []byte("0123456789abcdef12345678\x01")
	traced := func(d *store.Draft) { d.Callback.TraceContext = want }
	check := func(what, id, token string, want []byte) *store.Stamped {
		stamped, refused := f.stampAs(store.Stamp{Token: token}, id)
		f.require(len(stamped) == 1, "stamp of %s was refused: %+v", what, refused)
		got := stamped[0].TraceContext
		f.check(bytes.Equal(got, want) && (want == nil) == (got == nil),
			"%s has the trace context %q, want %q", what, got, want)
		return stamped[0]
	}
	for what, want := range map[string][]byte{"a traced callback": want, "another callback": nil} {
		var options []option
		if want != nil {
			options = []option{traced}
		}
		id := f.accept(options...).ID
		s := check(what+" at its first stamp", id, f.token(), want)
		f.commit(f.failed(s))
		f.now += 1000
		token := f.token()
		check(what+" at its second stamp", id, token, want)
		check(what+" at a repeated stamp", id, token, want)
	}
	poll := f.claim(f.accept(polling("r"), traced).ID)
	f.commit(f.answered(poll, store.Succeeded, store.PollSucceeded, 200, "{}"))
	results := f.results("r")
	f.require(len(results) == 1, "the poll has %d results", len(results))
	check("the result of a poll", results[0], f.token(), want)
}

// testCreator checks that reads return the creator of the accept: of a single callback, of each callback in a
// batch, of callbacks that share a payload, and of none. The result callback of a poll has its poll.
func testCreator(f *fixture) {
	key := store.FirstID(f.now)
	by := func(creator string) option { return func(d *store.Draft) { d.Callback.CreatedBy = creator } }
	shared := func(d *store.Draft) { d.Callback.PayloadID, d.Body = store.FirstID(f.now+1), []byte("{}") }
	ids := make(map[string]string)
	for _, creator := range []string{key, "admin key", ""} {
		for _, a := range f.acceptAll(f.draft(by(creator)), f.draft(by(creator), shared)) {
			f.require(a.Err == nil, "accept: %v", a.Err)
			ids[a.Callback.ID] = creator
		}
	}
	ids[f.accept(by("sc_"+key)).ID] = "sc_" + key
	poll := f.claim(f.accept(polling("r"), by(key)).ID)
	ids[poll.ID] = key
	f.commit(f.answered(poll, store.Succeeded, store.PollSucceeded, 200, "{}"))
	results := f.results("r")
	f.require(len(results) == 1, "the poll has %d results", len(results))
	ids[results[0]] = store.CallbackPrefix + poll.ID

	page := must(f.List(f.ctx(), project, store.Filter{Now: f.now, Limit: 100}))
	same(f, "callbacks", len(ids), len(page.Callbacks))
	for i := range page.Callbacks {
		listed := &page.Callbacks[i]
		same(f, "the creator of "+listed.ID, ids[listed.ID], f.get(listed.ID).CreatedBy)
		same(f, "the creator in the list of "+listed.ID, ids[listed.ID], listed.CreatedBy)
	}
}

// testAcceptCrowd runs many accepts at the same time. Some share an idempotency key, and some callers cancel
// their context.
func testAcceptCrowd(f *fixture) {
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

// testExpiredKeyCrowd accepts with an idempotency key whose callback was purged: twice in one call, and in
// many calls at the same time, each large enough for a group. Exactly one callback must be created.
func testExpiredKeyCrowd(f *fixture) {
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
				"an expired key has callback %s, created %d times, one of %d callbacks", id, n, len(made))
		}
	}
}

// eventPlan returns a plan with a callback for each endpoint.
func (f *fixture) eventPlan(key, fingerprint string, endpoints ...string) store.EventPlan {
	return store.EventPlan{
		ID: f.id(), Project: project, CreatedAt: f.now,
		Idempotency: store.Idempotency{Route: "events", Key: key, Fingerprint: []byte(fingerprint)},
		Targets: each(endpoints, func(id string) store.EventTarget {
			return store.EventTarget{EndpointID: id, CallbackID: f.id()}
		}),
	}
}

// testEventCrowd checks that concurrent plans of the same event all return one plan.
func testEventCrowd(f *fixture) {
	var made atomic.Int64
	plans := crowd(f, 16, func(int) store.EventPlan {
		plan, known := must2(f.PlanEvent(f.ctx(), f.eventPlan("k", "one", "e1", "e2", "e3")))
		if !known {
			made.Add(1)
		}
		return plan
	})
	same(f, "new plans", 1, made.Load())
	for _, p := range plans {
		f.check(p.ID == plans[0].ID && slices.Equal(p.Targets, plans[0].Targets), "%+v, want %+v", p,
			plans[0])
	}
}
