package memq

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// waiterRest is how long the queue of a lock that nobody touches is kept, in milliseconds. Waiters come back every few
// seconds unless their lane is held; those that were canceled meanwhile never do, and must not be kept for ever.
const waiterRest = int64(24 * time.Hour / time.Millisecond)

// A lock has at most one holder, and the queue of those who were refused. It is in Index.endings until it is forgotten. Its
// times are of the steady clock.
type lock struct {
	name string
	// The holder, while until is in the future; an empty token means that it was released.
	id    string
	token string
	until int64
	// heirs were adopted while another attempt had the lock. They have it after the holder, each until its end.
	heirs []heir
	// The waiter that a release named, and until when newcomers are refused in its favour.
	keptFor   string
	keptUntil int64

	first, last *waiter
	queue       map[string]*waiter
	pos         int
}

// An heir has the lock when the holder no longer has. One without an id is nobody: it only keeps others out.
type heir struct {
	id    string
	token string
	until int64
}

// A waiter stands in a lock's queue.
type waiter struct {
	id         string
	lane       int64
	prev, next *waiter
}

// Acquire takes or renews locks in the order of the requests, and answers each in its place.
func (ix *Index) Acquire(ctx context.Context, requests []schedule.LockRequest) ([]schedule.LockReply, error) {
	return each(ctx, ix, "acquire", requests, schedule.LockRequest.Validate, func(r *schedule.LockRequest) schedule.LockReply {
		return ix.acquire(r, ix.closed)
	})
}

// acquire is for one request. Where only the holder may have the lock, one that looks free may be that of an attempt which
// has yet to be adopted.
func (ix *Index) acquire(r *schedule.LockRequest, onlyHolder bool) schedule.LockReply {
	k := ix.locks[r.Lock]
	if k == nil {
		k = &lock{name: r.Lock}
		ix.locks[r.Lock] = k
		ix.endings.push(ending{ix.steady(), k})
	}
	ix.inherit(k)
	mine := k.id == r.ID && k.token == r.Token
	switch {
	case k.heldAt(ix.steady()) && !mine:
		ix.wait(k, r)
		return schedule.LockReply{HeldUntil: ix.wall(k.until)}
	case !k.heldAt(ix.steady()) && k.keptAt(ix.steady()) && k.keptFor != r.ID:
		ix.wait(k, r)
		return schedule.LockReply{HeldUntil: ix.wall(k.keptUntil)}
	case onlyHolder && !k.heldAt(ix.steady()):
		ix.wait(k, r)
		return schedule.LockReply{HeldUntil: ix.clock}
	}
	if k.token == "" {
		ix.held++
	}
	if !mine || !k.heldAt(ix.steady()) {
		k.until = 0
	}
	k.id, k.token = r.ID, r.Token
	k.until = max(k.until, ix.steadily(r.Until))
	k.keptFor, k.keptUntil = "", 0
	ix.leave(k, r.ID)
	ix.reckon(k)
	return schedule.LockReply{Acquired: true, HeldUntil: ix.wall(k.until)}
}

// Release frees locks, and answers each with the waiter whose turn it is.
func (ix *Index) Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error) {
	return each(ctx, ix, "release", unlocks, schedule.Unlock.Validate, ix.release)
}

func (ix *Index) release(u *schedule.Unlock) schedule.Waiter {
	k := ix.locks[u.Lock]
	if k == nil {
		return schedule.Waiter{}
	}
	for _, id := range u.Gone {
		ix.leave(k, id)
	}
	k.heirs = slices.DeleteFunc(k.heirs, func(h heir) bool { return h.id == u.ID && h.token == u.Token })
	if k.id == u.ID && k.token == u.Token {
		k.until = 0
	}
	ix.inherit(k)
	if k.heldAt(ix.steady()) {
		ix.reckon(k)
		return schedule.Waiter{}
	}
	if k.token != "" {
		ix.held--
	}
	k.id, k.token, k.until = "", "", 0
	k.keptFor, k.keptUntil = "", 0
	next := k.first
	for next != nil && slices.Contains(u.Skip, next.id) {
		next = next.next
	}
	if next == nil {
		ix.reckon(k)
		return schedule.Waiter{}
	}
	k.keptFor, k.keptUntil = next.id, ix.steady()+schedule.KeepForWaiter.Milliseconds()
	ix.reckon(k)
	return schedule.Waiter{ID: next.id, Lane: next.lane}
}

