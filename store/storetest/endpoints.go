package storetest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// newEndpoint returns an endpoint that is not created yet.
func (f *fixture) newEndpoint() store.Endpoint {
	return store.Endpoint{
		ID: f.id(), Project: project, Name: "Shop", URL: "https://shop.example/hook", Enabled: true,
		CreatedAt: f.now,
	}
}

func (f *fixture) endpoint() store.Endpoint {
	return must(f.CreateEndpoint(f.ctx(), f.newEndpoint(), actor))
}

// named returns an upsert of an endpoint with this external id and name.
func named(externalID, name string) store.EndpointUpsert {
	return store.EndpointUpsert{ExternalID: externalID,
		Change: infallible(func(e *store.Endpoint) { e.Name = name })}
}

func (f *fixture) upsertAll(wants ...store.EndpointUpsert) []store.UpsertedEndpoint {
	done := must(f.UpsertEndpoints(f.ctx(), project, wants, f.now, actor))
	f.require(len(done) == len(wants), "%d results of %d upserts", len(done), len(wants))
	return done
}

// testEndpointUpsertCrowd upserts the same external ids concurrently while one caller deletes one of them.
// Each external id must be one endpoint.
func testEndpointUpsertCrowd(f *fixture) {
	crowd(f, 6, func(i int) (_ error) {
		name := fmt.Sprint(i)
		wants := []store.EndpointUpsert{named("a", name), named("b", name), named("c", name)}
		if i%2 == 1 {
			slices.Reverse(wants)
		}
		done := f.upsertAll(wants...)
		for n, d := range done {
			f.check(d.Err == nil && d.Endpoint.ExternalID == wants[n].ExternalID, "result %d: %+v", n, d)
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
	many := make([]store.EndpointUpsert, 1000)
	for i := range many {
		many[i] = named(fmt.Sprint("many-", i), "x")
	}
	f.check(f.upsertAll(many...)[999].Created, "the last of 1000 endpoints was not created")
	f.check(names["a"] == 1 && names["b"] == 1 && names["c"] <= 1, "%v", names)
}

// testEndpointOrderCrowd follows the versions while many callers change settings. A change must never become
// visible after a change with a higher version.
func testEndpointOrderCrowd(f *fixture) {
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
				change := infallible(func(e *store.Endpoint) { e.Name, e.Concurrency = fmt.Sprint(n), n+1 })
				e := must(f.PatchEndpoint(f.ctx(), project, endpoints[i], change, f.now, actor))
				if n%3 == 0 {
					must(f.PauseLane(f.ctx(), project, e.LaneKey(), int64(n+1), "", f.now, actor))
				}
				final[i] = e.Version
			}
			return nil
		})
	}, 1, follow)
	for i, id := range endpoints {
		same(f, fmt.Sprint("last seen version of endpoint ", i), final[i], seen[id])
	}
}

// secret returns a secret that is not stored yet.
func (f *fixture) secret(owner, use string) store.Secret {
	id := f.id()
	s := store.Secret{
		ID: id, Project: project, Owner: owner, Use: use, KeyID: "key-" + id,
		Ciphertext: []byte("\x00\xff" + id),
		CreatedAt:  f.now,
	}
	if use != "" {
		s.Label, s.Hosts = "label of "+use, []string{"shop.example", "*"}
	}
	return s
}
