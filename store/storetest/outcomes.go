package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// outcomes reads the feed to its end, in pages.
func (f *fixture) outcomes(after store.OutcomeCursor, page int) ([]store.TerminalEvent, store.OutcomeCursor) {
	var all []store.TerminalEvent
	for {
		events, next := must2(f.Outcomes(f.ctx(), project, after, page))
		f.require(len(events) <= page, "a page has %d outcomes, the limit is %d", len(events), page)
		if len(events) == 0 {
			same(f, "cursor after an empty page", after, next)
			return all, after
		}
		same(f, "cursor of the next page", events[len(events)-1].Cursor, next)
		all, after = append(all, events...), next
	}
}

// before reports whether a comes before b in the feed.
func before(a, b store.OutcomeCursor) bool {
	return cmp.Or(cmp.Compare(a.Tx, b.Tx), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Item, b.Item)) < 0
}

// testOutcomesMany ends so many callbacks at once that they fill several rows of the feed. It also purges
// them in parts.
func testOutcomesMany(f *fixture) {
	drafts := make([]store.Draft, 1500)
	for i := range drafts {
		drafts[i] = f.draft(versioned("r", int64(-i)))
	}
	f.acceptAll(drafts...)
	f.fold()
	events, end := f.outcomes(store.OutcomeCursor{}, 400)
	seen := make(map[string]bool)
	for _, e := range events {
		seen[e.ID] = true
	}
	same(f, "numbers of outcomes and callbacks", [2]int{1499, 1499}, [2]int{len(events), len(seen)})
	must2(f.PurgeOutcomes(f.ctx(), f.now, f.now, 100))
	events, _ = f.outcomes(store.OutcomeCursor{}, 400)
	same(f, "outcomes after a purge of the time before now", 1499, len(events))
	must2(f.PurgeOutcomes(f.ctx(), f.now, f.now+1, 1000))
	events, after := f.outcomes(end, 10)
	f.check(len(events) == 0 && after == end, "after a purge of all: %+v, %+v", events, after)
}

// testOutcomesCrowd ends callbacks concurrently, several times each, while two processes fold and a reader of
// the feed crashes repeatedly. The reader must see each end once, and the ends of a callback in their order.
func testOutcomesCrowd(f *fixture) {
	const writers, rounds, batch = 6, 12, 7
	var mu sync.Mutex
	want := make(map[string][]string) // the ends of each callback
	var clock atomic.Int64
	clock.Store(f.now)
	work := func() {
		crowd(f, writers, func(w int) (_ error) {
			random := rand.New(rand.NewPCG(uint64(w), 7))
			for range rounds {
				f.endMany(random, batch, &clock, func(id, as string) {
					mu.Lock()
					defer mu.Unlock()
					want[id] = append(want[id], as)
				})
			}
			return nil
		})
	}
	got := make(map[string][]string)
	keep := func(events []store.TerminalEvent) {
		for _, e := range events {
			got[e.ID] = append(got[e.ID], fmt.Sprint(e.State, e.Reason, e.AttemptCount))
		}
	}
	var kept store.OutcomeCursor // survives the crashes of the reader
	random := rand.New(rand.NewPCG(99, 7))
	f.during(func() { f.during(work, 2, func() { f.ok(f.Fold(f.ctx(), clock.Add(1))) }) }, 1, func() {
		for {
			events, next := must2(f.Outcomes(f.ctx(), project, kept, 1+random.IntN(40)))
			if random.IntN(4) == 0 {
				return // the reader crashes before it keeps the page
			}
			keep(events)
			kept = next
			if len(events) == 0 {
				return
			}
		}
	})
	rest, _ := f.outcomes(kept, 100)
	keep(rest)
	same(f, "outcomes", want, got)
}

// endMany accepts n callbacks and ends each of them, some several times. It calls ended for each end.
func (f *fixture) endMany(random *rand.Rand, n int, clock *atomic.Int64, ended func(id, as string)) {
	as := make(map[string]int)
	attempt := func(ids ...string) {
		now := clock.Add(1)
		stamped, _ := must2(f.Stamp(f.ctx(), store.Stamp{
			Token: f.token(), Now: now, Margin: margin,
			Claims: each(ids, func(id string) store.StampClaim { return store.StampClaim{ID: id} }),
		}))
		results := each(stamped, func(s *store.Stamped) store.Result {
			r := f.died(s)
			r.Attempt.StartedAt, r.Attempt.Status = now, 500+random.IntN(3)
			return r
		})
		for i, c := range must(f.Commit(f.ctx(), results, now)) {
			as[results[i].ID]++
			ended(results[i].ID, fmt.Sprint(c.State, c.Reason, as[results[i].ID]))
		}
	}
	all := ids(f.acceptEach(n)...)
	attempt(all[1:]...)
	c := must(f.Cancel(f.ctx(), project, all[0], clock.Add(1), actor))
	f.check(c.Result == store.CancelDone, "cancel: %+v", c)
	ended(all[0], fmt.Sprint(store.Canceled, store.Requested, 0))
	for _, id := range all[1 : 1+random.IntN(n-1)] {
		must(f.Retry(f.ctx(), project, id, store.Retry{Ladder: store.Once, Now: clock.Add(1)}, actor))
		attempt(id)
	}
}
