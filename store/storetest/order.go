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

// testStrictCrowd lets several dispatchers take whatever they are given: callbacks of a key end in the order
// of their accepts, one at a time, though each of them is told only of the next.
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
			return // the end of the one before it yields it
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
		if ended++; ended == len(all) {
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
	f.require(ended == len(all), "%d of %d have ended", ended, len(all))
	for key, ids := range order {
		f.check(slices.IsSorted(ids) && len(ids) == each, "key %s was attempted in the order %v", key, ids)
	}
}

// testSupersedeCrowd accepts versions of a few references from many sides at once: in the end the highest of
// each is open, and all others are not.
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
		want, told := store.Canceled, 0
		switch {
		case *c.Version == highest[c.Ref]:
			want = store.Scheduled
			open++
		case c.State == store.Scheduled:
			told = 1 // open when it was accepted: the one that superseded it takes it from the index
		}
		same(f, fmt.Sprintf("version %d of %s, of which %d is the highest", *c.Version, c.Ref, highest[c.Ref]),
			want,
			f.get(c.ID).State)
		same(f, fmt.Sprintf("times that the end of version %d of %s was answered", *c.Version, c.Ref), told,
			removed[c.ID])
	}
	f.wantOpen(open)
}
