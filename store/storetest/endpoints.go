package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newEndpoint is one that sends to the shop.
func (f *fixture) newEndpoint(changes ...func(*store.Endpoint)) store.Endpoint {
	e := store.Endpoint{
		ID: f.id(), Project: project, Name: "Shop", URL: "https://shop.example/hook", Enabled: true,
		CreatedAt: f.now,
	}
	for _, change := range changes {
		change(&e)
	}
	return e
}

func (f *fixture) endpoint(changes ...func(*store.Endpoint)) store.Endpoint {
	return must(f.CreateEndpoint(f.ctx(), f.newEndpoint(changes...), actor))
}

func (f *fixture) patchEndpoint(id string, change func(*store.Endpoint)) store.Endpoint {
	return must(f.PatchEndpoint(f.ctx(), project, id, infallible(change), f.now, actor))
}

// moveEndpoint gives an endpoint another address.
func (f *fixture) moveEndpoint(id, url string) store.Endpoint {
	return f.patchEndpoint(id, func(e *store.Endpoint) { e.URL = url })
}

func (f *fixture) deleteEndpoint(id string) store.Endpoint {
	return must(f.DeleteEndpoint(f.ctx(), project, id, f.now, actor))
}

func (f *fixture) getEndpoint(id string) store.Endpoint {
	return must(f.Endpoint(f.ctx(), project, id))
}

func endpointIDs(endpoints []store.Endpoint) []string {
	return each(endpoints, func(e store.Endpoint) string { return e.ID })
}

// wholeEndpoint has a value in every field that a caller sets.
func wholeEndpoint(e *store.Endpoint) {
	e.ExternalID, e.URLOverride, e.Topics = "merchant-7", store.OverrideSameHost,
		[]string{"payment.*", `odd"topic`}
	e.Policy.Given = &store.Policy{Tiers: []time.Duration{time.Second}, Timeout: time.Second, StopOn: []int{410}}
	e.Success, e.Signer = store.Success{Name: "body-ok"}, `{"name":"sorted-kv"}`
	e.Headers = []store.Header{{Name: "X-Shop", Value: "7"}}
	e.Rate, e.Concurrency = store.Rate{Count: 300, Per: time.Minute}, 4
	e.Enabled, e.DisabledReason, e.PausedUntil, e.PauseReason = false, "requested", start+5, "later"
}

func testEndpointCreate(f *fixture) {
	given := f.newEndpoint(wholeEndpoint)
	made := must(f.CreateEndpoint(f.ctx(), given, actor))
	want := given
	want.LaneID, want.Version = made.LaneID, made.Version
	want.UpdatedAt, want.DisabledAt, want.PausedAt = f.now, f.now, f.now
	f.check(made.LaneID != 0 && made.Version != 0, "made: %+v", made)
	both(f, "made", want, made, f.getEndpoint(given.ID))
	same(f, "lane of its callbacks", made.LaneID, f.accept(to(made)).LaneID)
	plain := f.endpoint(func(e *store.Endpoint) { e.ID = "" })
	f.check(len(plain.ID) == len(given.ID) && plain.Topics == nil && plain.Sends(f.now),
		"one with little: %+v", plain)
	for name, e := range map[string]store.Endpoint{
		"external id": {ID: f.id(), Project: project, ExternalID: "merchant-7", CreatedAt: f.now},
		"id":          {ID: plain.ID, Project: "other", CreatedAt: f.now + 1},
	} {
		f.fails(store.ErrExists, "a taken "+name, errOf(f.CreateEndpoint(f.ctx(), e, actor)))
	}
	f.endpoint(func(e *store.Endpoint) { e.Project, e.ExternalID = "other", "merchant-7" })
	f.unknown(given.ID, func(project, id string) error { return errOf(f.Endpoint(f.ctx(), project, id)) })
	f.wantAudit("endpoint.create "+plain.ID, "endpoint.create "+given.ID)
}

