package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) laneByKey(key string) store.Lane { return must(f.LaneByKey(f.ctx(), project, key)) }

func (f *fixture) pauseLane(key string, until int64, reason string) store.Lane {
	return must(f.PauseLane(f.ctx(), project, key, until, reason, f.now, actor))
}

func (f *fixture) setLane(key string, limit *int, rate *store.Rate) store.Lane {
	return must(f.SetLane(f.ctx(), project, key, limit, rate, f.now, actor))
}

func testLaneSettings(f *fixture) {
	const key, why = "shop-7", "maintenance"
	want := store.Lane{ID: f.accept(inLane(key)).LaneID, Project: project, Key: key}
	check := func(what string, got store.Lane) {
		f.check(got.Version >= want.Version, "%s: version %d after %d", what, got.Version, want.Version)
		want.Version = got.Version
		both(f, what, want, got, f.laneByKey(key))
	}
	pause := func(what string) {
		want.OwnPause, want.PausedUntil, want.PauseReason = f.now+1000, f.now+1000, why
		check(what, f.pauseLane(key, f.now+1000, why))
	}
	check("untouched", f.laneByKey(key))
	want.Limit = 7
	check("limit", f.setLane(key, new(7), nil))
	want.Rate = store.Rate{Count: 50, Per: time.Second}
	check("rate", f.setLane(key, nil, &store.Rate{Count: 50, Per: time.Second}))
	want.OwnPausedAt = f.now
	pause("pause")
	before := want.Version
	pause("pause again")
	same(f, "version after what changes nothing", before, want.Version)
	f.now += 400
	pause("pause for longer")
	f.now += 1000
	want.OwnPausedAt = f.now
	pause("pause after it had run out")
	want.OwnPause, want.PausedUntil, want.OwnPausedAt, want.PauseReason = 0, 0, 0, ""
	check("resume", f.pauseLane(key, 0, "ignored"))
	want.Limit, want.Rate = 0, store.Rate{}
	check("no bounds", f.setLane(key, new(0), &store.Rate{}))

	made := f.pauseLane("made by hand", store.Forever, "")
	f.check(made.ID != 0 && made.PausedUntil == store.Forever && made.Version != 0, "made by its pause: %+v",
		made)
	same(f, "its number", made.ID, f.accept(inLane("made by hand")).LaneID)
	f.missing("lane of another project", errOf(f.LaneByKey(f.ctx(), "other", key)))
	f.wantAudit("lane.pause made by hand", "lane.limits shop-7", "lane.resume shop-7", "lane.pause shop-7",
		"lane.pause shop-7", "lane.pause shop-7", "lane.limits shop-7", "lane.limits shop-7")
}

func testLanesChanged(f *fixture) {
	var want []store.Lane
	for i := range 5 {
		key := fmt.Sprint("lane-", i)
		f.accept(inLane(key))
		if i > 0 {
			want = append(want, f.setLane(key, &i, nil))
		}
	}
	// The one that is changed again comes last.
	want = append(want[1:], f.pauseLane("lane-1", f.now, "x"))
	check := func(since int64, limit int, want []store.Lane) {
		same(f, fmt.Sprint("lanes since ", since), want, must(f.Lanes(f.ctx(), since, limit)))
	}
	check(0, 10, want)
	check(0, 2, want[:2])
	check(want[1].Version, 10, want[2:])
	check(want[3].Version, 10, nil)
}

// testLaneOfEndpoint: the bounds of an endpoint's lane are the endpoint's, and of all that hold it the last
// counts.
func testLaneOfEndpoint(f *fixture) {
	e := f.endpoint(func(e *store.Endpoint) {
		e.Rate, e.Concurrency = store.Rate{Count: 5, Per: time.Minute}, 3
	})
	key := e.LaneKey()
	l := f.laneByKey(key)
	f.check(l.ID == e.LaneID && l.EndpointID == e.ID && l.Limit == 3 && l.Rate == e.Rate && l.Version != 0 &&
		l.PausedUntil == 0, "lane of an endpoint: %+v", l)
	f.setLane(key, new(9), nil)
	got := f.getEndpoint(e.ID)
	f.check(got.Concurrency == 9 && got.Rate == e.Rate && got.Version > e.Version,
		"bounds set by its lane: %+v", got)
	check := func(what string, until int64, reason string) {
		l := f.laneByKey(key)
		f.check(l.PausedUntil == until && l.PauseReason == reason,
			"%s: held until %d, %q; want %d, %q", what, l.PausedUntil, l.PauseReason, until, reason)
	}
	// since checks since when its own pause, its endpoint's and its project's last.
	since := func(what string, want ...int64) {
		l := f.laneByKey(key)
		same(f, what+": since", want, []int64{l.OwnPausedAt, l.EndpointPausedAt, l.ProjectPausedAt})
	}
	pause := func(until int64, reason string) {
		f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil, e.PauseReason = until, reason })
	}
	rename := func(name string) { f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name = name }) }
	enable := func(enabled bool, reason string) {
		f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Enabled, e.DisabledReason = enabled, reason })
	}
	since("at first", 0, 0, 0)
	f.pauseLane(key, start+1000, "own")
	check("own", start+1000, "own")
	pause(start+2000, "endpoint")
	check("endpoint", start+2000, "endpoint")
	f.pauseProject(start+3000, "project")
	check("project", start+3000, "project")
	since("all three paused", start, start, start)
	f.now += 10
	f.pauseProject(start+3000, "still")
	pause(start+2100, "endpoint")
	pause(start+2000, "endpoint")
	rename("renamed")
	since("pauses that were moved", start, start, start)
	enable(false, "gone")
	check("disabled", store.Forever, "gone")
	since("disabled", start, f.now, start)
	same(f, "disabled at", f.now, f.getEndpoint(e.ID).DisabledAt)
	f.now += 10
	rename("renamed again")
	since("disabled and renamed", start, f.now-10, start)
	enable(true, "")
	f.pauseProject(0, "")
	check("project resumed", start+2000, "endpoint")
	since("project resumed", start, start, 0)
	same(f, "disabled at, once enabled", 0, f.getEndpoint(e.ID).DisabledAt)
	pause(0, "")
	check("endpoint resumed", start+1000, "own")
	since("endpoint resumed", start, 0, 0)
	f.pauseLane(key, 0, "")
	check("resumed", 0, "")
}

