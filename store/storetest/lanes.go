package storetest

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) laneByKey(key string) store.Lane {
	return must(f.LaneByKey(f.ctx(), project, key))
}

func (f *fixture) pauseLane(key string, until int64, reason string) store.Lane {
	return must(f.PauseLane(f.ctx(), project, key, until, reason, f.now, actor))
}

func (f *fixture) setLane(key string, limit *int, rate *store.Rate) store.Lane {
	return must(f.SetLane(f.ctx(), project, key, limit, rate, f.now, actor))
}

func testLaneSettings(f *fixture) {
	c := f.accept(func(d *store.Draft) { d.Callback.Lane = "shop-7" })
	want := store.Lane{ID: c.LaneID, Project: project, Key: "shop-7"}
	check := func(what string, got store.Lane) {
		f.Helper()
		if got.Version != want.Version && got.Version <= want.Version {
			f.Errorf("%s: version %d after %d", what, got.Version, want.Version)
		}
		want.Version = got.Version
		same(f, what, []store.Lane{want, want}, []store.Lane{got, f.laneByKey("shop-7")})
	}
	check("untouched", f.laneByKey("shop-7"))
	limit, rate := 7, store.Rate{Count: 50, Per: time.Second}
	want.Limit = limit
	check("limit", f.setLane("shop-7", &limit, nil))
	want.Rate = rate
	check("rate", f.setLane("shop-7", nil, &rate))
	want.OwnPause, want.PausedUntil, want.PauseReason = f.now+1000, f.now+1000, "maintenance"
	want.OwnPausedAt = f.now
	check("pause", f.pauseLane("shop-7", f.now+1000, "maintenance"))
	before := f.laneByKey("shop-7").Version
	check("pause again", f.pauseLane("shop-7", f.now+1000, "maintenance"))
	if want.Version != before {
		f.Error("what changes nothing got a version")
	}
	f.now += 400
	want.OwnPause, want.PausedUntil = f.now+1000, f.now+1000
	check("pause for longer", f.pauseLane("shop-7", f.now+1000, "maintenance"))
	f.now += 1000
	want.OwnPause, want.PausedUntil, want.OwnPausedAt = f.now+1000, f.now+1000, f.now
	check("pause after it had run out", f.pauseLane("shop-7", f.now+1000, "maintenance"))
	want.OwnPause, want.PausedUntil, want.OwnPausedAt, want.PauseReason = 0, 0, 0, ""
	check("resume", f.pauseLane("shop-7", 0, "ignored"))
	limit, rate = 0, store.Rate{}
	want.Limit, want.Rate = 0, store.Rate{}
	check("no bounds", f.setLane("shop-7", &limit, &rate))

	made := f.pauseLane("made by hand", store.Forever, "")
	if made.ID == 0 || made.PausedUntil != store.Forever || made.Version == 0 {
		f.Errorf("a lane made by its pause: %+v", made)
	}
	if c := f.accept(func(d *store.Draft) { d.Callback.Lane = "made by hand" }); c.LaneID != made.ID {
		f.Errorf("lane %d, want %d", c.LaneID, made.ID)
	}
	f.fails(store.ErrNotFound, "lane of another project", errOf(f.LaneByKey(f.ctx(), "other", "shop-7")))
	f.wantAudit("lane.pause made by hand", "lane.limits shop-7", "lane.resume shop-7",
		"lane.pause shop-7", "lane.pause shop-7", "lane.pause shop-7",
		"lane.limits shop-7", "lane.limits shop-7")
}

// wantAudit compares the newest entries of the audit, each its action and object.
func (f *fixture) wantAudit(want ...string) {
	f.Helper()
	entries := must(f.AuditEntries(f.ctx(), project, "", len(want)))
	var got []string
	for _, e := range entries {
		got = append(got, e.Action+" "+e.Object)
		if e.Actor != actor.Name || e.Reason != actor.Reason {
			f.Errorf("audit of %s: %+v", e.Action, e)
		}
	}
	same(f, "audit", want, got)
}