func testEndpointPatch(f *fixture) {
	e := f.endpoint()
	taken := func(e *store.Endpoint) { e.ExternalID = "taken" }
	f.endpoint(taken)
	f.now++
	whole := func(e *store.Endpoint) {
		wholeEndpoint(e)
		// None of these is the caller's to change.
		e.ID, e.Project, e.LaneID, e.Version = "x", "x", 99, 99
		e.CreatedAt, e.FailingSince, e.DeletedAt = 99, 99, 99
	}
	got := f.patchEndpoint(e.ID, whole)
	want := e
	wholeEndpoint(&want)
	want.UpdatedAt, want.Version, want.DisabledAt, want.PausedAt = f.now, got.Version, f.now, f.now
	f.check(got.Version > e.Version, "version %d after %d", got.Version, e.Version)
	both(f, "patched", want, got, f.getEndpoint(e.ID))
	l := f.laneByKey(e.LaneKey())
	f.check(l.Limit == 4 && l.Rate == want.Rate && l.EndpointPause == store.Forever && l.Version != 0,
		"lane: %+v", l)
	f.now++
	same(f, "what changes nothing", got, f.patchEndpoint(e.ID, whole))
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL, e.Topics = "https://other.example", nil })
	same(f, "version of the lane after a new address", l.Version, f.laneByKey(e.LaneKey()).Version)
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Enabled, e.DisabledReason = true, "" })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil, e.PauseReason = 0, "" })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil = f.now + 5 })
	f.fails(errRefused, "refused by its caller",
		errOf(f.PatchEndpoint(f.ctx(), project, e.ID, refuse(taken), f.now, actor)))
	f.fails(store.ErrExists, "taken", errOf(f.PatchEndpoint(f.ctx(), project, e.ID, infallible(taken), f.now,
		actor)))
	f.missing("patch in another project",
		errOf(f.PatchEndpoint(f.ctx(), "other", e.ID, infallible(taken), f.now, actor)))
	f.wantAudit("endpoint.pause "+e.ID, "endpoint.resume "+e.ID, "endpoint.enable "+e.ID,
		"endpoint.update "+e.ID,
		"endpoint.update "+e.ID)
}

// named asks for an endpoint with that external id and that name.
func named(externalID, name string) store.EndpointUpsert {
	return store.EndpointUpsert{ExternalID: externalID,
		Change: infallible(func(e *store.Endpoint) { e.Name = name })}
}

func (f *fixture) upsertAll(wants ...store.EndpointUpsert) []store.UpsertedEndpoint {
	done := must(f.UpsertEndpoints(f.ctx(), project, wants, f.now, actor))
	f.require(len(done) == len(wants), "%d answers to %d upserts", len(done), len(wants))
	return done
}

