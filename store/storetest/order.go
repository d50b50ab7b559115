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

// behind checks that a callback waits for one that was accepted before it.
func (f *fixture) behind(id string) {
	r := f.refused(id)
	f.check(r.Behind && !r.Terminal && !r.Suspect && r.Due == f.get(id).DueAt, "%+v, want it behind another", r)
}

func testStrictStamp(f *fixture) {
	a, b, c := f.accept(strictly("k")), f.accept(strictly("k")), f.accept(strictly("k"))
	free, keyless := f.accept(withLock("k")), f.accept(strictly(""))
	theirs := f.accept(strictly("k"), inProject("other"))
	f.check(f.get(a.ID).Strict && !f.get(free.ID).Strict && !f.get(keyless.ID).Strict,
		"strict is not as asked for")
	f.behind(b.ID)
	// In one batch, in whatever order, the first is stamped alone. What is not strict, or is another project's,
	// does not wait.
	stamped, refused := f.stamp(c.ID, b.ID, a.ID, free.ID, keyless.ID, theirs.ID)
	var first *store.Stamped
	for _, s := range stamped {
		f.check(s.Strict == (s.ID == a.ID || s.ID == theirs.ID) && (!s.Strict || s.LockKey == "k"), "%+v",
			s.Callback)
		if s.ID == a.ID {
			first = s
		}
	}
	f.require(len(stamped) == 4 && first != nil && refused[0].Behind && refused[1].Behind,
		"%d stamped, refused %+v", len(stamped), refused)
	f.behind(b.ID)
	// A failure keeps its place; so does a claim that was lost.
	next := f.win(f.failed(first)).Next
	f.check(next == nil, "next of one that goes on: %+v", next)
	f.behind(b.ID)
	f.now += 1000
	f.lose(a.ID)
	f.behind(b.ID)
	f.succeed(a.ID)
	f.behind(c.ID)
	f.claim(b.ID)
	f.behind(c.ID)
	// One that is retried by hand has its old place again.
	f.retry(a.ID, store.Once)
	f.now += claimLasts
	f.behind(b.ID)
	f.fail(a.ID)
	f.claim(b.ID)
}

func testStrictNext(f *fixture) {
	is := func(what, want string, r *store.OpenRow) {
		got := store.OpenRow{}
		if r != nil {
			got = *r
			f.check(got.Strict && got.LockKey == "k" && got.LaneID != 0 && got.Project == project, "%s: %+v", what,
				got)
		}
		same(f, "next, "+what, want, got.ID)
	}
	next := func(what, want string) { is(what, want, must(f.NextStrict(f.ctx(), project, "k"))) }
	next("of nothing", "")
	k := strictly("k")
	a, b, c, d, last := f.accept(k), f.accept(k), f.accept(k, expiresAt(f.now+5000)), f.accept(k), f.accept(k)
	f.accept(strictly("other"))
	ended := func(what string, r store.Result, want string) {
		for range 2 { // also when the reply was lost
			is(what, want, f.win(r).Next)
			next(what, want)
		}
	}
	ended("success", f.succeeded(f.claim(a.ID)), b.ID)
	s := f.claim(b.ID)
	f.cancel(b.ID)
	ended("canceled in flight", f.failed(s), c.ID)
	f.now += 5000
	expired := f.expire()
	f.check(len(expired) == 1 && expired[0].Strict && expired[0].LockKey == "k", "expired: %+v", expired)
	next("expired", d.ID)
	canceled := f.cancel(d.ID).Callback
	f.check(canceled.Strict && canceled.LockKey == "k", "canceled: %+v", canceled)
	next("canceled", last.ID)
	is("death of the last", "", f.die(last.ID).Next)
	next("death of the last", "")
	open := must(f.Open(f.ctx(), store.Cursor{}, 10))
	f.check(len(open) == 1 && open[0].Strict, "open: %+v", open)
}

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

