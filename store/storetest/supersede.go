package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// versioned makes drafts of a reference supersede each other.
func versioned(ref string, version int64) func(*store.Draft) {
	return func(d *store.Draft) {
		d.Supersede, d.Callback.Ref, d.Callback.Version = true, ref, &version
	}
}

func testSupersede(f *fixture) {
	waiting, lost, busy, lucky := f.accept(versioned("r", 1)), f.accept(versioned("r", 1)), f.accept(versioned("r", 1)), f.accept(versioned("r", 1))
	plain := f.accept(func(d *store.Draft) { versioned("r", 1)(d); d.Supersede = false })
	f.claim(lost.ID)
	f.now += claimLasts
	failing, succeeding := f.claim(busy.ID), f.claim(lucky.ID)
	untouched := []store.Callback{
		f.accept(func(d *store.Draft) { d.Callback.Ref = "r" }),
		f.accept(func(d *store.Draft) { versioned("r", 1)(d); d.Callback.Topic = "other topic" }),
		f.accept(versioned("other ref", 1)),
		f.accept(func(d *store.Draft) { versioned("r", 2)(d); d.Supersede = false }),
	}
	theirs := f.accept(func(d *store.Draft) { versioned("r", 1)(d); d.Callback.Project = "other" })
	want := must(f.ByID(f.ctx(), []string{waiting.ID, lost.ID, plain.ID}))
	byID := func(a, b store.OpenRow) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(want, byID)

	f.now++
	a := f.acceptAll(f.draft(versioned("r", 2)))[0]
	if a.Err != nil || a.Callback.State != store.Scheduled {
		f.Fatalf("accepted %+v", a)
	}
	slices.SortFunc(a.Superseded, byID)
	same(f, "superseded", want, a.Superseded)
	for _, c := range []store.Callback{waiting, lost, plain} {
		got := f.get(c.ID)
		f.wantState(got, store.Canceled, store.Superseded)
		if got.FinishedAt != f.now || got.DueAt != 0 {
			f.Errorf("superseded: %+v", got)
		}
	}
	if attempts := f.attempts(lost.ID); len(attempts) != 1 || attempts[0].Class != store.ClassCrashed {
		f.Errorf("attempts of the one whose claim was lost: %+v", attempts)
	}
	if got := f.get(busy.ID); got.StateAt(f.now) != store.Attempting || !got.CancelRequested || got.Reason != "" {
		f.Errorf("in flight: %+v", got)
	}
	won := f.win(f.failed(failing))
	if won.State != store.Canceled || won.Reason != store.Superseded {
		f.Errorf("the one in flight that failed: %+v", won)
	}
	f.win(f.succeeded(succeeding))
	f.wantState(f.get(lucky.ID), store.Succeeded, "")
	for _, c := range untouched {
		f.wantState(f.get(c.ID), store.Scheduled, "")
	}
	if rows, err := f.ByID(f.ctx(), []string{theirs.ID}); err != nil || len(rows) != 1 {
		f.Errorf("another project's: %v, %+v", err, rows)
	}
	// What a person cancels after it was superseded stays so.
	inFlight := f.claim(a.Callback.ID)
	f.accept(versioned("r", 3))
	f.cancel(a.Callback.ID)
	f.win(f.failed(inFlight))
	f.wantState(f.get(a.Callback.ID), store.Canceled, store.Superseded)
}

// testSupersedeCrash lets the attempt of a superseded callback never come back: no other is made.
func testSupersedeCrash(f *fixture) {
	stamped, expired := f.accept(versioned("a", 1)), f.accept(func(d *store.Draft) { versioned("b", 1)(d); d.Callback.ExpiresAt = f.now + 10 })
	f.claim(stamped.ID)
	f.claim(expired.ID)
	f.accept(versioned("a", 2))
	f.accept(versioned("b", 2))
	f.now += claimLasts
	if s, refused := f.stamp(f.token(), stamped.ID); len(s) != 0 || !refused[0].Terminal {
		f.Errorf("a superseded one is attempted again: %+v", s)
	}
	must(f.Expire(f.ctx(), f.now, 10))
	for _, id := range []string{stamped.ID, expired.ID} {
		f.wantState(f.get(id), store.Canceled, store.Superseded)
	}
}

