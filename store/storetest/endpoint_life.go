package storetest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testEndpointsChanged(f *fixture) {
	a, b := f.endpoint(nil), f.endpoint(func(e *store.Endpoint) { e.Project = "other" })
	c := f.endpoint(nil)
	a = f.patchEndpoint(a.ID, func(e *store.Endpoint) { e.Name = "later" })
	c = must(f.DeleteEndpoint(f.ctx(), project, c.ID, f.now, actor))
	check := func(since int64, limit int, want ...store.Endpoint) {
		f.Helper()
		same(f, fmt.Sprint("changed since ", since), want, must(f.EndpointsChanged(f.ctx(), since, limit)))
	}
	check(0, 10, b, a, c)
	check(0, 1, b)
	check(b.Version, 10, a, c)
	check(c.Version, 10)
}

// testChangesInOrder follows the versions while many change settings: nothing is seen after something with a higher version.
func testChangesInOrder(f *fixture) {
	const writers, each = 6, 12
	endpoints := make([]store.Endpoint, writers)
	for i := range endpoints {
		endpoints[i] = f.endpoint(nil)
	}
	last := make(map[string]int64)
	var since int64
	follow := func() {
		for {
			changed, err := f.EndpointsChanged(f.ctx(), since, 2)
			if err != nil {
				f.Errorf("changed: %v", err)
				return
			}
			for _, e := range changed {
				last[e.ID], since = e.Version, e.Version
			}
			if len(changed) < 2 {
				return
			}
		}
	}
	var wg sync.WaitGroup
	final := make([]int64, writers)
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				e, err := f.PatchEndpoint(f.ctx(), project, endpoints[i].ID, func(e *store.Endpoint) error {
					e.Name, e.Concurrency = fmt.Sprint(n), n+1
					return nil
				}, f.now, actor)
				if err == nil && n%3 == 0 {
					_, err = f.PauseLane(f.ctx(), project, e.LaneKey(), int64(n+1), "", f.now, actor)
				}
				if err != nil {
					f.Errorf("patch: %v", err)
				}
				final[i] = e.Version
			}
		})
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	for done := false; !done; {
		follow()
		select {
		case <-ended:
			done = true
		default:
		}
	}
	follow()
	for i := range endpoints {
		if last[endpoints[i].ID] != final[i] {
			f.Errorf("version %d of endpoint %d was seen last, %d was given last", last[endpoints[i].ID], i, final[i])
		}
	}
}