func testEndpointUpsert(f *fixture) {
	upsert := func(name string) (store.Endpoint, bool) {
		return must2(f.UpsertEndpoint(f.ctx(), project, named("a", name), f.now, actor))
	}
	made, created := upsert("one")
	f.require(created && made.ExternalID == "a" && made.Name == "one" && made.Enabled && made.LaneID != 0 &&
		made.CreatedAt == f.now, "made: %t, %+v", created, made)
	f.now++
	changed, created := upsert("two")
	f.check(!created && changed.ID == made.ID && changed.Name == "two" && changed.CreatedAt == made.CreatedAt &&
		changed.Version > made.Version, "changed: %t, %+v", created, changed)
	again, _ := upsert("two")
	same(f, "nothing changed", changed, again)
	done := f.upsertAll(
		named("z", "new"),
		store.EndpointUpsert{ExternalID: "b", Change: refuse(func(*store.Endpoint) {})},
		named("a", "three"), named("", "none"), named("z", "twice"),
		store.EndpointUpsert{ExternalID: "c", Change: infallible(func(e *store.Endpoint) {
			e.ExternalID, e.Concurrency = "a", 5
		})},
	)
	z, a, c := done[0], done[2], done[5]
	f.check(z.Created && z.Endpoint.Name == "new", "made in a batch: %+v", z)
	f.fails(errRefused, "refused by its caller", done[1].Err)
	f.check(!a.Created && a.Endpoint.ID == made.ID && a.Endpoint.Name == "three", "changed in a batch: %+v", a)
	f.invalid("without an external id", done[3].Err)
	f.invalid("twice in a batch", done[4].Err)
	f.check(c.Created && c.Endpoint.ExternalID == "c" && f.laneByKey(c.Endpoint.LaneKey()).Limit == 5,
		"one that asks for another external id: %+v", c)
	f.missing("what was refused", errOf(f.EndpointByExternalID(f.ctx(), project, "b")))
	same(f, "by external id", c.Endpoint.ID, must(f.EndpointByExternalID(f.ctx(), project, "c")).ID)
	f.wantAudit("endpoint.create "+c.Endpoint.ID, "endpoint.update "+made.ID, "endpoint.create "+z.Endpoint.ID,
		"endpoint.update "+made.ID, "endpoint.create "+made.ID)
	many := make([]store.EndpointUpsert, 1000)
	for i := range many {
		many[i] = named(fmt.Sprint("many-", i), "x")
	}
	f.check(f.upsertAll(many...)[999].Created, "the last of a thousand was not made")
}

// testEndpointUpsertTogether has several upsert the same names at once, while one deletes them: each name is
// one endpoint.
func testEndpointUpsertTogether(f *fixture) {
	crowd(f, 6, func(i int) (_ error) {
		name := fmt.Sprint(i)
		wants := []store.EndpointUpsert{named("a", name), named("b", name), named("c", name)}
		if i%2 == 1 {
			slices.Reverse(wants)
		}
		done := f.upsertAll(wants...)
		for n, d := range done {
			f.check(d.Err == nil && d.Endpoint.ExternalID == wants[n].ExternalID, "answer %d: %+v", n, d)
		}
		if i == 3 {
			_, err := f.DeleteEndpoint(f.ctx(), project, done[0].Endpoint.ID, f.now, actor)
			f.check(err == nil || errors.Is(err, store.ErrNotFound), "delete: %v", err)
		}
		return nil
	})
	names := make(map[string]int)
	for _, e := range must(f.Endpoints(f.ctx(), project, store.EndpointFilter{Limit: 10})) {
		names[e.ExternalID]++
	}
	f.check(names["a"] == 1 && names["b"] == 1 && names["c"] <= 1, "%v", names)
}

