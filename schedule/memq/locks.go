package memq

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// waiterRest is how long an unused queue of a lock is kept, in milliseconds. Waiters ask again every few
// seconds unless their lane is held. Canceled ones never do, and must not stay for ever.
const waiterRest = int64(24 * time.Hour / time.Millisecond)

// A lock has an entry in Index.endings until it is forgotten. Its times are on the steady clock.
type lock struct {
	name string
	// The first holder has the lock. The others are the next holders, in order: attempts that were adopted
	// while another had the lock.
	holders []lockHolder
	// keptFor is the waiter that a release named. Until keptUntil all others are refused.
	keptFor   string
	keptUntil int64

	queue   *list.List // of schedule.Waiter
	waiters map[string]*list.Element
	pos     int
}

type lockHolder struct {
	id, token string
	until     int64
}

// unknownToken is a token that no claim has. A holder with it cannot release: it keeps the lock until its
// end.
const unknownToken = "-"

// Acquire takes or renews the locks of leases, in their order. It answers each in its place.
func (ix *Index) Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error) {
	return each(ctx, ix, "acquire", leases, schedule.Lease.ValidateLocking, ix.acquire)
}

// acquire gives the lock to the attempt if it is free, or renews it. Otherwise the item joins the lock's
// queue.
func (ix *Index) acquire(r *schedule.Lease) schedule.LockReply {
	k := ix.lock(r.Lock)
	defer ix.updateEnding(k)
	mine, refused := k.holderIndex(r.ID, r.Token), int64(0)
	switch {
	case len(k.holders) > 0 && mine != 0:
		refused = ix.wall(k.holders[0].until)
	case mine == 0:
	case k.keptFor != "" && k.keptFor != r.ID && k.keptUntil > ix.steady():
		refused = ix.wall(k.keptUntil)
	case ix.closed: // a lock that looks free may belong to a running attempt that is not adopted yet
		refused = ix.clock
	}
	if refused != 0 {
		k.wait(schedule.Waiter{ID: r.ID, Lane: r.Lane})
		return schedule.LockReply{HeldUntil: refused}
	}
	return schedule.LockReply{Acquired: true, HeldUntil: ix.wall(ix.take(k, r.ID, r.Token, r.Until))}
}

// take appends an attempt to the holders, or extends its time if it is one. It returns the new end.
func (ix *Index) take(k *lock, id, token string, until int64) int64 {
	until = ix.steadily(until)
	k.keptFor, k.keptUntil = "", 0
	k.leave(id)
	i := k.holderIndex(id, token)
	switch {
	case i < 0 && len(k.holders) <= schedule.MaxNextHolders:
		k.holders = append(k.holders, lockHolder{id, token, until})
		return until
	case i < 0: // too many to keep apart: the last holder stands for all of them, until the end of all
		i = len(k.holders) - 1
		k.holders[i].id, k.holders[i].token = "", unknownToken
	}
	k.holders[i].until = max(k.holders[i].until, until)
	return k.holders[i].until
}

// Release releases locks and answers each with the waiter that is next.
func (ix *Index) Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error) {
	return each(ctx, ix, "release", unlocks, schedule.Unlock.Validate, ix.release)
}

// release takes the attempt out of the holders. If none is left, it keeps the lock for the first waiter that
// the caller does not skip. The caller then moves that waiter to now (dispatch/index.Index.Unlock).
func (ix *Index) release(u *schedule.Unlock) (next schedule.Waiter) {
	k := ix.lock(u.Lock)
	defer ix.updateEnding(k)
	for _, id := range u.Gone {
		k.leave(id)
	}
	if i := k.holderIndex(u.ID, u.Token); i >= 0 {
		k.holders = slices.Delete(k.holders, i, i+1)
	}
	if len(k.holders) > 0 {
		return next
	}
	k.keptFor, k.keptUntil = "", 0
	for e := k.queue.Front(); e != nil; e = e.Next() {
		if w := e.Value.(schedule.Waiter); !slices.Contains(u.Skip, w.ID) {
			k.keptFor, k.keptUntil = w.ID, ix.steady()+schedule.KeepForWaiter.Milliseconds()
			return w
		}
	}
	return next
}

// lock returns the lock of that name, without expired holders. It makes one if necessary. The caller must
// call updateEnding afterwards.
func (ix *Index) lock(name string) *lock {
	k := ix.locks[name]
	if k == nil {
		k = &lock{name: name, queue: list.New(), waiters: make(map[string]*list.Element)}
		ix.locks[name] = k
		ix.endings.push(ending{ix.steady(), k})
	}
	k.holders = slices.DeleteFunc(k.holders, func(h lockHolder) bool { return h.until <= ix.steady() })
	return k
}

// holderIndex returns the position of an attempt among the holders; -1: it holds nothing.
func (k *lock) holderIndex(id, token string) int {
	return slices.IndexFunc(k.holders, func(h lockHolder) bool { return h.id == id && h.token == token })
}

// wait appends an item to the queue, or lets it keep its place.
func (k *lock) wait(w schedule.Waiter) {
	if e := k.waiters[w.ID]; e != nil {
		e.Value = w
		return
	}
	k.waiters[w.ID] = k.queue.PushBack(w)
}

// leave takes an item out of the queue, if it waits there.
func (k *lock) leave(id string) {
	e := k.waiters[id]
	if e == nil {
		return
	}
	k.queue.Remove(e)
	delete(k.waiters, id)
	if k.keptFor == id {
		k.keptFor, k.keptUntil = "", 0
	}
}

// updateEnding sets the time after which the lock may be forgotten. If that time has come, it forgets the
// lock.
func (ix *Index) updateEnding(k *lock) {
	at := k.keptUntil
	for _, h := range k.holders {
		at = max(at, h.until)
	}
	if k.queue.Len() > 0 {
		at = max(at, ix.steady()+waiterRest)
	}
	ix.endings.set(k.pos, ending{at, k})
	if at <= ix.steady() {
		ix.forget(k)
	}
}

// forget removes a lock with its queue.
func (ix *Index) forget(k *lock) {
	ix.endings.remove(k.pos)
	delete(ix.locks, k.name)
}

// forgetLocks removes expired locks, at most MaxReap. A lock with waiters expires only after waiterRest
// without a call for it.
func (ix *Index) forgetLocks() {
	for n := 0; n < schedule.MaxReap && len(ix.endings) > 0 && ix.endings[0].at <= ix.steady(); n++ {
		ix.forget(ix.endings[0].k)
	}
}
