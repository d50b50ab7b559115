package storetest

import (
	"context"
	"slices"
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
