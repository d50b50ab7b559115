package memq

import (
	"container/list"
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// waiterRest is how long the queue of a lock that nobody touches is kept, in milliseconds. Waiters come back
// every few seconds unless their lane is held; those that were canceled meanwhile never do, and must not be
// kept for ever.
const waiterRest = int64(24 * time.Hour / time.Millisecond)

// A lock is in Index.endings until it is forgotten. Its times are of the steady clock.
type lock struct {
	name string
	// The first of the holders has the lock. The others are its heirs: they were adopted while another had
	// it, and have it next.
	holders []lockHolder
	// The waiter that a release named, and until when newcomers are refused in its favour.
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

// nobody is a token that no claim has: who has it keeps others out.
const nobody = "-"

// Acquire takes or renews the locks of leases, in their order, and answers each in its place.
func (ix *Index) Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error) {
	return each(ctx, ix, "acquire", leases, schedule.Lease.ValidateLocking, ix.acquire)
}

func (ix *Index) acquire(r *schedule.Lease) schedule.LockReply {
	k := ix.lock(r.Lock)
	defer ix.reckon(k)
	mine, refused := k.place(r.ID, r.Token), int64(0)
	switch {
	case len(k.holders) > 0 && mine != 0:
		refused = ix.wall(k.holders[0].until)
	case mine == 0:
	case k.keptFor != "" && k.keptFor != r.ID && k.keptUntil > ix.steady():
		refused = ix.wall(k.keptUntil)
	case ix.closed: // what looks free may be the lock of an attempt which has yet to be adopted
		refused = ix.clock
	}
	if refused != 0 {
		k.wait(schedule.Waiter{ID: r.ID, Lane: r.Lane})
		return schedule.LockReply{HeldUntil: refused}
	}
	return schedule.LockReply{Acquired: true, HeldUntil: ix.wall(ix.take(k, r.ID, r.Token, r.Until))}
}

// take makes an attempt the last of the holders, or lengthens its time, and returns its end.
func (ix *Index) take(k *lock, id, token string, until int64) int64 {
	until = ix.steadily(until)
	k.keptFor, k.keptUntil = "", 0
	k.leave(id)
	i := k.place(id, token)
	switch {
	case i < 0 && len(k.holders) <= schedule.MaxNextHolders:
		k.holders = append(k.holders, lockHolder{id, token, until})
		return until
	case i < 0: // too many to tell apart: the last is nobody, until the end of all
		i = len(k.holders) - 1
		k.holders[i].id, k.holders[i].token = "", nobody
	}
	k.holders[i].until = max(k.holders[i].until, until)
	return k.holders[i].until
}

// Release frees locks, and answers each with the waiter whose turn it is.
func (ix *Index) Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error) {
	return each(ctx, ix, "release", unlocks, schedule.Unlock.Validate, ix.release)
}

func (ix *Index) release(u *schedule.Unlock) (next schedule.Waiter) {
	k := ix.lock(u.Lock)
	defer ix.reckon(k)
	for _, id := range u.Gone {
		k.leave(id)
	}
	if i := k.place(u.ID, u.Token); i >= 0 {
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

// lock returns the lock of that name, made if it is new, without the holders whose time is over. reckon must
// follow.
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

// place returns at which place among the holders an attempt is; -1: it is none.
func (k *lock) place(id, token string) int {
	return slices.IndexFunc(k.holders, func(h lockHolder) bool { return h.id == id && h.token == token })
}

// wait lets an item join the queue, or keep its place there.
func (k *lock) wait(w schedule.Waiter) {
	if e := k.waiters[w.ID]; e != nil {
		e.Value = w
		return
	}
	k.waiters[w.ID] = k.queue.PushBack(w)
}

// leave takes an item out of the queue, if it is there.
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

// reckon says anew when the lock may be forgotten, and forgets it at once where nothing depends on it any
// more.
func (ix *Index) reckon(k *lock) {
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

// forgetLocks removes locks that ended by themselves and that nobody waits for.
func (ix *Index) forgetLocks() {
	for n := 0; n < schedule.MaxReap && len(ix.endings) > 0 && ix.endings[0].at <= ix.steady(); n++ {
		ix.forget(ix.endings[0].k)
	}
}
