package queuetest

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A lockHolder is an attempt that holds a lock, or is a next holder.
type lockHolder struct{ id, token string }

// A lockRecord is what the replies have said about a lock.
type lockRecord struct {
	holders   map[lockHolder]int64 // until when
	waiters   []string             // in order
	keptFor   string               // the waiter that a release named, until keptUntil
	keptUntil int64
	crowded   bool // there were more holders than an index keeps apart
}

// lockOf returns the lock of an id. An item has at most one lock.
func lockOf(id string) string { return "k" + string('1'+id[25]%2) }

// randomAcquire takes or renews locks.
func (w *world) randomAcquire() {
	requests, got := drawn(w, 3, "acquire", Index.Acquire, func(ref schedule.Ref) schedule.Lease {
		r := schedule.Lease{
			Item: schedule.Item{ID: ref.ID, Lane: ref.Lane, Lock: lockOf(ref.ID)}, Until: w.Now() + 25_000,
			Token: pick(w, "token", "ta", "tb"),
		}
		if owner, ok := w.anyHolder(r.Lock); ok && owner.id == r.ID {
			r.Token = owner.token
		}
		return r
	})
	w.observe()
	for i, r := range requests {
		w.expectLock(r, got[i])
	}
}

// randomRelease releases a lock, usually as one of its holders, with some waiters that are gone or skipped.
func (w *world) randomRelease() {
	lock := lockOf(pick(w, "id", w.refs...).ID)
	u := schedule.Unlock{Lock: lock, ID: w.refs[0].ID, Token: "ta"}
	if owner, ok := w.anyHolder(lock); ok {
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

// lockRecord returns the record of a lock, without expired holders.
func (w *world) lockRecord(lock string) *lockRecord {
	k := w.lockRecords[lock]
	if k == nil {
		k = &lockRecord{holders: make(map[lockHolder]int64)}
		w.lockRecords[lock] = k
	}
	maps.DeleteFunc(k.holders, func(_ lockHolder, until int64) bool { return until <= w.Now() })
	return k
}

// join records that an attempt holds the lock, or is a next holder, at least until a time.
func (k *lockRecord) join(c lockHolder, until int64) {
	k.holders[c] = max(k.holders[c], until)
	k.crowded = k.crowded || len(k.holders) > schedule.MaxNextHolders
	k.keptFor = ""
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return id == c.id })
}

// anyHolder draws a holder or a next holder of a lock.
func (w *world) anyHolder(lock string) (lockHolder, bool) {
	all := slices.SortedFunc(maps.Keys(w.lockRecord(lock).holders), func(a, b lockHolder) int {
		return cmp.Compare(a.id+a.token, b.id+b.token)
	})
	if len(all) == 0 || w.oneIn(4, "other") {
		return lockHolder{}, false
	}
	return pick(w, "claimant", all...), true
}

// expectLock checks that a lock has one holder at a time, and is kept for the waiter that a release named.
func (w *world) expectLock(r schedule.Lease, got schedule.LockReply) {
	w.Helper()
	k, me := w.lockRecord(r.Lock), lockHolder{r.ID, r.Token}
	_, mine := k.holders[me]
	others := len(k.holders) > 1 || len(k.holders) == 1 && !mine
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

// expectReleased checks that the release of a free lock names the first waiter that may run, and that of a
// held lock none.
func (w *world) expectReleased(u schedule.Unlock, next schedule.Waiter) {
	w.Helper()
	k := w.lockRecord(u.Lock)
	delete(k.holders, lockHolder{u.ID, u.Token})
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return slices.Contains(u.Gone, id) })
	want := ""
	if k.crowded {
		return
	}
	if len(k.holders) == 0 {
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