func testEndpointDisable(f *fixture) {
	e := f.endpoint(nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	first := 0
	for range 4 {
		wg.Go(func() {
			disabled, err := f.DisableEndpoint(f.ctx(), project, e.ID, "gone", f.now, actor)
			if err != nil {
				f.Errorf("disable: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			if disabled {
				first++
			}
		})
	}
	wg.Wait()
	got := f.getEndpoint(e.ID)
	if first != 1 || got.Enabled || got.DisabledReason != "gone" || got.DisabledAt != f.now ||
		got.Sends(f.now) {
		f.Errorf("%d disabled it: %+v", first, got)
	}
	if l := f.laneByKey(e.LaneKey()); l.PausedUntil != store.Forever || l.PauseReason != "gone" || l.Version == 0 {
		f.Errorf("its lane: %+v", l)
	}
	for _, where := range []struct{ project, id string }{{"other", e.ID}, {project, f.id()}} {
		same(f, "disable of an unknown one", false,
			must(f.DisableEndpoint(f.ctx(), where.project, where.id, "gone", f.now, actor)))
	}
	f.wantAudit("endpoint.disable "+e.ID, "endpoint.create "+e.ID)
	f.wantEvents(store.EndpointEvent{
		Project: project, EndpointID: e.ID, Kind: store.EndpointDisabled, At: f.now,
	})
	events := must(f.EndpointEvents(f.ctx(), "", 10))
	none(f, "events after the last", must(f.EndpointEvents(f.ctx(), events[0].ID, 10)))
	for range 2 {
		if err := f.RemoveEndpointEvents(f.ctx(), []string{events[0].ID, f.id()}); err != nil {
			f.Error(err)
		}
		f.wantEvents()
	}
}

// wantEvents compares the endpoint events, whatever their ids.
func (f *fixture) wantEvents(want ...store.EndpointEvent) {
	f.Helper()
	got := must(f.EndpointEvents(f.ctx(), "", 100))
	for i := range got {
		if i > 0 && got[i].ID <= got[i-1].ID {
			f.Errorf("event %d has the id %s, the one before it %s", i, got[i].ID, got[i-1].ID)
		}
		got[i].ID = ""
	}
	if !slices.Equal(got, want) {
		f.Errorf("endpoint events: %+v, want %+v", got, want)
	}
}

// to makes drafts go to an endpoint.
func to(e store.Endpoint) func(*store.Draft) {
	return func(d *store.Draft) {
		d.Callback.EndpointID, d.Callback.Lane, d.Callback.URL, d.Callback.Signer = e.ID, e.LaneKey(), e.URL, ""
		d.Callback.Follows = true
	}
}

func testEndpointDelete(f *fixture) {
	e := f.endpoint(func(e *store.Endpoint) { e.ExternalID = "x" })
	f.addSecret(f.secret(1, func(s *store.Secret) { s.Owner, s.Use = e.ID, "hmac" }), 0, false)
	var open []string
	for range 7 {
		open = append(open, f.accept(to(e)).ID)
	}
	lost, busy, lucky := f.accept(to(e)), f.accept(to(e)), f.accept(to(e))
	f.claim(lost.ID)
	f.now += claimLasts
	failing, succeeding := f.claim(busy.ID), f.claim(lucky.ID)
	dead := f.dead(to(e))
	other := f.accept(nil)
	deleted, err := f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor)
	if err != nil || deleted.DeletedAt != f.now || deleted.Enabled || deleted.Version <= e.Version {
		f.Fatalf("delete: %v, %+v", err, deleted)
	}
	l := f.laneByKey(e.LaneKey())
	if l.PausedUntil != store.Forever || l.EndpointPausedAt != deleted.DeletedAt {
		f.Errorf("its lane: %+v", l)
	}
	f.fails(store.ErrNotFound, "a deleted one", errOf(f.Endpoint(f.ctx(), project, e.ID)))
	ep, err := f.AnyEndpoint(f.ctx(), project, e.ID)
	if err != nil || ep.ID != e.ID || ep.DeletedAt != f.now {
		f.Errorf("a deleted one, for its callbacks: %v, %+v", err, ep)
	}
	f.fails(store.ErrNotFound, "a deleted one of another project",
		errOf(f.AnyEndpoint(f.ctx(), "other", e.ID)))
	f.fails(store.ErrNotFound, "delete again", errOf(f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor)))
	f.endpoint(func(e *store.Endpoint) { e.ExternalID = "x" })
	var canceled []store.OpenRow
	for len(canceled) < 8 {
		part, err := f.CancelDeleted(f.ctx(), f.now, 3)
		if err != nil || len(part) == 0 || len(part) > 3 {
			f.Fatalf("cancel: %v, %d of %d", err, len(part), 8-len(canceled))
		}
		canceled = append(canceled, part...)
	}
	none(f, "cancel again", must(f.CancelDeleted(f.ctx(), f.now, 10)))
	for _, id := range append(open, lost.ID) {
		c := f.get(id)
		f.wantState(c, store.Canceled, store.EndpointDeleted)
		if c.FinishedAt != f.now || c.DueAt != 0 || c.LaneID != canceled[0].LaneID {
			f.Errorf("canceled: %+v", c)
		}
	}
	if attempts := f.attempts(lost.ID); len(attempts) != 1 || attempts[0].Class != store.ClassCrashed {
		f.Errorf("attempts of the one whose claim was lost: %+v", attempts)
	}
	if won := f.win(f.failed(failing)); won.State != store.Canceled || won.Reason != store.EndpointDeleted {
		f.Errorf("the one in flight ended %+v", won)
	}
	f.wantState(f.get(busy.ID), store.Canceled, store.EndpointDeleted)
	f.win(f.succeeded(succeeding))
	f.wantState(f.get(lucky.ID), store.Succeeded, "")
	f.wantState(f.get(other.ID), store.Scheduled, "")
	// Nothing brings what has ended back to life, for it would be held for ever.
	retry := store.Retry{Ladder: store.Once, Now: f.now}
	f.fails(store.ErrEndpointDeleted, "retry", errOf(f.Retry(f.ctx(), project, dead.ID, retry, actor)))
	f.fails(store.ErrEndpointDeleted, "reschedule",
		errOf(f.Reschedule(f.ctx(), project, dead.ID, f.now, f.now, actor)))
	counts := f.counts()
	if counts.States[store.Scheduled] != 1 || counts.States[store.Canceled] != 9 {
		f.Errorf("counts: %+v", counts)
	}
}

