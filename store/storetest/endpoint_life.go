package storetest

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func testEndpointDisable(f *fixture) {
	disable := func(project, id string) bool {
		return must(f.DisableEndpoint(f.ctx(), project, id, "gone", f.now, actor))
	}
	e := f.endpoint()
	disabled := crowd(f, 4, func(int) bool { return disable(project, e.ID) })
	same(f, "first", 1, len(slices.DeleteFunc(disabled, func(first bool) bool { return !first })))
	got := f.getEndpoint(e.ID)
	f.check(!got.Enabled && got.DisabledReason == "gone" && got.DisabledAt == f.now && !got.Sends(f.now),
		"%+v", got)
	l := f.laneByKey(e.LaneKey())
	f.check(l.PausedUntil == store.Forever && l.PauseReason == "gone" && l.Version != 0, "its lane: %+v", l)
	f.check(!disable("other", e.ID) && !disable(project, f.id()), "an unknown one was disabled")
	f.wantAudit("endpoint.disable "+e.ID, "endpoint.create "+e.ID)
	f.wantEvents(event(e, store.EndpointDisabled, f.now, 0))
	events := must(f.EndpointEvents(f.ctx(), "", 10))
	none(f, "events after the last", must(f.EndpointEvents(f.ctx(), events[0].ID, 10)))
	for range 2 {
		f.ok(f.RemoveEndpointEvents(f.ctx(), []string{events[0].ID, f.id()}))
		f.wantEvents()
	}
}

func event(e store.Endpoint, kind store.EndpointEventKind, at, since int64) store.EndpointEvent {
	return store.EndpointEvent{Project: project, EndpointID: e.ID, Kind: kind, At: at, Since: since}
}

// wantEvents compares the endpoint events, whatever their ids.
func (f *fixture) wantEvents(want ...store.EndpointEvent) {
	got := must(f.EndpointEvents(f.ctx(), "", 100))
	last := ""
	for i := range got {
		f.check(got[i].ID > last, "event %d has the id %s, the one before it %s", i, got[i].ID, last)
		last, got[i].ID = got[i].ID, ""
	}
	f.check(slices.Equal(got, want), "endpoint events: %+v, want %+v", got, want)
}

// cancelDeleted cancels what is open of deleted endpoints.
func (f *fixture) cancelDeleted(limit int) []store.OpenRow {
	rows := must(f.CancelDeleted(f.ctx(), f.now, limit))
	f.require(len(rows) <= limit, "%d were canceled, %d may be", len(rows), limit)
	return rows
}

func testEndpointDelete(f *fixture) {
	e := f.endpoint(func(e *store.Endpoint) { e.ExternalID = "x" })
	f.addSecret(e.ID, "hmac", 0)
	open := f.acceptEach(7, to(e))
	lost, busy, lucky := f.accept(to(e)), f.accept(to(e)), f.accept(to(e))
	f.lose(lost.ID)
	failing, succeeding := f.claim(busy.ID), f.claim(lucky.ID)
	dead, other := f.dead(to(e)), f.accept()
	deleted := f.deleteEndpoint(e.ID)
	f.require(deleted.DeletedAt == f.now && !deleted.Enabled && deleted.Version > e.Version, "deleted: %+v",
		deleted)
	l := f.laneByKey(e.LaneKey())
	f.check(l.PausedUntil == store.Forever && l.EndpointPausedAt == deleted.DeletedAt, "its lane: %+v", l)
	f.missing("a deleted one", errOf(f.Endpoint(f.ctx(), project, e.ID)))
	got := must(f.AnyEndpoint(f.ctx(), project, e.ID))
	f.check(got.ID == e.ID && got.DeletedAt == f.now, "a deleted one, for its callbacks: %+v", got)
	f.missing("a deleted one of another project", errOf(f.AnyEndpoint(f.ctx(), "other", e.ID)))
	f.missing("delete again", errOf(f.DeleteEndpoint(f.ctx(), project, e.ID, f.now, actor)))
	f.endpoint(func(e *store.Endpoint) { e.ExternalID = "x" })
	var canceled []store.OpenRow
	for len(canceled) < 8 {
		part := f.cancelDeleted(3)
		f.require(len(part) > 0, "%d are left", 8-len(canceled))
		canceled = append(canceled, part...)
	}
	none(f, "cancel again", f.cancelDeleted(10))
	for _, c := range append(open, lost) {
		c = f.wantState(c.ID, store.Canceled, store.EndpointDeleted)
		f.check(c.FinishedAt == f.now && c.DueAt == 0 && c.LaneID == canceled[0].LaneID, "canceled: %+v", c)
	}
	f.wantAttempts(lost.ID, store.ClassCrashed)
	won := f.win(f.failed(failing))
	f.check(won.State == store.Canceled && won.Reason == store.EndpointDeleted, "the one in flight ended %+v",
		won)
	f.wantState(busy.ID, store.Canceled, store.EndpointDeleted)
	f.win(f.succeeded(succeeding))
	f.wantState(lucky.ID, store.Succeeded, "")
	f.wantState(other.ID, store.Scheduled, "")
	// Nothing brings what has ended back to life, for it would be held for ever.
	f.fails(store.ErrEndpointDeleted, "retry", f.tryRetry(project, dead.ID))
	f.fails(store.ErrEndpointDeleted, "reschedule", f.tryReschedule(project, dead.ID))
	f.wantCounts(states{store.Scheduled: 1, store.Canceled: 9})
}

