package queuetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A claimant has a lock, or is to have it after another.
type claimant struct{ id, token string }

// A contest is what the replies said of a lock.
type contest struct {
	claimants map[claimant]int64 // until when
	waiters   []string           // in their order
	keptFor   string             // the waiter that a release named, until keptUntil
	keptUntil int64
	crowded   bool // there were more claimants than an index tells apart
}

// lockOf returns the lock that an id needs: an item has at most one.
func lockOf(id string) string { return "k" + string('1'+id[25]%2) }

func (w *world) randomAcquire() {
	requests, got := drawn(w, 3, "acquire", Index.Acquire, func(ref schedule.Ref) schedule.Lease {
		r := schedule.Lease{
			Item: schedule.Item{ID: ref.ID, Lane: ref.Lane, Lock: lockOf(ref.ID)}, Until: w.Now() + 25_000,
			Token: pick(w, "token", "ta", "tb"),
		}
		if owner, ok := w.anyClaimant(r.Lock); ok && owner.id == r.ID {
			r.Token = owner.token
		}
		return r
	})
	w.observe()
	for i, r := range requests {
		w.expectLock(r, got[i])
	}
}

func (w *world) randomRelease() {
	lock := lockOf(pick(w, "id", w.refs...).ID)
	u := schedule.Unlock{Lock: lock, ID: w.refs[0].ID, Token: "ta"}
	if owner, ok := w.anyClaimant(lock); ok {
		u.ID, u.Token = owner.id, owner.token
	}
	for _, ref := range w.some(4) {
		if w.oneIn(2, "gone") {
			u.Gone = append(u.Gone, ref.ID)
		} else {
			u.Skip = append(u.Skip, ref.ID)
		}
	}
	got := retried(w, "release", on(w.ctx, Index.Release, []schedule.Unlock{u}))
	w.observe()
	w.expectReleased(u, got[0])
}

// contest returns what is known of a lock. Those whose time is over are forgotten.
func (w *world) contest(lock string) *contest {
	k := w.contests[lock]
	if k == nil {
		k = &contest{claimants: make(map[claimant]int64)}
		w.contests[lock] = k
	}
	maps.DeleteFunc(k.claimants, func(_ claimant, until int64) bool { return until <= w.Now() })
	return k
}

// join notes that an attempt has the lock, or is to have it, at least until then.
func (k *contest) join(c claimant, until int64) {
	k.claimants[c] = max(k.claimants[c], until)
	k.crowded = k.crowded || len(k.claimants) > schedule.MaxNextHolders
	k.keptFor = ""
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return id == c.id })
}

// anyClaimant draws one of those who have the lock or are to have it.
func (w *world) anyClaimant(lock string) (claimant, bool) {
	all := slices.SortedFunc(maps.Keys(w.contest(lock).claimants), func(a, b claimant) int {
		return cmp.Compare(a.id+a.token, b.id+b.token)
	})
	if len(all) == 0 || w.oneIn(4, "other") {
		return claimant{}, false
	}
	return pick(w, "claimant", all...), true
}

// expectLock: a lock has one holder at a time, and is kept a moment for the waiter that a release named.
func (w *world) expectLock(r schedule.Lease, got schedule.LockReply) {
	w.Helper()
	k, me := w.contest(r.Lock), claimant{r.ID, r.Token}
	_, mine := k.claimants[me]
	others := len(k.claimants) > 1 || len(k.claimants) == 1 && !mine
	kept := k.keptFor != "" && k.keptFor != r.ID && k.keptUntil > w.Now()
	never, surely := others && !mine || kept && !mine, !others && (mine || !kept) && !k.crowded
	if got.Acquired && never || !got.Acquired && surely || got.HeldUntil <= w.Now() {
		w.Fatalf("%+v was answered %+v; the lock is that of %+v", r, got, *k)
	}
	if got.Acquired {
		k.join(me, r.Until)
	} else if !slices.Contains(k.waiters, r.ID) {
		k.waiters = append(k.waiters, r.ID)
	}
}

// expectReleased: a free lock is answered with the waiter who waits longest of those that may run, one that
// another has with none.
func (w *world) expectReleased(u schedule.Unlock, next schedule.Waiter) {
	w.Helper()
	k := w.contest(u.Lock)
	delete(k.claimants, claimant{u.ID, u.Token})
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return slices.Contains(u.Gone, id) })
	want := ""
	if k.crowded {
		return
	}
	if len(k.claimants) == 0 {
		i := slices.IndexFunc(k.waiters, func(id string) bool { return !slices.Contains(u.Skip, id) })
		if i >= 0 {
			want = k.waiters[i]
		}
		k.keptFor, k.keptUntil = want, w.Now()+schedule.KeepForWaiter.Milliseconds()
	}
	if next.ID != want {
		w.Fatalf("%+v named %+v, want %q; the lock is that of %+v", u, next, want, *k)
	}
}