// testEndpointDeleteLate has callbacks come to an endpoint that was deleted already: they are found, and then its secrets go.
func testEndpointDeleteLate(f *fixture) {
	e := f.endpoint(nil)
	f.addSecret(f.secret(1, func(s *store.Secret) { s.Owner, s.Use = e.ID, "hmac" }), 0, false)
	secrets := func() int { return len(must(f.OwnedSecrets(f.ctx(), project, e.ID, f.now))) }
	must(f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor))
	cancel := func(want int) {
		f.Helper()
		same(f, "canceled", want, len(must(f.CancelDeleted(f.ctx(), f.now, 100))))
	}
	early := f.draft(to(e))
	f.now += 1000
	cancel(0)
	late := f.accept(to(e))
	f.acceptAll(early)
	cancel(0)
	if secrets() != 1 {
		f.Error("its secrets went before the last that it may have to sign")
	}
	f.now += time.Hour.Milliseconds()
	cancel(2)
	f.wantState(f.get(late.ID), store.Canceled, store.EndpointDeleted)
	cancel(0)
	if secrets() != 0 {
		f.Error("its secrets outlived it")
	}
}

func testEndpointHealth(f *fixture) {
	e, quiet := f.endpoint(nil), f.endpoint(nil)
	at := func(n int64) int64 { return f.now + n }
	report := func(succeeded, failed, first int64) {
		f.Helper()
		if err := f.ReportHealth(f.ctx(), []store.EndpointHealth{
			{ID: f.id(), FailedAt: f.now}, {ID: e.ID, SucceededAt: succeeded, FailedAt: failed, FailedFirst: first},
		}, f.now); err != nil {
			f.Fatal(err)
		}
	}
	want := func(failing, success, failure int64) {
		f.Helper()
		if got := f.getEndpoint(e.ID); got.FailingSince != failing || got.LastSuccessAt != success || got.LastFailureAt != failure || got.Version != e.Version {
			f.Errorf("failing since %d, success %d, failure %d; want %d, %d, %d", got.FailingSince, got.LastSuccessAt, got.LastFailureAt, failing, success, failure)
		}
	}
	report(at(5), 0, 0)
	want(0, at(5), 0)
	// What failed before it succeeded says nothing, however late it is told.
	report(0, at(4), at(3))
	want(0, at(5), at(4))
	report(0, at(20), at(10))
	want(at(10), at(5), at(20))
	report(at(7), at(30), at(8)) // another process saw earlier ones
	want(at(8), at(7), at(30))
	f.wantEvents()

	alerts := func(failingBefore, alertedBefore int64, want int) {
		f.Helper()
		same(f, "alerts", want, len(must(f.TakeAlerts(f.ctx(), failingBefore, alertedBefore, f.now, 10))))
	}
	alerts(at(8), f.now-1, 0)
	f.now += 100
	failing := store.EndpointEvent{
		Project: project, EndpointID: e.ID, Kind: store.EndpointFailing, At: f.now, Since: at(-92),
	}
	alerts(f.now, f.now-50, 1)
	alerts(f.now, f.now-50, 0)
	f.now += 100
	again := failing
	again.At = f.now
	alerts(f.now, f.now-50, 1)
	f.wantEvents(failing, again)
	f.now -= 200

	report(at(40), at(35), at(31))
	recovered := store.EndpointEvent{
		Project: project, EndpointID: e.ID, Kind: store.EndpointRecovered, At: f.now, Since: at(8),
	}
	f.wantEvents(failing, again, recovered)
	want(0, at(40), at(35))
	report(at(50), at(60), at(55)) // it fails again, after a success of the same report
	want(at(55), at(50), at(60))
	report(at(61), 0, 0) // and recovers before that was reported
	want(0, at(61), at(60))
	f.wantEvents(failing, again, recovered)
	report(0, at(63), at(62))
	if got, err := f.Endpoints(f.ctx(), project, store.EndpointFilter{Failing: true, Limit: 10}); err != nil || len(got) != 1 || got[0].ID != e.ID {
		f.Errorf("those that fail: %v, %+v", err, got)
	}
	if got := f.getEndpoint(quiet.ID); got.LastFailureAt != 0 {
		f.Errorf("another endpoint: %+v", got)
	}
}

