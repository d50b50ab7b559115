package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// endpoint makes one; change may be nil.
func (f *fixture) endpoint(change func(*store.Endpoint)) store.Endpoint {
	f.Helper()
	e := store.Endpoint{ID: f.id(), Project: project, Name: "Shop", URL: "https://shop.example/hook", Enabled: true, CreatedAt: f.now}
	if change != nil {
		change(&e)
	}
	return must(f.CreateEndpoint(f.ctx(), e, actor))
}

func (f *fixture) patchEndpoint(id string, change func(*store.Endpoint)) store.Endpoint {
	return must(f.PatchEndpoint(f.ctx(), project, id, func(e *store.Endpoint) error {
		change(e)
		return nil
	}, f.now, actor))
}

func (f *fixture) getEndpoint(id string) store.Endpoint {
	return must(f.Endpoint(f.ctx(), project, id))
}

// wholeEndpoint has a value in every field that a caller sets.
func wholeEndpoint(e *store.Endpoint) {
	e.ExternalID, e.URLOverride, e.Topics = "merchant-7", store.OverrideSameHost, []string{"payment.*", `odd"topic`}
	e.Policy = store.PolicyChoice{Given: &store.Policy{Tiers: []time.Duration{time.Second}, Timeout: time.Second, StopOn: []int{410}}}
	e.Success, e.Signer = store.Success{Name: "body-ok"}, `{"name":"sorted-kv"}`
	e.Headers = []store.Header{{Name: "X-Shop", Value: "7"}}
	e.Rate, e.Concurrency = store.Rate{Count: 300, Per: time.Minute}, 4
	e.Enabled, e.DisabledReason, e.PausedUntil, e.PauseReason = false, "requested", start+5, "later"
}

func testEndpointCreate(f *fixture) {
	given := store.Endpoint{ID: f.id(), Project: project, Name: "Shop", URL: "https://shop.example/hook", CreatedAt: f.now}
	wholeEndpoint(&given)
	made := must(f.CreateEndpoint(f.ctx(), given, actor))
	want := given
	want.LaneID, want.Version, want.UpdatedAt = made.LaneID, made.Version, f.now
	want.DisabledAt, want.PausedAt = f.now, f.now
	if made.LaneID == 0 || made.Version == 0 {
		f.Errorf("made: %+v", made)
	}
	same(f, "made", want, made)
	same(f, "read", want, f.getEndpoint(given.ID))
	if c := f.accept(func(d *store.Draft) { d.Callback.Lane, d.Callback.EndpointID = made.LaneKey(), made.ID }); c.LaneID != made.LaneID {
		f.Errorf("its callbacks have lane %d, it has %d", c.LaneID, made.LaneID)
	}
	plain := f.endpoint(func(e *store.Endpoint) { e.ID = "" })
	if len(plain.ID) != len(given.ID) || plain.Topics != nil || !plain.Sends(f.now) {
		f.Errorf("one with little: %+v", plain)
	}
	for name, e := range map[string]store.Endpoint{
		"external id": {ID: f.id(), Project: project, ExternalID: "merchant-7", CreatedAt: f.now},
		"id":          {ID: plain.ID, Project: "other", CreatedAt: f.now + 1},
	} {
		f.fails(store.ErrExists, "a taken "+name, errOf(f.CreateEndpoint(f.ctx(), e, actor)))
	}
	f.endpoint(func(e *store.Endpoint) { e.Project, e.ExternalID = "other", "merchant-7" })
	for _, where := range []struct{ project, id string }{{"other", given.ID}, {project, f.id()}} {
		f.fails(store.ErrNotFound, "in "+where.project, errOf(f.Endpoint(f.ctx(), where.project, where.id)))
	}
	f.wantAudit("endpoint.create "+plain.ID, "endpoint.create "+given.ID)
}