func testLanesChanged(f *fixture) {
	var want []store.Lane
	for i := range 5 {
		key := fmt.Sprint("lane-", i)
		f.accept(func(d *store.Draft) { d.Callback.Lane = key })
		if i > 0 {
			want = append(want, f.setLane(key, &i, nil))
		}
	}
	// The one that is changed again comes last.
	want = append(want[1:], f.pauseLane("lane-1", f.now, "x"))
	check := func(since int64, limit int, want []store.Lane) {
		f.Helper()
		same(f, fmt.Sprint("lanes since ", since), want, must(f.Lanes(f.ctx(), since, limit)))
	}
	check(0, 10, want)
	check(0, 2, want[:2])
	check(want[1].Version, 10, want[2:])
	check(want[3].Version, 10, nil)
}

// testLaneOfEndpoint: the bounds of an endpoint's lane are the endpoint's, and of all that hold it the last counts.
func testLaneOfEndpoint(f *fixture) {
	e := f.endpoint(func(e *store.Endpoint) { e.Rate, e.Concurrency = store.Rate{Count: 5, Per: time.Minute}, 3 })
	key := e.LaneKey()
	l := f.laneByKey(key)
	if l.ID != e.LaneID || l.EndpointID != e.ID || l.Limit != 3 || l.Rate != e.Rate || l.Version == 0 || l.PausedUntil != 0 {
		f.Errorf("lane of an endpoint: %+v", l)
	}
	limit := 9
	f.setLane(key, &limit, nil)
	if got := f.getEndpoint(e.ID); got.Concurrency != 9 || got.Rate != e.Rate || got.Version <= e.Version {
		f.Errorf("bounds of the lane did not reach its endpoint: %+v", got)
	}
	check := func(what string, until int64, reason string) {
		f.Helper()
		if l := f.laneByKey(key); l.PausedUntil != until || l.PauseReason != reason {
			f.Errorf("%s: held until %d, %q; want %d, %q", what, l.PausedUntil, l.PauseReason, until, reason)
		}
	}
	// since checks since when its own pause, its endpoint's and its project's last.
	since := func(what string, want ...int64) {
		f.Helper()
		l := f.laneByKey(key)
		same(f, what+": since", want, []int64{l.OwnPausedAt, l.EndpointPausedAt, l.ProjectPausedAt})
	}
	start := f.now
	since("at first", 0, 0, 0)
	f.pauseLane(key, f.now+1000, "own")
	check("own", f.now+1000, "own")
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil, e.PauseReason = f.now+2000, "endpoint" })
	check("endpoint", f.now+2000, "endpoint")
	f.pauseProject(f.now+3000, "project")
	check("project", f.now+3000, "project")
	since("all three paused", start, start, start)
	f.now += 10
	f.pauseProject(start+3000, "still")
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil = start + 2100 })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil = start + 2000 })
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name = "renamed" })
	since("pauses that were moved", start, start, start)
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Enabled, e.DisabledReason = false, "gone" })
	check("disabled", store.Forever, "gone")
	since("disabled", start, f.now, start)
	same(f, "disabled at", f.now, f.getEndpoint(e.ID).DisabledAt)
	f.now += 10
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Name = "renamed again" })
	since("disabled and renamed", start, f.now-10, start)
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.Enabled, e.DisabledReason = true, "" })
	f.pauseProject(0, "")
	check("project resumed", start+2000, "endpoint")
	since("project resumed", start, start, 0)
	same(f, "disabled at, once enabled", 0, f.getEndpoint(e.ID).DisabledAt)
	f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.PausedUntil, e.PauseReason = 0, "" })
	check("endpoint resumed", start+1000, "own")
	since("endpoint resumed", start, 0, 0)
	f.pauseLane(key, 0, "")
	check("resumed", 0, "")
}