func testSupersedeLate(f *fixture) {
	f.accept(versioned("r", 5))
	late := f.acceptAll(f.draft(versioned("r", 4)))[0]
	if late.Err != nil || late.Callback.State != store.Canceled || late.Callback.Reason != store.Superseded || late.Superseded != nil {
		f.Errorf("a late one: %+v", late)
	}
	same(f, "a late one as it is read", late.Callback, f.get(late.Callback.ID))
	if _, refused := f.stamp(f.token(), late.Callback.ID); len(refused) != 1 || !refused[0].Terminal {
		f.Errorf("a late one was stamped")
	}
	if p, err := f.Payload(f.ctx(), project, late.Callback.ID); err != nil || len(p.Body) == 0 {
		f.Errorf("its payload: %v", err)
	}
	same := f.accept(versioned("r", 5))
	f.wantState(f.get(same.ID), store.Scheduled, "")
	// In one batch the highest counts, wherever it stands; a repeated request is answered with what became of the first.
	batch := f.acceptAll(
		f.draft(versioned("r", 7)), f.draft(versioned("r", 9)), f.draft(versioned("r", 8)), f.draft(versioned("r", 9)),
		f.draft(func(d *store.Draft) { versioned("r", 6)(d); keyed("k", "one")(d) }),
	)
	for i, want := range []store.State{store.Canceled, store.Scheduled, store.Canceled, store.Scheduled, store.Canceled} {
		if batch[i].Err != nil || batch[i].Callback.State != want {
			f.Errorf("draft %d of a batch: %+v, want %s", i, batch[i], want)
		}
	}
	if n := len(batch[1].Superseded); n != 2 {
		f.Errorf("%d were superseded by the highest of the batch", n)
	}
	again := f.acceptAll(f.draft(func(d *store.Draft) { versioned("r", 6)(d); keyed("k", "one")(d) }))[0]
	if !again.Replayed || again.Callback.ID != batch[4].Callback.ID || again.Callback.Reason != store.Superseded {
		f.Errorf("repeated: %+v", again)
	}
	if counts := f.counts(); counts.States[store.Canceled] != 6 || counts.States[store.Scheduled] != 2 {
		f.Errorf("counts %+v", counts)
	}
	// The version is remembered as long as callbacks are, and longer than the callback that had it.
	f.now += 1000
	for _, before := range []int64{f.now - 1000, f.now + 1} {
		f.purge(before, before)
		want := store.Canceled
		if before > f.now {
			want = store.Scheduled
		}
		if c := f.accept(func(d *store.Draft) { versioned("r", 2)(d); d.Callback.CreatedAt -= 1000 }); c.State != want {
			f.Errorf("after a purge of what was before %d: %+v", before-f.now, c)
		}
	}
}

// testSupersedeCrowd accepts versions of a few references from many sides at once: in the end the highest of each is open, and all
// others are not.
func testSupersedeCrowd(f *fixture) {
	const callers, each, refs = 8, 25, 3
	var wg sync.WaitGroup
	var mu sync.Mutex
	highest := make(map[string]int64)
	removed := make(map[string]int)
	var all []store.Callback
	for i := range callers {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			for range each {
				drafts := make([]store.Draft, 1+random.IntN(4))
				for n := range drafts {
					drafts[n] = f.draft(versioned(fmt.Sprint("ref-", random.IntN(refs)), random.Int64N(100)))
				}
				accepted, err := f.Accept(f.ctx(), drafts)
				if err != nil {
					f.Errorf("accept: %v", err)
					return
				}
				mu.Lock()
				for _, a := range accepted {
					c := a.Callback
					if a.Err != nil {
						f.Errorf("accept: %v", a.Err)
					}
					all = append(all, c)
					highest[c.Ref] = max(highest[c.Ref], *c.Version)
					for _, r := range a.Superseded {
						removed[r.ID]++
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	open := 0
	for _, c := range all {
		got := f.get(c.ID)
		want := store.Canceled
		if *c.Version == highest[c.Ref] {
			want = store.Scheduled
			open++
		}
		if got.State != want {
			f.Errorf("version %d of %s, of which %d is the highest: %+v", *c.Version, c.Ref, highest[c.Ref], got)
		}
		told := 0 // who was open when it was accepted is taken from the index by whoever superseded it
		if c.State == store.Scheduled && want == store.Canceled {
			told = 1
		}
		if removed[c.ID] != told {
			f.Errorf("version %d of %s: %d were told that it has ended, want %d", *c.Version, c.Ref, removed[c.ID], told)
		}
	}
	same(f, "counted", int64(open), f.counts().States[store.Scheduled])
}