func testEndpointPatch(f *fixture) {
	e := f.endpoint(nil)
	f.endpoint(func(e *store.Endpoint) { e.ExternalID = "taken" })
	f.now++
	whole := func(e *store.Endpoint) {
		wholeEndpoint(e)
		// None of these is the caller's to change.
		e.ID, e.Project, e.LaneID, e.Version, e.CreatedAt, e.FailingSince, e.DeletedAt = "x", "x", 99, 99, 99, 99, 99
	}
	got := f.patchEndpoint(e.ID, whole)
	want := e
	wholeEndpoint(&want)
	want.UpdatedAt, want.Version = f.now, got.Version
	want.DisabledAt, want.PausedAt = f.now, f.now
	if got.Version <= e.Version {
		f.Errorf("patched: version %d after %d", got.Version, e.Version)
	}
	same(f, "patched and read", []store.Endpoint{want, want}, []store.Endpoint{got, f.getEndpoint(e.ID)})
	if l := f.laneByKey(e.LaneKey()); l.Limit != 4 || l.Rate != want.Rate || l.EndpointPause != store.Forever || l.Version == 0 {
		f.Errorf("its lane: %+v", l)
	}
	f.now++
	if again := f.patchEndpoint(e.ID, whole); again.Version != got.Version || again.UpdatedAt != got.UpdatedAt {
		f.Errorf("what changes nothing: %+v", again)
	}
	lane := f.laneByKey(e.LaneKey()).Version
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL, e.Topics = "https://other.example", nil })
	if f.laneByKey(e.LaneKey()).Version != lane {
		f.Error("a new address concerns the lane")
	}
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Enabled, e.DisabledReason = true, "" })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil, e.PauseReason = 0, "" })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil = f.now + 5 })
	refused := errors.New("refused")
	for want, change := range map[error]func(*store.Endpoint) error{
		refused:         func(e *store.Endpoint) error { e.Name = "no"; return refused },
		store.ErrExists: func(e *store.Endpoint) error { e.ExternalID = "taken"; return nil },
	} {
		f.fails(want, "patch", errOf(f.PatchEndpoint(f.ctx(), project, e.ID, change, f.now, actor)))
	}
	f.fails(store.ErrNotFound, "patch in another project", errOf(f.PatchEndpoint(f.ctx(), "other", e.ID, func(*store.Endpoint) error { return nil }, f.now, actor)))
	f.wantAudit("endpoint.pause "+e.ID, "endpoint.resume "+e.ID, "endpoint.enable "+e.ID, "endpoint.update "+e.ID, "endpoint.update "+e.ID)
}

// named asks for an endpoint with that external id and that name.
func named(externalID, name string) store.EndpointUpsert {
	return store.EndpointUpsert{ExternalID: externalID, Change: func(e *store.Endpoint) error { e.Name = name; return nil }}
}

func testEndpointUpsert(f *fixture) {
	made, created, err := f.UpsertEndpoint(f.ctx(), project, named("a", "one"), f.now, actor)
	if err != nil || !created || made.ExternalID != "a" || made.Name != "one" || !made.Enabled || made.LaneID == 0 || made.CreatedAt != f.now {
		f.Fatalf("made: %v, %t, %+v", err, created, made)
	}
	f.now++
	changed, created, err := f.UpsertEndpoint(f.ctx(), project, named("a", "two"), f.now, actor)
	if err != nil || created || changed.ID != made.ID || changed.Name != "two" || changed.CreatedAt != made.CreatedAt || changed.Version <= made.Version {
		f.Errorf("changed: %v, %t, %+v", err, created, changed)
	}
	again, _, err := f.UpsertEndpoint(f.ctx(), project, named("a", "two"), f.now, actor)
	f.ok(err)
	same(f, "nothing changed", changed, again)
	refused := errors.New("refused")
	wants := []store.EndpointUpsert{
		named("z", "new"), {ExternalID: "b", Change: func(*store.Endpoint) error { return refused }}, named("a", "three"), named("", "none"),
		named("z", "twice"), {ExternalID: "c", Change: func(e *store.Endpoint) error { e.ExternalID = "a"; e.Concurrency = 5; return nil }},
	}
	done, err := f.UpsertEndpoints(f.ctx(), project, wants, f.now, actor)
	if err != nil || len(done) != len(wants) {
		f.Fatalf("batch: %v, %+v", err, done)
	}
	var invalid *store.InvalidError
	for i, ok := range []bool{
		done[0].Created && done[0].Endpoint.Name == "new",
		errors.Is(done[1].Err, refused),
		!done[2].Created && done[2].Endpoint.ID == made.ID && done[2].Endpoint.Name == "three",
		errors.As(done[3].Err, &invalid),
		errors.As(done[4].Err, &invalid),
		done[5].Created && done[5].Endpoint.ExternalID == "c" && f.laneByKey(done[5].Endpoint.LaneKey()).Limit == 5,
	} {
		if !ok {
			f.Errorf("answer %d: %+v", i, done[i])
		}
	}
	f.fails(store.ErrNotFound, "what was refused is there", errOf(f.EndpointByExternalID(f.ctx(), project, "b")))
	if got, err := f.EndpointByExternalID(f.ctx(), project, "c"); err != nil || got.ID != done[5].Endpoint.ID {
		f.Errorf("by external id: %v, %+v", err, got)
	}
	f.wantAudit("endpoint.create "+done[5].Endpoint.ID, "endpoint.update "+made.ID, "endpoint.create "+done[0].Endpoint.ID,
		"endpoint.update "+made.ID, "endpoint.create "+made.ID)
	many := make([]store.EndpointUpsert, 1000)
	for i := range many {
		many[i] = named(fmt.Sprint("many-", i), "x")
	}
	if done, err := f.UpsertEndpoints(f.ctx(), project, many, f.now, actor); err != nil || !done[999].Created {
		f.Errorf("a thousand: %v", err)
	}
}