func testLaneList(f *fixture) {
	for i := range 7 {
		for n := range i {
			f.accept(func(d *store.Draft) {
				d.Callback.Lane = fmt.Sprint("Lane-", i)
				d.Callback.DueAt += int64(1000*i + n)
			})
		}
		if i%3 == 1 {
			f.ok(f.Fold(f.ctx(), f.now))
		}
	}
	ended := f.accept(func(d *store.Draft) { d.Callback.Lane = "Lane-3" })
	f.cancel(ended.ID)
	f.pauseLane("Lane-5", f.now+1, "")
	f.accept(func(d *store.Draft) { d.Callback.Lane, d.Callback.Project = "Lane-4", "other" })
	e := f.endpoint(nil)
	list := func(filter store.LaneFilter) (keys []string) {
		f.Helper()
		filter.Now = f.now
		if filter.Limit == 0 {
			filter.Limit = 100
		}
		lanes := must(f.LaneList(f.ctx(), project, filter))
		for _, l := range lanes {
			keys = append(keys, l.Key)
			var n int64
			if _, err := fmt.Sscanf(l.Key, "Lane-%d", &n); err == nil && (l.Open != n || l.OldestDue != f.now+1000*n) {
				f.Errorf("%s has %d open, due from %d on; want %d and %d", l.Key, l.Open, l.OldestDue-f.now, n, 1000*n)
			}
		}
		return keys
	}
	all := []string{"Lane-1", "Lane-2", "Lane-3", "Lane-4", "Lane-5", "Lane-6", e.LaneKey()}
	for name, tt := range map[string]struct {
		filter store.LaneFilter
		want   []string
	}{
		"all":      {store.LaneFilter{}, all},
		"a page":   {store.LaneFilter{Limit: 2}, all[:2]},
		"the next": {store.LaneFilter{After: "Lane-2", Limit: 3}, all[2:5]},
		"held":     {store.LaneFilter{Held: true}, []string{"Lane-5"}},
		"search":   {store.LaneFilter{Search: "ANE-6"}, []string{"Lane-6"}},
		"wildcard": {store.LaneFilter{Search: "%"}, nil},
		"endpoint": {store.LaneFilter{EndpointID: e.ID}, all[6:]},
		"keys":     {store.LaneFilter{Keys: []string{"Lane-6", "none", "Lane-2", "Lane-2"}}, []string{"Lane-2", "Lane-6"}},
		"a key":    {store.LaneFilter{Keys: []string{"Lane-5", "Lane-6"}, Held: true, After: "Lane-1", Search: "lane", Limit: 1}, []string{"Lane-5"}},
	} {
		same(f, name, tt.want, list(tt.filter))
	}
	lanes := must(f.LaneList(f.ctx(), project, store.LaneFilter{Limit: 100, Now: f.now, DueBy: f.now + 3000}))
	for _, l := range lanes[:6] {
		var n int64
		must(fmt.Sscanf(l.Key, "Lane-%d", &n))
		want := f.now + 1000*n
		if n > 3 {
			want = 0
		}
		if l.Open != n || l.OldestDue != want {
			f.Errorf("%s has %d open, due by then from %d on; want %d and %d", l.Key, l.Open, l.OldestDue, n, want)
		}
	}
}

// testLaneMadeInPause: a lane that comes into being while its project is paused is heard of.
func testLaneMadeInPause(f *fixture) {
	f.accept(func(d *store.Draft) { d.Callback.Lane = "before" })
	f.pauseProject(f.now+5000, "stop")
	var since int64
	lanes := func() map[string]store.Lane {
		f.Helper()
		all := must(f.Lanes(f.ctx(), since, 100))
		byKey := make(map[string]store.Lane)
		for _, l := range all {
			byKey[l.Key], since = l, l.Version
		}
		return byKey
	}
	if got := lanes(); len(got) != 1 || got["before"].PausedUntil != f.now+5000 || got["before"].PauseReason != "stop" {
		f.Errorf("lanes of a paused project: %+v", got)
	}
	f.accept(func(d *store.Draft) { d.Callback.Lane = "made" })
	f.accept(func(d *store.Draft) { d.Callback.Lane, d.Callback.Project = "made", "other" })
	e := f.endpoint(nil)
	got := lanes()
	if len(got) != 2 || got["made"].PausedUntil != f.now+5000 || got[e.LaneKey()].PausedUntil != f.now+5000 {
		f.Errorf("lanes made in a pause: %+v", got)
	}
	f.pauseProject(0, "")
	if got := lanes(); len(got) != 3 || got["made"].PausedUntil != 0 || got["before"].ProjectPause != 0 {
		f.Errorf("lanes of a project that goes on: %+v", got)
	}
	f.accept(func(d *store.Draft) { d.Callback.Lane = "after" })
	if got := lanes(); len(got) != 0 {
		f.Errorf("lanes made after a pause: %+v", got)
	}
}