func testEndpointFind(f *fixture) {
	var made []store.Endpoint
	for i := range 6 {
		f.now++
		made = append(made, f.endpoint(func(e *store.Endpoint) {
			e.Name, e.URL = fmt.Sprint("Shop № ", i), fmt.Sprintf("https://shop-%d.example/Hook", i)
			switch i {
			case 1:
				e.ExternalID, e.Topics = "merchant-1", []string{"payment.*"}
			case 2:
				e.Topics, e.PausedUntil = []string{"refund", "payment.succeeded"}, f.now+1000
			case 3:
				e.Topics, e.Enabled = []string{"*"}, false
			}
		}))
	}
	other := f.endpoint(func(e *store.Endpoint) {
		e.Project, e.ExternalID, e.Topics = "other", "theirs", []string{"*"}
	})
	gone := f.endpoint(func(e *store.Endpoint) { e.ExternalID, e.Topics = "gone", []string{"*"} })
	f.deleteEndpoint(gone.ID)
	second := made[2].LaneKey()
	found := must(f.FindEndpoints(f.ctx(), project,
		[]string{"merchant-1", second, "none", other.LaneKey(), "theirs", "gone", gone.LaneKey(), ""}))
	f.check(len(found) == 2 && found["merchant-1"].ID == made[1].ID && found[second].ID == made[2].ID,
		"found: %+v", found)
	// By which endpoints they pick, the newest first.
	for want, filters := range map[string][]store.EndpointFilter{
		"543210": {{}},
		"54":     {{Limit: 2}},
		"32":     {{After: made[4].ID, Limit: 2}, {Held: true, Now: f.now}},
		"3":      {{Search: "shop № 3"}, {Topic: "refun"}, {Held: true, Now: f.now + 5000}},
		"4":      {{Search: "4.example/hook"}},
		"1":      {{Search: "MERCHANT"}},
		"0":      {{Search: made[0].LaneKey()}},
		"321":    {{Topic: "payment.succeeded"}},
		"31":     {{Topic: "payment.a.b"}},
		"":       {{Search: "%"}, {Failing: true}},
	} {
		for _, filter := range filters {
			filter.Limit = cmp.Or(filter.Limit, 100)
			got := ""
			for _, e := range must(f.Endpoints(f.ctx(), project, filter)) {
				f.check(filter.Topic == "" || e.Subscribes(filter.Topic), "%v: %v does not subscribe", filter, e.Topics)
				got += fmt.Sprint(slices.Index(endpointIDs(made), e.ID))
			}
			same(f, fmt.Sprintf("%+v", filter), want, got)
		}
	}
	first := must(f.Subscribers(f.ctx(), project, "", 2))
	same(f, "subscribers", endpointIDs(made[1:3]), endpointIDs(first))
	same(f, "their topics", made[2].Topics, first[1].Topics)
	same(f, "subscribers after them", []string{made[3].ID},
		endpointIDs(must(f.Subscribers(f.ctx(), project, made[2].ID, 2))))
	byID := must(f.EndpointsByID(f.ctx(), []string{gone.ID, other.ID, f.id(), made[0].ID}))
	same(f, "by id", []string{made[0].ID, other.ID, gone.ID}, endpointIDs(byID))
	f.check(byID[2].DeletedAt != 0, "one that was deleted: %+v", byID[2])
}

func testEndpointsChanged(f *fixture) {
	a, b, c := f.endpoint(), f.endpoint(func(e *store.Endpoint) { e.Project = "other" }), f.endpoint()
	a = f.patchEndpoint(a.ID, func(e *store.Endpoint) { e.Name = "later" })
	c = f.deleteEndpoint(c.ID)
	check := func(since int64, limit int, want ...store.Endpoint) {
		same(f, fmt.Sprint("changed since ", since), want, must(f.EndpointsChanged(f.ctx(), since, limit)))
	}
	check(0, 10, b, a, c)
	check(0, 1, b)
	check(b.Version, 10, a, c)
	check(c.Version, 10)
}

// testChangesInOrder follows the versions while many change settings: nothing is seen after something with a
// higher version.
func testChangesInOrder(f *fixture) {
	const writers, each = 6, 12
	endpoints := make([]string, writers)
	for i := range endpoints {
		endpoints[i] = f.endpoint().ID
	}
	seen, since := make(map[string]int64), int64(0)
	follow := func() {
		for more := true; more; {
			changed := must(f.EndpointsChanged(f.ctx(), since, 2))
			for _, e := range changed {
				seen[e.ID], since = e.Version, e.Version
			}
			more = len(changed) == 2
		}
	}
	final := make([]int64, writers)
	f.during(func() {
		crowd(f, writers, func(i int) (_ error) {
			for n := range each {
				e := f.patchEndpoint(endpoints[i], func(e *store.Endpoint) { e.Name, e.Concurrency = fmt.Sprint(n), n+1 })
				if n%3 == 0 {
					f.pauseLane(e.LaneKey(), int64(n+1), "")
				}
				final[i] = e.Version
			}
			return nil
		})
	}, 1, follow)
	for i, id := range endpoints {
		same(f, fmt.Sprint("the last version seen of endpoint ", i), final[i], seen[id])
	}
}