func testLaneList(f *fixture) {
	for i := range 7 {
		for n := range i {
			f.accept(inLane(fmt.Sprint("Lane-", i)), dueIn(int64(1000*i+n)))
		}
		if i%3 == 1 {
			f.fold()
		}
	}
	f.cancel(f.accept(inLane("Lane-3")).ID)
	f.pauseLane("Lane-5", f.now+1, "")
	f.accept(inLane("Lane-4"), inProject("other"))
	e := f.endpoint()
	// list reads lanes whose oldest due time is looked for up to the filter's, and checks what waits in each.
	list := func(filter store.LaneFilter) (lanes string) {
		filter.Now, filter.Limit = f.now, cmp.Or(filter.Limit, 100)
		for _, l := range must(f.LaneList(f.ctx(), project, filter)) {
			if l.Key == e.LaneKey() {
				lanes += "7"
				continue
			}
			var n int64
			must(fmt.Sscanf(l.Key, "Lane-%d", &n))
			oldest := f.now + 1000*n
			if filter.DueBy != 0 && oldest > filter.DueBy {
				oldest = 0
			}
			f.check(l.Open == n && l.OldestDue == oldest,
				"%s has %d open, due from %d on; want %d and %d", l.Key, l.Open, l.OldestDue, n, oldest)
			lanes += fmt.Sprint(n)
		}
		return lanes
	}
	// By which lanes they pick, in order: 7 is the endpoint's.
	for want, filters := range map[string][]store.LaneFilter{
		"1234567": {{}, {DueBy: f.now + 3000}},
		"12":      {{Limit: 2}},
		"345":     {{After: "Lane-2", Limit: 3}},
		"5": {
			{Held: true},
			{Keys: []string{"Lane-5", "Lane-6"}, Held: true, After: "Lane-1", Search: "lane", Limit: 1},
		},
		"6":  {{Search: "ANE-6"}},
		"7":  {{EndpointID: e.ID}},
		"26": {{Keys: []string{"Lane-6", "none", "Lane-2", "Lane-2"}}},
		"":   {{Search: "%"}},
	} {
		for _, filter := range filters {
			same(f, fmt.Sprintf("%+v", filter), want, list(filter))
		}
	}
}

// changedLanes follows the changes of lanes: each call returns those since the one before, by key, and when
// the pause of each ends.
func (f *fixture) changedLanes() func() map[string]int64 {
	var since int64
	return func() map[string]int64 {
		until := make(map[string]int64)
		for _, l := range must(f.Lanes(f.ctx(), since, 1000)) {
			f.check(l.Version > since, "version %d after %d", l.Version, since)
			until[l.Key], since = l.PausedUntil, l.Version
		}
		return until
	}
}

// testLaneMadeInPause: a lane that comes into being while its project is paused is heard of.
func testLaneMadeInPause(f *fixture) {
	changed := f.changedLanes()
	until := f.now + 5000
	f.accept(inLane("before"))
	f.pauseProject(until, "stop")
	same(f, "lanes of a paused project", map[string]int64{"before": until}, changed())
	same(f, "reason", "stop", f.laneByKey("before").PauseReason)
	f.accept(inLane("made"))
	f.accept(inLane("made"), inProject("other"))
	e := f.endpoint()
	same(f, "lanes made in a pause", map[string]int64{"made": until, e.LaneKey(): until}, changed())
	f.pauseProject(0, "")
	same(f, "lanes of a project that goes on", map[string]int64{"before": 0, "made": 0, e.LaneKey(): 0},
		changed())
	same(f, "pause by the project", 0, f.laneByKey("before").ProjectPause)
	f.accept(inLane("after"))
	same(f, "lanes made after a pause", map[string]int64{}, changed())
}

