package queuetest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var lockChecks = []check{
	{"OfSeveralInOneCall", locksInOneCall},
	{"IsHeldForAdopted", lockAdopted},
	{"IsHeldForEveryAdopted", lockInherited},
	{"IsHeldForManyAdopted", lockOfMany},
}

// want asks for the lock until a minute from now.
func (f *fixture) want(lock, id, token string) schedule.LockRequest {
	f.locks = true
	return schedule.LockRequest{Lock: lock, ID: id, Lane: f.lanes[0], Token: token, Until: f.Now() + 60_000}
}

func (f *fixture) acquire(r schedule.LockRequest, want bool) schedule.LockReply {
	f.Helper()
	got, err := f.Index.Acquire(f.ctx, []schedule.LockRequest{r})
	f.no(err)
	if len(got) != 1 || got[0].Acquired != want {
		f.Fatalf("acquire of %s for %s: %v, want acquired %t", r.Lock, r.ID, got, want)
	}
	return got[0]
}

// release releases and expects that waiter; empty: none.
func (f *fixture) release(u schedule.Unlock, want string) {
	f.Helper()
	got, err := f.Index.Release(f.ctx, []schedule.Unlock{u})
	f.no(err)
	if len(got) != 1 || got[0].ID != want {
		f.Fatalf("release of %s by %s answered %v, want waiter %q", u.Lock, u.ID, got, want)
	}
	if want != "" && got[0].Lane != f.lanes[0] {
		f.Fatalf("the waiter's lane is %d, want %d", got[0].Lane, f.lanes[0])
	}
}

func locksInOneCall(f *fixture) {
	a, b, c := f.id(), f.id(), f.id()
	rs := []schedule.LockRequest{f.want("x", a, "t"), f.want("x", b, "t"), f.want("y", c, "t"), f.want("x", c, "t")}
	got, err := f.Index.Acquire(f.ctx, rs)
	f.no(err)
	want := []schedule.LockReply{
		{Acquired: true, HeldUntil: rs[0].Until}, {HeldUntil: rs[0].Until},
		{Acquired: true, HeldUntil: rs[2].Until}, {HeldUntil: rs[0].Until},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		f.Fatalf("replies (-want +got):\n%s", diff)
	}
	waiters, err := f.Index.Release(f.ctx, []schedule.Unlock{
		{Lock: "y", ID: c, Token: "t"}, {Lock: "x", ID: a, Token: "t"}, {Lock: "none", ID: a, Token: "t"},
	})
	f.no(err)
	if diff := cmp.Diff([]schedule.Waiter{{}, {ID: b, Lane: f.lanes[0]}, {}}, waiters); diff != "" {
		f.Fatalf("waiters (-want +got):\n%s", diff)
	}
}

func lockAdopted(f *fixture) {
	running, other := f.item(0, 0), f.id()
	running.Lock = "k"
	adoption := schedule.Adoption{Item: running, Token: "ta", Until: f.Now() + 60_000}
	for range 2 {
		f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{adoption}))
	}
	f.acquire(f.want("k", other, "tb"), false)
	f.release(schedule.Unlock{Lock: "k", ID: running.ID, Token: "ta"}, other)
	// It is kept for the waiter now, but the attempt that runs already has it.
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{adoption}))
	f.acquire(f.want("k", other, "tb"), false)
	// An adopted attempt does not take it from another.
	second := f.item(0, 0)
	second.Lock = "k"
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: second, Token: "tc", Until: f.Now() + 60_000}}))
	f.expectPlace(second.Ref(), schedule.Leased)
	f.release(schedule.Unlock{Lock: "k", ID: second.ID, Token: "tc"}, "")
	f.release(schedule.Unlock{Lock: "k", ID: running.ID, Token: "ta"}, other)
}

// lockInherited: attempts that have ended, but whose results are not committed, are adopted beside the one that runs. The
// index cannot tell which one runs: the lock is held until the last of them has released it, or its time is over.
func lockInherited(f *fixture) {
	other := f.id()
	var ids []string
	adopt := func(until int64) {
		item := f.item(0, 0)
		item.Lock = "k"
		a := schedule.Adoption{Item: item, Token: "t", Until: until}
		for range 2 {
			f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{a}))
		}
		ids = append(ids, item.ID)
	}
	unlock := func(i int) schedule.Unlock { return schedule.Unlock{Lock: "k", ID: ids[i], Token: "t"} }
	start := f.Now()
	for _, until := range []int64{start + 60_000, start + 50_000, start + 70_000, start + 60_000, start + 80_000} {
		adopt(until)
	}
	f.acquire(f.want("k", other, "to"), false)
	f.release(unlock(3), "")
	f.release(unlock(0), "")
	f.acquire(f.want("k", other, "to"), false)
	renewed := f.want("k", ids[1], "t")
	renewed.Until = start + 50_000
	f.acquire(renewed, true)
	f.release(unlock(0), "") // once more
	// The one that has it is lost, and so is the next.
	f.pass(55 * time.Second)
	if reply := f.acquire(f.want("k", other, "to"), false); reply.HeldUntil < start+70_000 || reply.HeldUntil > start+70_500 {
		f.Fatalf("the lock is held until %d, want %d to half a second after", reply.HeldUntil, start+70_000)
	}
	f.release(unlock(1), "")
	f.pass(20 * time.Second)
	f.acquire(f.want("k", other, "to"), false)
	f.release(unlock(4), other)
	f.acquire(f.want("k", other, "to"), true)
}

// lockOfMany: beyond what an index counts, a lock is held until the last of all of them would have ended.
func lockOfMany(f *fixture) {
	const n = 100
	other, start := f.id(), f.Now()
	adoptions := make([]schedule.Adoption, n)
	for i := range adoptions {
		item := f.item(0, 0)
		item.Lock = "k"
		adoptions[i] = schedule.Adoption{Item: item, Token: "t", Until: start + 60_000 + int64(i%10)*1000}
	}
	f.no(f.Index.Adopt(f.ctx, adoptions))
	for i := range n - 1 {
		f.release(schedule.Unlock{Lock: "k", ID: adoptions[i].ID, Token: "t"}, "")
	}
	f.acquire(f.want("k", other, "to"), false)
	f.pass(62 * time.Second)
	f.acquire(f.want("k", other, "to"), false)
	f.pass(8 * time.Second)
	f.acquire(f.want("k", other, "to"), true)
}