// testFollows moves endpoints: what is open goes where its endpoint is, at its next attempt, and what has ended says where it went.
func testFollows(f *fixture) {
	e := f.endpoint(nil)
	const first, second, third = "https://shop.example/hook", "https://second.example", "https://third.example"
	move := func(url string) {
		f.Helper()
		f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL = url })
	}
	fresh, moved, fixed := f.accept(to(e)), f.accept(to(e)), f.accept(func(d *store.Draft) { to(e)(d); d.Callback.Follows = false })
	check := func(what, id, url string) {
		f.Helper()
		if c := f.get(id); c.URL != url || c.Follows != (id != fixed.ID) {
			f.Errorf("%s: %q, follows %t; want %q", what, c.URL, c.Follows, url)
		}
	}
	if s := f.claim(fresh.ID); s.URL != first || !s.Follows || s.EndpointID != e.ID {
		f.Errorf("stamped: %+v", s.Callback)
	}
	move(second)
	check("in flight", fresh.ID, second)
	check("fixed", fixed.ID, first)
	s := f.claim(moved.ID)
	if s.URL != second || !s.Follows {
		f.Errorf("stamped after the move: %+v", s.Callback)
	}
	if s := f.claim(fixed.ID); s.URL != first || s.Follows {
		f.Errorf("stamped though it does not follow: %+v", s.Callback)
	}
	r := f.succeeded(s)
	r.Attempt.URL = second + "/really"
	f.win(r)
	move(third)
	check("ended", moved.ID, second)
	if got := f.attempts(moved.ID); len(got) != 1 || got[0].URL != second+"/really" {
		f.Errorf("attempts: %+v", got)
	}
	if got := f.list(store.Filter{EndpointID: e.ID, States: []store.State{store.Succeeded}}); len(got) != 1 || got[0] != moved.ID {
		f.Errorf("list: %v", got)
	}
	// A retry by hand goes to the endpoint, or with an address of its own nowhere else any more.
	f.retry(moved.ID, store.Once)
	check("retried", moved.ID, third)
	f.win(f.succeeded(f.claim(moved.ID)))
	c, err := f.Retry(f.ctx(), project, moved.ID, store.Retry{Ladder: store.Once, URL: first, Now: f.now}, actor)
	if err != nil || c.Follows || c.URL != first || c.Lane != e.LaneKey() {
		f.Errorf("retried elsewhere: %v, %+v", err, c)
	}
	if s := f.claim(moved.ID); s.URL != first || s.Follows {
		f.Errorf("stamped elsewhere: %+v", s.Callback)
	}
}