func testSupersede(f *fixture) {
	one := versioned("r", 1)
	waiting, lost, busy, lucky := f.accept(one), f.accept(one), f.accept(one), f.accept(one)
	plain := f.accept(withVersion("r", 1))
	f.lose(lost.ID)
	failing, succeeding := f.claim(busy.ID), f.claim(lucky.ID)
	untouched := ids(f.accept(withRef("r")), f.accept(one, withTopic("other topic")),
		f.accept(versioned("other ref", 1)), f.accept(withVersion("r", 2)))
	theirs := f.accept(one, inProject("other"))
	ended := ids(waiting, lost, plain)
	rows := func(rows []store.OpenRow) []store.OpenRow {
		slices.SortFunc(rows, func(a, b store.OpenRow) int { return strings.Compare(a.ID, b.ID) })
		return rows
	}
	want := rows(f.rows(ended...))
	f.now++
	a := f.offer(versioned("r", 2))
	f.require(a.Err == nil && a.Callback.State == store.Scheduled, "accepted %+v", a)
	same(f, "superseded", want, rows(a.Superseded))
	for _, id := range ended {
		got := f.wantState(id, store.Canceled, store.Superseded)
		f.check(got.FinishedAt == f.now && got.DueAt == 0, "superseded: %+v", got)
	}
	f.wantAttempts(lost.ID, store.ClassCrashed)
	got := f.get(busy.ID)
	f.check(got.StateAt(f.now) == store.Attempting && got.CancelRequested && got.Reason == "",
		"in flight: %+v", got)
	won := f.win(f.failed(failing))
	f.check(won.State == store.Canceled && won.Reason == store.Superseded,
		"the one in flight that failed: %+v", won)
	f.win(f.succeeded(succeeding))
	f.wantState(lucky.ID, store.Succeeded, "")
	for _, id := range untouched {
		f.wantState(id, store.Scheduled, "")
	}
	same(f, "open rows of another project", 1, len(f.rows(theirs.ID)))
	// What a person cancels after it was superseded stays so.
	inFlight := f.claim(a.Callback.ID)
	f.accept(versioned("r", 3))
	f.cancel(a.Callback.ID)
	f.win(f.failed(inFlight))
	f.wantState(a.Callback.ID, store.Canceled, store.Superseded)
}

// testSupersedeCrash lets the attempt of a superseded callback never come back: no other is made.
func testSupersedeCrash(f *fixture) {
	stamped, expired := f.accept(versioned("a", 1)), f.accept(versioned("b", 1), expiresAt(f.now+10))
	f.claim(stamped.ID)
	f.claim(expired.ID)
	f.accept(versioned("a", 2))
	f.accept(versioned("b", 2))
	f.now += claimLasts
	f.check(f.refused(stamped.ID).Terminal, "a superseded one is attempted again")
	f.expire()
	for _, id := range ids(stamped, expired) {
		f.wantState(id, store.Canceled, store.Superseded)
	}
}

func testSupersedeLate(f *fixture) {
	f.accept(versioned("r", 5))
	late := f.offer(versioned("r", 4))
	f.check(late.Err == nil && late.Superseded == nil, "a late one: %+v", late)
	id := late.Callback.ID
	f.wantState(id, store.Canceled, store.Superseded)
	same(f, "a late one as it is read", late.Callback, f.get(id))
	f.check(f.refused(id).Terminal, "a late one is not terminal")
	f.check(len(f.payload(id).Body) > 0, "a late one has no payload")
	f.wantState(f.accept(versioned("r", 5)).ID, store.Scheduled, "")
	// In one batch the highest counts, wherever it stands; a repeated request is answered with what became of
	// the first.
	six := together(versioned("r", 6), keyed("k", "one"))
	batch := f.acceptAll(f.draft(versioned("r", 7)), f.draft(versioned("r", 9)), f.draft(versioned("r", 8)),
		f.draft(versioned("r", 9)), f.draft(six))
	for i, a := range batch {
		want := store.Canceled
		if i == 1 || i == 3 {
			want = store.Scheduled
		}
		f.check(a.Err == nil && a.Callback.State == want, "draft %d of a batch: %+v, want %s", i, a, want)
	}
	same(f, "superseded by the highest of the batch", 2, len(batch[1].Superseded))
	again := f.offer(six)
	f.replayOf(batch[4].Callback, again)
	same(f, "reason of a repeated one", store.Superseded, again.Callback.Reason)
	f.wantCounts(states{store.Canceled: 6, store.Scheduled: 2})
	// The version is remembered as long as callbacks are, and longer than the callback that had it.
	f.now += 1000
	for i, before := range []int64{f.now - 1000, f.now + 1} {
		f.purge(before, before)
		c := f.accept(versioned("r", 2), with(func(c *store.Callback) { c.CreatedAt -= 1000 }))
		same(f, "after a purge", []store.State{store.Canceled, store.Scheduled}[i], c.State)
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