// testLanesMadeWhilePaused pauses and resumes a project while lanes are made: whoever follows the versions knows of each lane in the end
// what it is.
func testLanesMadeWhilePaused(f *fixture) {
	const makers, each = 4, 15
	known := make(map[string]int64)
	var since int64
	follow := func() {
		lanes, err := f.Lanes(f.ctx(), since, 1000)
		if err != nil {
			f.Errorf("lanes: %v", err)
		}
		for _, l := range lanes {
			if l.Version <= since {
				f.Errorf("version %d after %d", l.Version, since)
			}
			known[l.Key], since = l.PausedUntil, l.Version
		}
	}
	var wg sync.WaitGroup
	made := make(chan struct{})
	for i := range makers {
		wg.Go(func() {
			for n := range each {
				if _, err := f.Accept(f.ctx(), []store.Draft{f.draft(func(d *store.Draft) { d.Callback.Lane = fmt.Sprintf("lane-%d-%d", i, n) })}); err != nil {
					f.Errorf("accept: %v", err)
				}
			}
		})
	}
	go func() { wg.Wait(); close(made) }()
	for done := false; !done; {
		for _, until := range []int64{store.Forever, 0} {
			if _, err := f.SetProjectPause(f.ctx(), project, until, "", f.now, actor); err != nil {
				f.Errorf("pause: %v", err)
			}
			follow()
		}
		select {
		case <-made:
			done = true
		default:
		}
	}
	f.pauseProject(store.Forever, "")
	follow()
	for i := range makers {
		for n := range each {
			if key := fmt.Sprintf("lane-%d-%d", i, n); known[key] != store.Forever {
				f.Errorf("nobody was told that %s is paused", key)
			}
		}
	}
}

// quotas sets those of a project.
func (f *fixture) quotas(q store.Quotas) {
	f.Helper()
	must(f.PatchProject(f.ctx(), project,
		func(p *store.Project) error { p.Quotas = q; return nil }, f.now, actor))
}

// A lane beyond the quota is not made, in whatever way it was to be; those that there are go on, and so does
// what ends.
func testLaneQuota(f *fixture) {
	in := func(lane string) func(*store.Draft) { return func(d *store.Draft) { d.Callback.Lane = lane } }
	const plain = "https://a.example:443"
	a := f.accept(in(plain))
	poll := f.accept(func(d *store.Draft) { polling("p")(d); in("b")(d) })
	f.quotas(store.Quotas{Lanes: 3})
	idempotent := func(d *store.Draft) {
		in("e")(d)
		d.Idempotency = &store.Idempotency{Route: "r", Key: "k", Fingerprint: []byte{1}}
	}
	// Of a group each has its own answer.
	got := f.acceptAll(
		f.draft(in(plain)), f.draft(in("d")), f.draft(in("c")), f.draft(in("c")), f.draft(idempotent))
	for i, full := range []bool{false, true, false, false, true} {
		if errors.Is(got[i].Err, store.ErrLaneQuota) != full || !full && got[i].Err != nil {
			f.Errorf("callback %d: %v", i, got[i].Err)
		}
	}
	f.fails(store.ErrNotFound, "what was refused", errOf(f.Get(f.ctx(), project, got[1].Callback.ID)))
	for _, lane := range []string{"d", "e"} {
		f.fails(store.ErrNotFound, "lane "+lane, errOf(f.LaneByKey(f.ctx(), project, lane)))
	}
	f.laneQuotaHolds(a)
	same(f, "lanes", 3, len(must(f.LaneList(f.ctx(), project, store.LaneFilter{Limit: 10}))))
	f.accept(func(d *store.Draft) { in("d")(d); d.Callback.Project = "other" })

	f.quotas(store.Quotas{Lanes: 1}) // which is less than there are
	f.accept(in("b"))
	f.win(f.solved(f.claim(poll.ID)))
	f.laneByKey("results") // the poll told its result in a lane that was not there before
	f.quotas(store.Quotas{Lanes: 5})
	f.accept(in("d"))
	f.fails(store.ErrLaneQuota, "one more", f.acceptAll(f.draft(idempotent))[0].Err)
	f.quotas(store.Quotas{})
	if a := f.acceptAll(f.draft(idempotent))[0]; a.Err != nil || a.Replayed {
		f.Errorf("what was refused, once more: %v, replayed %t", a.Err, a.Replayed)
	}
}

