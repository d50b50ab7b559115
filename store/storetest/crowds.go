package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testStrictCrowd runs several dispatchers on strict callbacks. The callbacks of a lock key must end in the
// order of their accepts, one at a time, although each commit reports only the next one.
func testStrictCrowd(f *fixture) {
	const keys, each = 3, 8
	var all []store.Callback
	for i := range keys * each {
		all = append(all, f.accept(strictly(string(rune('a'+i%keys)))))
	}
	todo := make(chan string, 10*len(all))
	for i := range all {
		todo <- all[len(all)-1-i].ID
	}
	ctx, cancel := context.WithTimeout(f.ctx(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	order := make(map[string][]string)
	ended := 0
	attempt := func(id string) {
		stamped, _ := f.stamp(id)
		if len(stamped) == 0 {
			return // refused; the commit of the callback before it returns it as Next
		}
		s := stamped[0]
		mu.Lock()
		order[s.LockKey] = append(order[s.LockKey], id)
		mu.Unlock()
		won := f.win(f.succeeded(s))
		if won.Next != nil {
			todo <- won.Next.ID
		}
		mu.Lock()
		defer mu.Unlock()
		ended++
		if ended == len(all) {
			cancel()
		}
	}
	crowd(f, 4, func(int) (_ error) {
		for {
			select {
			case id := <-todo:
				attempt(id)
			case <-ctx.Done():
				return
			}
		}
	})
	f.require(ended == len(all), "%d of %d callbacks have ended", ended, len(all))
	for key, ids := range order {
		f.check(slices.IsSorted(ids) && len(ids) == each, "key %s was attempted in the order %v", key, ids)
	}
}

// testSupersedeCrowd accepts versions of a few references concurrently. At the end, only the highest version
// of each reference must be open.
func testSupersedeCrowd(f *fixture) {
	const callers, each, refs = 8, 25, 3
	var all []store.Callback
	highest, removed := make(map[string]int64), make(map[string]int)
	for _, accepted := range crowd(f, callers, func(i int) (all []store.Accepted) {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		for range each {
			drafts := make([]store.Draft, 1+random.IntN(4))
			for n := range drafts {
				drafts[n] = f.draft(versioned(fmt.Sprint("ref-", random.IntN(refs)), random.Int64N(100)))
			}
			all = append(all, f.acceptAll(drafts...)...)
		}
		return all
	}) {
		for _, a := range accepted {
			f.ok(a.Err)
			c := a.Callback
			all = append(all, c)
			highest[c.Ref] = max(highest[c.Ref], *c.Version)
			for _, r := range a.Superseded {
				removed[r.ID]++
			}
		}
	}
	var open int64
	for _, c := range all {
		want, reports := store.Canceled, 0
		switch {
		case *c.Version == highest[c.Ref]:
			want = store.Scheduled
			open++
		case c.State == store.Scheduled:
			reports = 1 // it was open, so the accept that superseded it must report it once
		}
		version := fmt.Sprintf("version %d of %s (highest %d)", *c.Version, c.Ref, highest[c.Ref])
		same(f, "state of "+version, want, f.get(c.ID).State)
		same(f, "number of reports of the end of "+version, reports, removed[c.ID])
	}
	f.wantOpen(open)
}

// testLanePauseCrowd pauses and resumes a project while lanes are created. A reader that follows the versions
// must know the final pause of each lane.
func testLanePauseCrowd(f *fixture) {
	const makers, each = 4, 15
	known, since := make(map[string]int64), int64(0)
	pause := func(until int64) {
		must(f.SetProjectPause(f.ctx(), project, until, "", f.now, actor))
		for _, l := range must(f.Lanes(f.ctx(), since, 1000)) {
			f.check(l.Version > since, "version %d after %d", l.Version, since)
			known[l.Key], since = l.PausedUntil, l.Version
		}
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
		f.check(known[key] == store.Forever, "the changes do not include the pause of %s", key)
	}
}

// testActivityCrowd adds more rows than one transaction takes, concurrently, each writer in another order.
func testActivityCrowd(f *fixture) {
	const writers, lanes = 4, 2300
	at := store.Hour.Begin(f.now)
	crowd(f, writers, func(w int) (_ error) {
		var rows []store.Activity
		for i := range lanes {
			lane := int64(1 + (i*(w+1))%lanes) // another order for each writer
			rows = append(rows, store.Activity{
				Project: project, LaneID: lane, Span: store.Hour, At: at, Accepted: 1, Dead: lane,
			})
		}
		f.ok(f.AddActivity(f.ctx(), rows))
		return nil
	})
	var accepted int64
	for from := int64(1); from <= lanes; from += 500 {
		ids := make([]int64, 500)
		for i := range ids {
			ids[i] = from + int64(i)
		}
		for _, a := range must(f.LaneActivity(f.ctx(), project, ids, at)) {
			accepted += a.Accepted
			f.check(a.Dead == a.Accepted*a.LaneID, "activity of lane %d: %+v", a.LaneID, a)
		}
	}
	same(f, "accepted in all lanes", writers*lanes, accepted)
}