// testLanesMadeWhilePaused pauses and resumes a project while lanes are made: one that follows the versions
// knows of each lane in the end what it is.
func testLanesMadeWhilePaused(f *fixture) {
	const makers, each = 4, 15
	known, changed := make(map[string]int64), f.changedLanes()
	pause := func(until int64) {
		f.pauseProject(until, "")
		maps.Copy(known, changed())
	}
	f.during(func() {
		crowd(f, makers, func(i int) (_ error) {
			for n := range each {
				f.accept(inLane(fmt.Sprintf("lane-%d-%d", i, n)))
			}
			return nil
		})
	}, 1, func() {
		pause(store.Forever)
		pause(0)
	})
	pause(store.Forever)
	for i := range makers * each {
		key := fmt.Sprintf("lane-%d-%d", i/each, i%each)
		f.check(known[key] == store.Forever, "the pause of %s was not among the changes", key)
	}
}

// quotas sets those of a project.
func (f *fixture) quotas(q store.Quotas) {
	must(f.PatchProject(f.ctx(), project, infallible(func(p *store.Project) { p.Quotas = q }), f.now, actor))
}

// testLaneQuota: a lane beyond the quota is not made, in whatever way it was to be; those that there are go
// on, and so does what ends.
func testLaneQuota(f *fixture) {
	const plain = "https://a.example:443"
	a, poll := f.accept(inLane(plain)), f.accept(polling("p"), inLane("b"))
	f.quotas(store.Quotas{Lanes: 3})
	idempotent := together(inLane("e"), keyed("k", "one"))
	// Of a group each has its own answer.
	got := f.acceptAll(f.draft(inLane(plain)), f.draft(inLane("d")), f.draft(inLane("c")), f.draft(inLane("c")),
		f.draft(idempotent))
	for i, want := range []error{1: store.ErrLaneQuota, 4: store.ErrLaneQuota} {
		f.fails(want, fmt.Sprint("callback ", i), got[i].Err)
	}
	f.missing("what was refused", errOf(f.Get(f.ctx(), project, got[1].Callback.ID)))
	for _, lane := range []string{"d", "e"} {
		f.missing("lane "+lane, errOf(f.LaneByKey(f.ctx(), project, lane)))
	}
	f.laneQuotaHolds(a)
	same(f, "lanes", 3, len(must(f.LaneList(f.ctx(), project, store.LaneFilter{Limit: 10}))))
	f.accept(inLane("d"), inProject("other"))

	f.quotas(store.Quotas{Lanes: 1}) // which is less than there are
	f.accept(inLane("b"))
	f.solve(poll.ID)
	f.laneByKey("results") // the poll told its result in a lane that was not there before
	f.quotas(store.Quotas{Lanes: 5})
	f.accept(inLane("d"))
	f.fails(store.ErrLaneQuota, "one more", f.offer(idempotent).Err)
	f.quotas(store.Quotas{})
	f.fresh(f.offer(idempotent)) // what was refused, once more
}

// laneQuotaHolds tries all ways to another lane but an accept. The callback is scheduled.
func (f *fixture) laneQuotaHolds(c store.Callback) {
	refused := func(what string, err error) { f.fails(store.ErrLaneQuota, what, err) }
	const url = "https://d.example/"
	refused("an endpoint", errOf(f.CreateEndpoint(f.ctx(), store.Endpoint{Project: project}, actor)))
	refused("an endpoint by its external id", f.upsertAll(named("x", "x"))[0].Err)
	refused("the settings of a lane", errOf(f.SetLane(f.ctx(), project, "d", new(1), nil, f.now, actor)))
	move := infallible(func(c *store.Callback) { c.Lane = "d" })
	refused("another lane by a mend", errOf(f.tryMend(project, c.ID, move)))
	refused("another lane by a retry", errOf(f.retryAt(c.ID, url)))
	s := f.schedule("to another lane")
	due := f.firing(s)
	due.Draft.Callback.Lane = "d"
	refused("a schedule that is due", f.fire(due)[0].Err)
	refused("a schedule by hand", errOf(f.RanSchedule(f.ctx(), project, s.ID, *due.Draft, f.now, actor)))
	same(f, "the schedule", s, f.getSchedule(s.ID))
	r := f.step(f.redrive(store.Redrive{Action: store.RedriveSetURL, URL: url, Filter: scheduled}), 100).Redrive
	f.check(r.Done == 3 && r.Failed == 2, "another lane by a redrive: %+v", r)
}

// testLaneQuotaCrowd: of callbacks that are accepted at the same time no more make a lane than may.
func testLaneQuotaCrowd(f *fixture) {
	f.quotas(store.Quotas{Lanes: 7})
	made := f.winners(24, store.ErrLaneQuota,
		func(i int) error { return f.offer(inLane(fmt.Sprint("lane-", i))).Err })
	same(f, "lanes that were made", 7, len(made))
}