// laneQuotaHolds tries all ways to another lane but an accept. The callback is scheduled.
func (f *fixture) laneQuotaHolds(c store.Callback) {
	f.Helper()
	refused := func(what string, err error) {
		f.Helper()
		f.fails(store.ErrLaneQuota, what, err)
	}
	refused("an endpoint", errOf(f.CreateEndpoint(f.ctx(), store.Endpoint{Project: project}, actor)))
	upsert := store.EndpointUpsert{ExternalID: "x", Change: func(*store.Endpoint) error { return nil }}
	upserted := must(f.UpsertEndpoints(f.ctx(), project, []store.EndpointUpsert{upsert}, f.now, actor))
	refused("an endpoint by its external id", upserted[0].Err)
	_, err := f.SetLane(f.ctx(), project, "d", new(1), nil, f.now, actor)
	refused("the settings of a lane", err)
	move := func(c *store.Callback) error {
		c.Lane = "d"
		return nil
	}
	_, err = f.Mend(f.ctx(), project, c.ID, move, f.now, actor)
	refused("another lane by a mend", err)
	retry := store.Retry{Now: f.now, Ladder: store.Once, URL: "https://d.example/"}
	refused("another lane by a retry", errOf(f.Retry(f.ctx(), project, c.ID, retry, actor)))
	s := f.schedule("to another lane", nil)
	due := f.firing(s)
	due.Draft.Callback.Lane = "d"
	refused("a schedule that is due", f.fire(due)[0].Err)
	refused("a schedule by hand", errOf(f.RanSchedule(f.ctx(), project, s.ID, *due.Draft, f.now, actor)))
	same(f, "the schedule", s, f.getSchedule(s.ID))
	r := f.redrive(store.Redrive{
		Action: store.RedriveSetURL, URL: "https://d.example/",
		Filter: store.Filter{States: []store.State{store.Scheduled}},
	})
	if r = must(f.StepRedrive(f.ctx(), r.ID, 100, f.now)).Redrive; r.Done != 3 || r.Failed != 2 {
		f.Errorf("another lane by a redrive: %+v", r)
	}
}

// Of callbacks that are accepted at the same time no more make a lane than may.
func testLaneQuotaCrowd(f *fixture) {
	const most, crowd = 7, 24
	f.quotas(store.Quotas{Lanes: most})
	var made atomic.Int64
	var wg sync.WaitGroup
	for i := range crowd {
		d := f.draft(func(d *store.Draft) { d.Callback.Lane = fmt.Sprint("lane-", i) })
		wg.Go(func() {
			switch a, err := f.Accept(f.ctx(), []store.Draft{d}); {
			case err != nil:
				f.Error(err)
			case a[0].Err == nil:
				made.Add(1)
			case !errors.Is(a[0].Err, store.ErrLaneQuota):
				f.Error(a[0].Err)
			}
		})
	}
	wg.Wait()
	if made.Load() != most {
		f.Errorf("%d lanes were made, %d may be", made.Load(), most)
	}
}
