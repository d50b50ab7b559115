package queuetest

import (
	"slices"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A lockModel is what the model knows of a lock.
type lockModel struct {
	id, token string
	until     int64
	// The lock is kept for keptFor surely until keptLo and surely not after keptHi.
	keptFor        string
	keptLo, keptHi int64
	waiters        []string
}

func (w *world) lock(name string) *lockModel {
	if w.locks[name] == nil {
		w.locks[name] = new(lockModel)
	}
	return w.locks[name]
}

// lockOf returns the lock that an id needs: an item has at most one.
func lockOf(id string) string { return "k" + string('1'+id[25]%2) }

func (w *world) randomAcquire(rt *rapid.T) {
	ref := w.ref(rt)
	r := schedule.LockRequest{
		Lock: lockOf(ref.ID), ID: ref.ID, Lane: ref.Lane, Until: w.Now() + 25_000,
		Token: rapid.SampledFrom([]string{"ta", "tb"}).Draw(rt, "token"),
	}
	k := w.lock(r.Lock)
	if k.token != "" && rapid.IntRange(0, 3).Draw(rt, "renew") == 0 {
		r.ID, r.Token = k.id, k.token
	}
	before := w.Now()
	got, err := w.Index.Acquire(w.ctx, []schedule.LockRequest{r})
	w.no(err)
	after := w.Now()

	mine := k.id == r.ID && k.token == r.Token
	held, maybeHeld := k.until > after, k.until > before
	kept, maybeKept := k.keptFor != "" && k.keptFor != r.ID && k.keptLo > after, k.keptFor != "" && k.keptFor != r.ID && k.keptHi > before
	refused := held && !mine || !maybeHeld && kept
	granted := maybeHeld == held && (held && mine || !held && !maybeKept)
	if refused && got[0].Acquired || granted && !got[0].Acquired {
		w.Fatalf("acquire of %s by %s under %s at %d answered %+v; the lock is %+v", r.Lock, r.ID, r.Token, after, got[0], *k)
	}
	if got[0].Acquired {
		if !mine || !held {
			k.until = 0
		}
		k.id, k.token, k.until = r.ID, r.Token, max(k.until, r.Until)
		k.keptFor = ""
		k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return id == r.ID })
		if held && got[0].HeldUntil != k.until {
			w.Fatalf("%s has the lock until %d, but %d was answered", r.ID, k.until, got[0].HeldUntil)
		}
		return
	}
	if held && got[0].HeldUntil != k.until {
		w.Fatalf("the holder's lock ends at %d, but %d was answered", k.until, got[0].HeldUntil)
	}
	if got[0].HeldUntil <= before {
		w.Fatalf("acquire was refused at %d because of a lock until %d", after, got[0].HeldUntil)
	}
	if !slices.Contains(k.waiters, r.ID) {
		k.waiters = append(k.waiters, r.ID)
	}
}

func (w *world) randomRelease(rt *rapid.T) {
	name := lockOf(w.ref(rt).ID)
	k := w.lock(name)
	u := schedule.Unlock{Lock: name, ID: w.ref(rt).ID, Token: "ta"}
	if k.token != "" && rapid.IntRange(0, 3).Draw(rt, "other") > 0 {
		u.ID, u.Token = k.id, k.token
	}
	for _, id := range append(slices.Clone(k.waiters), w.ref(rt).ID) {
		switch rapid.IntRange(0, 5).Draw(rt, "waiter") {
		case 0:
			u.Gone = append(u.Gone, id)
		case 1:
			u.Skip = append(u.Skip, id)
		}
	}
	before := w.Now()
	got, err := w.Index.Release(w.ctx, []schedule.Unlock{u})
	w.no(err)
	after := w.Now()

	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return slices.Contains(u.Gone, id) })
	if slices.Contains(u.Gone, k.keptFor) {
		k.keptFor = ""
	}
	next := ""
	for _, id := range k.waiters {
		if !slices.Contains(u.Skip, id) {
			next = id
			break
		}
	}
	mine := k.id == u.ID && k.token == u.Token
	if !mine && k.until > after {
		if got[0].ID != "" {
			w.Fatalf("%s is held by %s, but its release by %s named %s", name, k.id, u.ID, got[0].ID)
		}
		return
	}
	if !mine && k.until > before && got[0].ID == "" {
		return // it may have ended between the readings of the clock
	}
	if got[0].ID != next {
		w.Fatalf("the release of %s named %q, want %q of %v", name, got[0].ID, next, k.waiters)
	}
	k.id, k.token, k.until = "", "", 0
	k.keptFor = next
	keep := schedule.KeepForWaiter.Milliseconds()
	k.keptLo, k.keptHi = before+keep, after+keep
}
