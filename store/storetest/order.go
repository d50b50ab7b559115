package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// strictly makes drafts strict with a lock key.
func strictly(key string) func(*store.Draft) {
	return func(d *store.Draft) { d.Callback.LockKey, d.Callback.Strict = key, true }
}

func (f *fixture) behind(id string) {
	f.Helper()
	stamped, refused := f.stamp(f.token(), id)
	if len(stamped) != 0 || !refused[0].Behind || refused[0].Terminal || refused[0].Suspect || refused[0].Due != f.get(id).DueAt {
		f.Errorf("stamped %d, refused %+v; want it behind another", len(stamped), refused)
	}
}

func testStrictStamp(f *fixture) {
	a, b, c := f.accept(strictly("k")), f.accept(strictly("k")), f.accept(strictly("k"))
	free := f.accept(func(d *store.Draft) { d.Callback.LockKey = "k" })
	keyless := f.accept(func(d *store.Draft) { d.Callback.Strict = true })
	theirs := f.accept(func(d *store.Draft) { strictly("k")(d); d.Callback.Project = "other" })
	if !f.get(a.ID).Strict || f.get(free.ID).Strict || f.get(keyless.ID).Strict {
		f.Error("strict is not what was asked for")
	}
	f.behind(b.ID)
	// In one batch, in whatever order, the first is stamped alone. What is not strict, or is another project's, waits for nobody.
	stamped, refused := f.stamp(f.token(), c.ID, b.ID, a.ID, free.ID, keyless.ID, theirs.ID)
	var ids []string
	for _, s := range stamped {
		ids = append(ids, s.ID)
		if s.Strict != (s.ID == a.ID || s.ID == theirs.ID) || s.Strict && s.LockKey != "k" {
			f.Errorf("stamped: %+v", s.Callback)
		}
	}
	if len(ids) != 4 || !slices.Contains(ids, a.ID) || len(refused) != 2 || !refused[0].Behind || !refused[1].Behind {
		f.Fatalf("stamped %v, refused %+v", ids, refused)
	}
	f.behind(b.ID)
	first := stamped[slices.Index(ids, a.ID)]
	// A failure keeps its place; so does a claim that was lost.
	if won := f.win(f.failed(first)); won.Next != nil {
		f.Errorf("next of one that goes on: %+v", won.Next)
	}
	f.behind(b.ID)
	f.now += 1000
	f.claim(a.ID)
	f.now += claimLasts
	f.behind(b.ID)
	f.win(f.succeeded(f.claim(a.ID)))
	f.behind(c.ID)
	f.claim(b.ID)
	f.behind(c.ID)
	// One that is retried by hand has its old place again.
	f.retry(a.ID, store.Once)
	f.now += claimLasts
	f.behind(b.ID)
	f.win(f.failed(f.claim(a.ID)))
	f.claim(b.ID)
}

func testStrictNext(f *fixture) {
	next := func() string {
		f.Helper()
		r := must(f.NextStrict(f.ctx(), project, "k"))
		if r == nil {
			return ""
		}
		if !r.Strict || r.LockKey != "k" || r.LaneID == 0 || r.Project != project {
			f.Errorf("next: %+v", r)
		}
		return r.ID
	}
	if got := next(); got != "" {
		f.Errorf("next of nothing: %s", got)
	}
	expiring := func(d *store.Draft) { strictly("k")(d); d.Callback.ExpiresAt = f.now + 5000 }
	a, b, c, d := f.accept(strictly("k")), f.accept(strictly("k")), f.accept(expiring), f.accept(strictly("k"))
	last := f.accept(strictly("k"))
	f.accept(strictly("other"))
	ended := func(what string, r store.Result, want string) {
		f.Helper()
		for range 2 { // also when the reply was lost
			won := f.win(r)
			if won.Next == nil || won.Next.ID != want || won.Next.LockKey != "k" || won.Next.LaneID == 0 || next() != want {
				f.Errorf("%s: next is %+v, want %s", what, won.Next, want)
			}
		}
	}
	ended("success", f.succeeded(f.claim(a.ID)), b.ID)
	s := f.claim(b.ID)
	f.cancel(b.ID)
	ended("canceled in flight", f.failed(s), c.ID)
	f.now += 5000
	expired, err := f.Expire(f.ctx(), f.now, 10)
	if err != nil || len(expired) != 1 || !expired[0].Strict || expired[0].LockKey != "k" || next() != d.ID {
		f.Errorf("expired: %v, %+v, next %s", err, expired, next())
	}
	if got := f.cancel(d.ID); !got.Callback.Strict || got.Callback.LockKey != "k" || next() != last.ID {
		f.Errorf("canceled: %+v, next %s", got, next())
	}
	if won := f.win(f.died(f.claim(last.ID))); won.Next != nil || next() != "" {
		f.Errorf("next of the last: %+v, %s", won.Next, next())
	}
	open, err := f.Open(f.ctx(), store.Cursor{}, 10)
	if err != nil || len(open) != 1 || !open[0].Strict {
		f.Errorf("open: %v, %+v", err, open)
	}
}

// testStrictCrowd lets several dispatchers take whatever they are given: callbacks of a key end in the order of their accepts, one
// at a time, though each of them is told only of the next.
func testStrictCrowd(f *fixture) {
	const keys, each = 3, 8
	var all []store.Callback
	for range each {
		for k := range keys {
			all = append(all, f.accept(strictly(string(rune('a'+k)))))
		}
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
		stamped, _, err := f.Stamp(ctx, store.Stamp{Token: f.token(), Now: f.now, Margin: margin, Claims: []store.StampClaim{{ID: id}}})
		if err != nil {
			f.Errorf("stamp: %v", err)
		}
		if len(stamped) == 0 {
			return // who ends the one before it tells of it
		}
		s := stamped[0]
		mu.Lock()
		order[s.LockKey] = append(order[s.LockKey], id)
		mu.Unlock()
		committed, err := f.Commit(ctx, []store.Result{{
			ID: id, Fence: s.Fence, State: store.Succeeded, Charge: true, Stamped: s,
			Attempt: &store.Attempt{Outcome: store.AttemptSucceeded, Class: store.ClassOK, StartedAt: f.now},
		}}, f.now)
		if err != nil || !committed[0].Won {
			f.Errorf("commit: %v, %+v", err, committed)
			return
		}
		if next := committed[0].Next; next != nil {
			todo <- next.ID
		}
		mu.Lock()
		defer mu.Unlock()
		if ended++; ended == len(all) {
			cancel()
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case id := <-todo:
					attempt(id)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	wg.Wait()
	if ended != len(all) {
		f.Fatalf("%d of %d have ended", ended, len(all))
	}
	for key, ids := range order {
		if !slices.IsSorted(ids) || len(ids) != each {
			f.Errorf("key %s was attempted in the order %v", key, ids)
		}
	}
}

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