func (k *lock) heldAt(now int64) bool { return k.token != "" && k.until > now }

func (k *lock) keptAt(now int64) bool { return k.keptFor != "" && k.keptUntil > now }

// inherit passes a lock that its holder no longer has on to the first heir whose time is not over.
func (ix *Index) inherit(k *lock) {
	for !k.heldAt(ix.steady()) && len(k.heirs) > 0 {
		next := k.heirs[0]
		k.heirs = k.heirs[1:]
		if k.token == "" {
			ix.held++
		}
		k.id, k.token, k.until = next.id, next.token, next.until
	}
}

// bequeath makes an adopted attempt an heir of a lock that another has.
func (ix *Index) bequeath(k *lock, h heir) {
	ix.leave(k, h.id)
	// Who has run out inherits nothing, and keeps no place before those that come later.
	k.heirs = slices.DeleteFunc(k.heirs, func(old heir) bool { return old.until <= ix.steady() })
	for i := range k.heirs {
		if k.heirs[i].id == h.id && k.heirs[i].token == h.token {
			k.heirs[i].until = max(k.heirs[i].until, h.until)
			ix.reckon(k)
			return
		}
	}
	if len(k.heirs) < schedule.MaxHeirs {
		k.heirs = append(k.heirs, h)
	} else {
		last := &k.heirs[len(k.heirs)-1]
		*last = heir{token: nobody, until: max(last.until, h.until)}
	}
	ix.reckon(k)
}

// nobody is a token that no claim has.
const nobody = "-"

// wait lets the request's item join the queue, or keep its place there.
func (ix *Index) wait(k *lock, r *schedule.LockRequest) {
	if w := k.queue[r.ID]; w != nil {
		w.lane = r.Lane
	} else {
		w = &waiter{id: r.ID, lane: r.Lane, prev: k.last}
		if k.last == nil {
			k.first, k.queue = w, make(map[string]*waiter)
		} else {
			k.last.next = w
		}
		k.last = w
		k.queue[r.ID] = w
		ix.waiters++
	}
	ix.reckon(k)
}

// leave takes an item out of the queue, if it is there.
func (ix *Index) leave(k *lock, id string) {
	w := k.queue[id]
	if w == nil {
		return
	}
	if w.prev == nil {
		k.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		k.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	delete(k.queue, id)
	ix.waiters--
	if k.keptFor == id {
		k.keptFor, k.keptUntil = "", 0
	}
}

// reckon says anew when the lock may be forgotten, and forgets it at once where nothing depends on it any more.
func (ix *Index) reckon(k *lock) {
	at := max(k.until, k.keptUntil)
	for i := range k.heirs {
		at = max(at, k.heirs[i].until)
	}
	if k.first != nil {
		at = max(at, ix.steady()+waiterRest)
	}
	if at <= ix.steady() {
		ix.forget(k)
		return
	}
	ix.endings.set(k.pos, ending{at, k})
}

// forget removes a lock with its queue.
func (ix *Index) forget(k *lock) {
	ix.endings.remove(k.pos)
	delete(ix.locks, k.name)
	ix.waiters -= len(k.queue)
	if k.token != "" {
		ix.held--
	}
}

// forgetLocks removes locks that ended by themselves and that nobody waits for.
func (ix *Index) forgetLocks() {
	for n := 0; n < schedule.MaxReap && len(ix.endings) > 0 && ix.endings[0].at <= ix.steady(); n++ {
		ix.forget(ix.endings[0].k)
	}
}
