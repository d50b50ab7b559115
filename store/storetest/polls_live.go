package storetest

import (
	"errors"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// replayOf checks that a draft became the open poll of its reference and address.
func (f *fixture) replayOf(p store.Callback, a store.Accepted) {
	f.Helper()
	if a.Err != nil || !a.Replayed || a.Callback.ID != p.ID {
		f.Errorf("accepted %s, replayed %v, %v; want %s", a.Callback.ID, a.Replayed, a.Err, p.ID)
	}
}

// testPollLive: of a reference and an address one poll is open, whoever asks for more.
func testPollLive(f *fixture) {
	p := f.accept(polling("r"))
	again := f.acceptAll(f.draft(polling("r")))[0]
	f.replayOf(p, again)
	same(f, "the open one", f.get(p.ID), again.Callback)
	elsewhere := func(d *store.Draft) { polling("r")(d); d.Callback.URL += "/v2" }
	theirs := func(d *store.Draft) { polling("r")(d); d.Callback.Project = "other" }
	group := f.acceptAll(f.draft(polling("g")), f.draft(polling("r")), f.draft(polling("g")), f.draft(elsewhere), f.draft(theirs), f.draft(polling("g")))
	for i, want := range []string{0: group[0].Callback.ID, 1: p.ID, 2: group[0].Callback.ID, 5: group[0].Callback.ID} {
		if a := group[i]; want != "" && (a.Err != nil || a.Callback.ID != want || a.Replayed != (i > 0)) {
			f.Errorf("draft %d of a group: %s, replayed %v, %v", i, a.Callback.ID, a.Replayed, a.Err)
		}
	}
	for _, i := range []int{3, 4} {
		if group[i].Err != nil || group[i].Replayed {
			f.Errorf("draft %d of a group: %+v", i, group[i])
		}
	}
	// Wherever an endpoint is, polls of it are of one address.
	e := f.endpoint(nil)
	at := func(d *store.Draft) { polling("r")(d); to(e)(d) }
	followed := f.accept(at)
	e = f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL = "https://new.example" })
	f.replayOf(followed, f.acceptAll(f.draft(at))[0])
	same(f, "counted", 4, f.counts().States[store.Scheduled])
	f.win(f.solved(f.claim(p.ID)))
	next := f.acceptAll(f.draft(polling("r")))[0]
	if next.Err != nil || next.Replayed {
		f.Errorf("after the end of the first: %+v", next)
	}
	f.cancel(next.Callback.ID)
	if last := f.acceptAll(f.draft(polling("r")))[0]; last.Err != nil || last.Replayed {
		f.Errorf("after the end of the second: %+v", last)
	}
}