// testEndpointDeleteLate has callbacks come to an endpoint that was deleted already: they are found, and then
// its secrets go.
func testEndpointDeleteLate(f *fixture) {
	e := f.endpoint()
	f.addSecret(e.ID, "hmac", 0)
	f.deleteEndpoint(e.ID)
	step := func(canceled, secrets int) {
		same(f, "canceled", canceled, len(f.cancelDeleted(100)))
		same(f, "secrets", secrets, len(must(f.OwnedSecrets(f.ctx(), project, e.ID, f.now))))
	}
	early := f.draft(to(e))
	f.now += 1000
	step(0, 1)
	late := f.accept(to(e))
	f.acceptAll(early)
	step(0, 1) // they stay until the last that they may have to sign
	f.now += hour
	same(f, "canceled", 2, len(f.cancelDeleted(100)))
	f.wantState(late.ID, store.Canceled, store.EndpointDeleted)
	step(0, 0)
}

func testEndpointHealth(f *fixture) {
	e, quiet := f.endpoint(), f.endpoint()
	at := func(n int64) int64 { return start + n }
	// report reports times, and wants failing since, last success and last failure then; zero is none.
	report := func(succeeded, failed, first int64, failing, success, failure int64) {
		orNone := func(n int64) int64 {
			if n == 0 {
				return 0
			}
			return at(n)
		}
		f.ok(f.ReportHealth(f.ctx(), []store.EndpointHealth{
			{ID: f.id(), FailedAt: f.now},
			{ID: e.ID, SucceededAt: orNone(succeeded), FailedAt: orNone(failed), FailedFirst: orNone(first)},
		}, f.now))
		got := f.getEndpoint(e.ID)
		same(f, "failing since, last success and last failure",
			[3]int64{orNone(failing), orNone(success), orNone(failure)},
			[3]int64{got.FailingSince, got.LastSuccessAt, got.LastFailureAt})
		same(f, "version", e.Version, got.Version)
	}
	report(5, 0, 0, 0, 5, 0)
	// What failed before it succeeded says nothing, however late it is told.
	report(0, 4, 3, 0, 5, 4)
	report(0, 20, 10, 10, 5, 20)
	report(7, 30, 8, 8, 7, 30) // another process saw earlier ones
	f.wantEvents()

	alerts := func(failingBefore, alertedBefore int64, want int) {
		same(f, "alerts", want, len(must(f.TakeAlerts(f.ctx(), failingBefore, alertedBefore, f.now, 10))))
	}
	alerts(at(8), f.now-1, 0)
	f.now += 100
	alerts(f.now, f.now-50, 1)
	alerts(f.now, f.now-50, 0)
	f.now += 100
	alerts(f.now, f.now-50, 1)
	events := []store.EndpointEvent{
		event(e, store.EndpointFailing, at(100), at(8)), event(e, store.EndpointFailing, at(200), at(8)),
	}
	f.wantEvents(events...)
	f.now = start

	report(40, 35, 31, 0, 40, 35)
	events = append(events, event(e, store.EndpointRecovered, start, at(8)))
	f.wantEvents(events...)
	report(50, 60, 55, 55, 50, 60) // it fails again, after a success of the same report
	report(61, 0, 0, 0, 61, 60)    // and recovers before that was reported
	f.wantEvents(events...)
	report(0, 63, 62, 62, 61, 63)
	same(f, "those that fail", []string{e.ID},
		endpointIDs(must(f.Endpoints(f.ctx(), project, store.EndpointFilter{Failing: true, Limit: 10}))))
	same(f, "last failure of another one", 0, f.getEndpoint(quiet.ID).LastFailureAt)
}

// testFollows moves endpoints: what is open goes where its endpoint is, at its next attempt, and what has
// ended says where it went.
func testFollows(f *fixture) {
	e := f.endpoint()
	const first, second, third = "https://shop.example/hook", "https://second.example", "https://third.example"
	fresh, moved := f.accept(to(e)), f.accept(to(e))
	fixed := f.accept(to(e), with(func(c *store.Callback) { c.Follows = false }))
	check := func(what string, c store.Callback, url string, follows bool) {
		f.check(c.URL == url && c.Follows == follows && c.EndpointID == e.ID,
			"%s: %q, follows %t; want %q", what, c.URL, c.Follows, url)
	}
	check("stamped", f.claim(fresh.ID).Callback, first, true)
	f.moveEndpoint(e.ID, second)
	check("in flight", f.get(fresh.ID), second, true)
	check("fixed", f.get(fixed.ID), first, false)
	s := f.claim(moved.ID)
	check("stamped after the move", s.Callback, second, true)
	check("stamped though it does not follow", f.claim(fixed.ID).Callback, first, false)
	r := f.succeeded(s)
	r.Attempt.URL = second + "/really"
	f.win(r)
	f.moveEndpoint(e.ID, third)
	check("ended", f.get(moved.ID), second, true)
	same(f, "address of the attempt", r.Attempt.URL, f.wantAttempts(moved.ID, store.ClassOK)[0].URL)
	same(f, "list", []string{moved.ID},
		f.list(store.Filter{EndpointID: e.ID, States: []store.State{store.Succeeded}}))
	// A retry by hand goes to the endpoint, or with an address of its own nowhere else any more.
	f.retry(moved.ID, store.Once)
	check("retried", f.get(moved.ID), third, true)
	f.succeed(moved.ID)
	c := must(f.retryAt(moved.ID, first))
	check("retried elsewhere", c, first, false)
	same(f, "its lane", e.LaneKey(), c.Lane)
	check("stamped elsewhere", f.claim(moved.ID).Callback, first, false)
}