// testEndpointUpsertTogether has several upsert the same names at once, while one deletes them: each name is one endpoint.
func testEndpointUpsertTogether(f *fixture) {
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			wants := []store.EndpointUpsert{named("a", fmt.Sprint(i)), named("b", fmt.Sprint(i)), named("c", fmt.Sprint(i))}
			if i%2 == 1 {
				slices.Reverse(wants)
			}
			done, err := f.UpsertEndpoints(f.ctx(), project, wants, f.now, actor)
			for n, d := range done {
				if d.Err != nil || d.Endpoint.ExternalID != wants[n].ExternalID {
					f.Errorf("answer %d: %+v", n, d)
				}
			}
			if err != nil {
				f.Errorf("upsert: %v", err)
			} else if i == 3 {
				if _, err := f.DeleteEndpoint(f.ctx(), project, done[0].Endpoint.ID, f.now, actor); err != nil && !errors.Is(err, store.ErrNotFound) {
					f.Errorf("delete: %v", err)
				}
			}
		})
	}
	wg.Wait()
	list, err := f.Endpoints(f.ctx(), project, store.EndpointFilter{Limit: 10})
	names := make(map[string]int)
	for _, e := range list {
		names[e.ExternalID]++
	}
	if err != nil || names["a"] != 1 || names["b"] != 1 || names["c"] > 1 {
		f.Errorf("%v, %v", err, names)
	}
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
	other := f.endpoint(func(e *store.Endpoint) { e.Project, e.ExternalID, e.Topics = "other", "theirs", []string{"*"} })
	gone := f.endpoint(func(e *store.Endpoint) { e.ExternalID, e.Topics = "gone", []string{"*"} })
	must(f.DeleteEndpoint(f.ctx(), project, gone.ID, f.now, actor))
	names := []string{"merchant-1", store.EndpointPrefix + made[2].ID, "none", store.EndpointPrefix + other.ID, "theirs", "gone", store.EndpointPrefix + gone.ID, ""}
	found, err := f.FindEndpoints(f.ctx(), project, names)
	if err != nil || len(found) != 2 || found["merchant-1"].ID != made[1].ID || found[names[1]].ID != made[2].ID {
		f.Errorf("found: %v, %+v", err, found)
	}
	for name, tt := range map[string]struct {
		filter store.EndpointFilter
		want   []int
	}{
		"all":             {store.EndpointFilter{}, []int{5, 4, 3, 2, 1, 0}},
		"page":            {store.EndpointFilter{Limit: 2}, []int{5, 4}},
		"next":            {store.EndpointFilter{After: made[4].ID, Limit: 2}, []int{3, 2}},
		"search name":     {store.EndpointFilter{Search: "shop № 3"}, []int{3}},
		"search url":      {store.EndpointFilter{Search: "4.example/hook"}, []int{4}},
		"search external": {store.EndpointFilter{Search: "MERCHANT"}, []int{1}},
		"search id":       {store.EndpointFilter{Search: store.EndpointPrefix + made[0].ID}, []int{0}},
		"wildcard":        {store.EndpointFilter{Search: "%"}, nil},
		"topic":           {store.EndpointFilter{Topic: "payment.succeeded"}, []int{3, 2, 1}},
		"deep topic":      {store.EndpointFilter{Topic: "payment.a.b"}, []int{3, 1}},
		"part of a topic": {store.EndpointFilter{Topic: "refun"}, []int{3}},
		"held":            {store.EndpointFilter{Held: true, Now: f.now}, []int{3, 2}},
		"held later":      {store.EndpointFilter{Held: true, Now: f.now + 5000}, []int{3}},
		"failing":         {store.EndpointFilter{Failing: true}, nil},
	} {
		if tt.filter.Limit == 0 {
			tt.filter.Limit = 100
		}
		list, err := f.Endpoints(f.ctx(), project, tt.filter)
		var got, want []string
		for _, e := range list {
			got = append(got, e.ID)
			if tt.filter.Topic != "" && !e.Subscribes(tt.filter.Topic) {
				f.Errorf("%s: %v does not subscribe", name, e.Topics)
			}
		}
		for _, i := range tt.want {
			want = append(want, made[i].ID)
		}
		if err != nil || !slices.Equal(got, want) {
			f.Errorf("%s: %v, %v, want %v", name, err, got, want)
		}
	}
	first, err := f.Subscribers(f.ctx(), project, "", 2)
	if err != nil || len(first) != 2 || first[0].ID != made[1].ID || !slices.Equal(first[1].Topics, made[2].Topics) {
		f.Errorf("subscribers: %v, %+v", err, first)
	}
	if rest, err := f.Subscribers(f.ctx(), project, first[1].ID, 2); err != nil || len(rest) != 1 || rest[0].ID != made[3].ID {
		f.Errorf("subscribers after the first two: %v, %+v", err, rest)
	}
	byID, err := f.EndpointsByID(f.ctx(), []string{gone.ID, other.ID, f.id(), made[0].ID})
	if err != nil || len(byID) != 3 || byID[0].ID != made[0].ID || byID[2].DeletedAt == 0 {
		f.Errorf("by id: %v, %+v", err, byID)
	}
}
