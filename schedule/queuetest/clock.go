package queuetest

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// usual is the longest time that the suite lets pass between two calls to a shard. A claimer asks more often.
// Where a shard is not asked for longer, an index may take it for a clock that was put forward.
const usual = 8 * time.Second

// pass lets d pass, as it does for an index that is in use. On an index with several shards only those are
// asked that the test uses: a round trip to each every eight seconds would be most of the test's time.
func (f *fixture) pass(d time.Duration) {
	f.Helper()
	used := 1
	if f.locks {
		used = f.Index.Shards()
	}
	for ; d > 0; d -= usual {
		f.Advance(min(d, usual))
		f.clocks(used)
	}
}

// clocks reads the clocks of the first n shards.
func (f *fixture) clocks(n int) []int64 {
	f.Helper()
	clocks := make([]int64, n)
	for shard := range clocks {
		s, err := f.Index.Stats(f.ctx, shard)
		f.no(err)
		clocks[shard] = s.Now
	}
	f.latest = max(f.latest, clocks[0])
	return clocks
}

// jump puts the clock forward or back at once, lets every shard see it, and returns by how much shard 0's has
// moved.
func (f *fixture) jump(d time.Duration) int64 {
	f.Helper()
	before := f.clocks(f.Index.Shards())
	f.Advance(d)
	after := f.clocks(f.Index.Shards())
	for shard := range after {
		if moved := after[shard] - before[shard] - d.Milliseconds(); moved < 0 || moved > 5000 {
			f.Fatalf("a jump of %s took the clock of shard %d from %d to %d", d, shard, before[shard], after[shard])
		}
	}
	return after[0] - before[0]
}

var clockChecks = []check{
	{"JumpWhileNothingIsThere", jumpOfAnEmptyIndex},
}

// holdLane holds the i-th lane for d, and returns the item that waits there.
func (f *fixture) holdLane(i int, d time.Duration) schedule.Item {
	f.Helper()
	item := f.item(i, 0)
	f.ensure(item)
	s := settled(f.takeOne(item.ID), schedule.Divert)
	s.HoldUntil = f.Now() + d.Milliseconds()
	f.expectSettled(s, schedule.Applied)
	return item
}

// An index without anything in it, and one that was just reset, follow as well.
func jumpOfAnEmptyIndex(f *fixture) {
	f.jump(-2 * time.Hour)
	f.reset()
	f.findLanes(3)
	f.jump(time.Hour)
	f.pass(10 * time.Second)
	before := f.Now()
	l := f.one()
	if left := l.Until - before; left < 30_000 || left > 40_000 { // it may take seconds on a busy machine
		f.Fatalf("a lease of 30 s has %d ms", left)
	}
}

// randomJump puts the clock of the world forward or back. What is due stays due at its time; what is left of
// leases, holds and locks stays left.
func (w *world) randomJump(rt *rapid.T) {
	d := rapid.SampledFrom([]time.Duration{-time.Hour, -7 * time.Second, time.Minute, time.Hour}).Draw(rt, "jump")
	for _, k := range w.locks {
		if left := k.until - w.Now(); left > 0 && left < 2000 {
			w.pass(2 * time.Second) // so that it is known to have ended
		}
	}
	// What is due is promoted, and stays so. What was reaped just now is due within the spread.
	for reaped := 1; reaped > 0; {
		w.pass(150 * time.Millisecond)
		promote := w.wide()
		promote.Owner, promote.Max, promote.LaneLimit = "promoter", 0, w.limit
		c := w.claim(promote)
		w.checkReaped(c, c.Now)
		reaped = c.Reaped
	}
	now := w.Now()
	for lane, p := range w.paths {
		if p.paused != 0 && p.paused <= now { // whether it begins again is the index's choice
			w.resume(p, now)
			p.paused, p.version = 0, p.version+1
			w.no(w.Index.SetLanes(w.ctx, []schedule.LaneSetting{{Lane: lane, Limit: p.limit, Every: time.Duration(p.every), Version: p.version}}))
		}
	}
	for _, k := range w.locks {
		if k.until <= now {
			k.until = 0
		}
	}
	moved := w.jump(d)
	w.skew -= moved
	for _, r := range w.records {
		if r.leased {
			r.until += moved
		}
	}
	for _, p := range w.paths {
		if p.held != 0 {
			p.held += moved
		}
	}
	for name, k := range w.locks {
		w.jumpLock(name, k, moved)
	}
}

// jumpLock moves a lock of the model. Its shard's clock may have moved a little differently; the holder asks
// how much is left.
func (w *world) jumpLock(name string, k *lockModel, moved int64) {
	w.Helper()
	const blur = 5000
	k.keptLo, k.keptHi = k.keptLo+moved-blur, k.keptHi+moved+blur
	if k.token == "" || k.until == 0 {
		return
	}
	k.until += moved
	r := schedule.LockRequest{Lock: name, ID: k.id, Lane: w.lanes[0], Token: k.token}
	got, err := w.Index.Acquire(w.ctx, []schedule.LockRequest{r})
	w.no(err)
	if off := got[0].HeldUntil - k.until; !got[0].Acquired || off < -blur || off > blur {
		w.Fatalf("after a jump %s has the lock %s until %d, want about %d: %+v", k.id, name, got[0].HeldUntil, k.until, got[0])
	}
	k.until, k.keptFor = got[0].HeldUntil, ""
	k.waiters = slices.DeleteFunc(k.waiters, func(id string) bool { return id == k.id })
}