// testPollLiveCrowd: many that ask for the same poll at once, and end it, get one at a time.
func testPollLiveCrowd(f *fixture) {
	const crowd, each = 12, 8
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := make(map[string]int)
	first := make(map[string]bool)
	for range crowd {
		wg.Go(func() {
			accepted, err := f.Accept(f.ctx(), []store.Draft{f.draft(polling("once")), f.draft(polling("once"))})
			if err != nil || accepted[0].Err != nil || accepted[1].Err != nil || accepted[0].Callback.ID != accepted[1].Callback.ID {
				f.Errorf("accept: %v, %+v", err, accepted)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, a := range accepted {
				first[a.Callback.ID] = true
				if !a.Replayed {
					fresh["once"]++
				}
			}
		})
		wg.Go(func() {
			for range each {
				accepted, err := f.Accept(f.ctx(), []store.Draft{f.draft(polling("often"))})
				if err == nil {
					err = accepted[0].Err
				}
				if errors.Is(err, store.ErrUnavailable) {
					continue // it ended again and again while this one looked
				}
				if err != nil {
					f.Errorf("accept: %v", err)
					return
				}
				if accepted[0].Replayed {
					continue
				}
				if _, err := f.Cancel(f.ctx(), project, accepted[0].Callback.ID, f.now, actor); err != nil {
					f.Errorf("cancel: %v", err)
				}
				mu.Lock()
				fresh["often"]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(first) != 1 || fresh["once"] != 1 {
		f.Errorf("%d polls, %d fresh", len(first), fresh["once"])
	}
	if n := len(f.results("often")); n != fresh["often"] || n == 0 {
		f.Errorf("%d results of %d polls", n, fresh["often"])
	}
}

// testPollReopened: what would open a second poll of the same reference and address is refused, and changes nothing.
func testPollReopened(f *fixture) {
	old := f.accept(polling("r"))
	f.win(f.died(f.claim(old.ID)))
	f.now += 1000
	open := f.accept(polling("r"))
	other := f.accept(func(d *store.Draft) { polling("r")(d); d.Callback.URL += "/v2" })
	f.claim(other.ID) // a claim that ends without a result
	f.now += claimLasts
	before := []store.Callback{f.get(old.ID), f.get(open.ID), f.get(other.ID)}
	refused := func(what string, err error) {
		f.Helper()
		f.fails(store.ErrPollLive, what, err)
		same(f, "after "+what, before, []store.Callback{f.get(old.ID), f.get(open.ID), f.get(other.ID)})
		none(f, "attempts after "+what, f.attempts(other.ID))
	}
	for _, ladder := range []store.Ladder{store.Once, store.Restart} {
		_, err := f.Retry(f.ctx(), project, old.ID, store.Retry{Ladder: ladder, Now: f.now}, actor)
		refused("retry "+string(ladder), err)
	}
	_, err := f.Reschedule(f.ctx(), project, old.ID, f.now+5, f.now, actor)
	refused("reschedule", err)
	_, err = f.Mend(f.ctx(), project, other.ID, func(c *store.Callback) error {
		c.URL, c.Headers = open.URL, []store.Header{{Name: "A", Value: "1"}}
		return nil
	}, f.now, actor)
	refused("mend", err)
	_, err = f.Retry(f.ctx(), project, other.ID, store.Retry{Ladder: store.Once, URL: open.URL, Now: f.now}, actor)
	refused("retry to its address", err)
	f.checkCounters()

	// Elsewhere it may be; what is mended elsewhere makes room.
	f.mend(open.ID, func(c *store.Callback) { c.URL += "/v3" })
	f.retry(old.ID, store.Restart)
	f.replayOf(old, f.acceptAll(f.draft(polling("r")))[0])
	f.replayOf(open, f.acceptAll(f.draft(func(d *store.Draft) { polling("r")(d); d.Callback.URL += "/v3" }))[0])
	f.cancel(old.ID)

	// Of many that are to be opened again one is, and the others are left as they were.
	twins := f.twins(3)
	r := f.redrive(store.Redrive{
		Action: store.RedriveRetry, Ladder: store.Restart, Filter: store.Filter{Ref: "twin"},
	})
	for r.Open() {
		r = must(f.StepRedrive(f.ctx(), r.ID, 10, f.now)).Redrive
	}
	if r.Done != 1 || r.Failed != 2 {
		f.Errorf("redriven: %+v", r)
	}
	f.wantState(f.get(twins[0]), store.Scheduled, "")
	f.wantState(f.get(twins[1]), store.Dead, store.Exhausted)
	f.checkCounters()
	f.cancel(twins[0])

	// And where many do so at once.
	twins = f.twins(8)
	for range 8 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var opened []string
		for _, id := range twins {
			wg.Go(func() {
				_, err := f.Retry(f.ctx(), project, id, store.Retry{Ladder: store.Once, Now: f.now}, actor)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					opened = append(opened, id)
				case !errors.Is(err, store.ErrPollLive):
					f.Errorf("retry: %v", err)
				}
			})
		}
		wg.Wait()
		if len(opened) != 1 {
			f.Fatalf("%d were opened", len(opened))
		}
		f.cancel(opened[0])
	}
}

// twins are dead polls of one reference and address, the oldest first.
func (f *fixture) twins(n int) (ids []string) {
	f.Helper()
	for range n {
		ids = append(ids, f.dead(func(d *store.Draft) { polling("twin")(d); d.Poll.OnResult = nil }).ID)
	}
	return ids
}

// testPollIdempotency: a key of a request that became an open poll is that poll's.
func testPollIdempotency(f *fixture) {
	both := func(key, fingerprint string) store.Draft {
		return f.draft(func(d *store.Draft) { polling("r")(d); keyed(key, fingerprint)(d) })
	}
	// Keys of other callbacks stay theirs.
	elsewhere := func(d *store.Draft) { keyed("k", "one")(d); d.Callback.Project = "other" }
	otherKey, otherProject := f.accept(keyed("own", "one")), f.accept(elsewhere)
	p := f.accept(polling("r"))
	for range 2 {
		f.replayOf(p, f.acceptAll(both("k", "one"))[0])
	}
	if a := f.acceptAll(both("k", "two"))[0]; !errors.Is(a.Err, store.ErrIdempotencyMismatch) {
		f.Errorf("another request with the key: %+v", a)
	}
	for i, a := range f.acceptAll(both("k2", "one"), both("k2", "one"), both("k3", "one"), f.draft(polling("r")), both("k3", "one")) {
		f.Logf("draft %d of a group", i)
		f.replayOf(p, a)
	}
	f.win(f.solved(f.claim(p.ID)))
	for _, key := range []string{"k", "k2", "k3"} {
		f.replayOf(p, f.acceptAll(both(key, "one"))[0])
	}
	next := f.acceptAll(both("k4", "one"), both("k5", "one"), both("k4", "one"), both("k4", "two"))
	if next[0].Err != nil || next[0].Replayed || !errors.Is(next[3].Err, store.ErrIdempotencyMismatch) {
		f.Errorf("after its end: %+v", next)
	}
	f.replayOf(next[0].Callback, next[1])
	f.replayOf(next[0].Callback, next[2])
	f.replayOf(otherKey, f.acceptAll(f.draft(keyed("own", "one")))[0])
	f.replayOf(otherProject, f.acceptAll(f.draft(elsewhere))[0])
}

// testPollResult: a result callback goes where and when its poll said, and supersedes what it may.
func testPollResult(f *fixture) {
	e := f.endpoint(nil)
	p := f.accept(func(d *store.Draft) {
		polling("later")(d)
		r := d.Poll.OnResult
		c := &r.Callback
		c.EndpointID, c.Follows, c.URL, c.Lane, c.LockKey, c.Strict = e.ID, true, e.URL, e.LaneKey(), "k", true
		r.Delay, r.ExpiresIn = 5000, 60_000
	})
	e = f.patchEndpoint(e.ID, func(e *store.Endpoint) { e.URL = "https://new.example" })
	f.win(f.solved(f.claim(p.ID)))
	c := f.told(p.ID, 1, endOfPoll{
		outcome: store.PollSuccess, reason: store.PollSucceeded, status: 200, body: `{"paid":true}`, polls: 1, observed: f.now,
	})
	due := f.now + 5000
	if c.DueAt != due || c.FirstDueAt != due || c.ExpiresAt != due+60_000 || c.LaneID != e.LaneID || !c.Strict || c.URL != e.URL {
		f.Errorf("the result: %+v", c)
	}
	f.now = due
	if s := f.claim(c.ID); s.URL != e.URL || len(s.Body) == 0 {
		f.Errorf("claimed: %+v", s)
	}

	// Whoever was to be told has gone meanwhile.
	gone := f.endpoint(nil)
	orphan := f.accept(func(d *store.Draft) {
		polling("orphan")(d)
		c := &d.Poll.OnResult.Callback
		c.EndpointID, c.Follows, c.URL, c.Lane = gone.ID, true, gone.URL, gone.LaneKey()
	})
	must(f.DeleteEndpoint(f.ctx(), project, gone.ID, f.now, actor))
	f.win(f.solved(f.claim(orphan.ID)))
	if c := f.get(f.pollDetail(orphan.ID).ResultID); c.State != store.Canceled || c.Reason != store.EndpointDeleted || c.FinishedAt != f.now {
		f.Errorf("the result for a deleted endpoint: %+v", c)
	}
	none(f, "it was born", f.bornNow())

	superseding := func(ref string, version int64) func(*store.Draft) {
		return func(d *store.Draft) {
			polling(ref)(d)
			d.Poll.OnResult.Supersede, d.Poll.OnResult.Callback.Version = true, &version
			d.Poll.OnResult.Callback.Ref, d.Poll.OnResult.Callback.Topic = "s", "state"
		}
	}
	version := int64(1)
	older := f.accept(func(d *store.Draft) { d.Callback.Ref, d.Callback.Topic, d.Callback.Version = "s", "state", &version })
	// A poll that is superseded so has ended, too, and is told.
	poll := f.accept(func(d *store.Draft) {
		polling("told in turn")(d)
		d.Callback.Ref, d.Callback.Topic, d.Callback.Version = "s", "state", &version
	})
	newer := f.accept(superseding("newer", 2))
	f.now++
	f.win(f.solved(f.claim(newer.ID)))
	f.wantState(f.get(older.ID), store.Canceled, store.Superseded)
	f.wantState(f.get(poll.ID), store.Canceled, store.Superseded)
	if got := len(f.bornNow()); got != 2 || len(f.results("told in turn")) != 1 {
		f.Errorf("%d were born, %d tell of the poll that was superseded", got, len(f.results("told in turn")))
	}
	late := f.accept(superseding("late", 1))
	f.cancel(late.ID)
	f.wantState(f.get(f.pollDetail(late.ID).ResultID), store.Canceled, store.Superseded)
	none(f, "what has ended at once was born", f.bornNow())
	f.fold()
	events, _ := f.outcomes(store.OutcomeCursor{}, 100)
	if len(events) != 8 {
		f.Errorf("in the feed: %+v", events)
	}
}
