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
	{"SmallStepBackIsWaitedFor", smallStepBack},
	{"JumpBackIsFollowed", jumpBack},
	{"JumpForwardLeavesLeasesAlone", jumpForward},
	{"JumpWhileNothingIsThere", jumpOfAnEmptyIndex},
}

// A small step back, as over a failover to a server whose clock is a little behind: nothing that was due is
// not due again.
func smallStepBack(f *fixture) {
	item := f.item(0, 0)
	f.ensure(item)
	first := f.claim(f.wide())
	f.Advance(-4 * time.Second)
	second := f.claim(f.wide())
	if second.Now < first.Now {
		f.Fatalf("the clock went back from %d to %d", first.Now, second.Now)
	}
	f.expectSettled(settled(first.Leases[0], schedule.Divert), schedule.Applied)
	f.takeOne(item.ID)
}

// After the clock was set back nothing stands still: what comes is claimed at once, leases end when their
// time is up, and nothing waits for the clock to be where it was.
func jumpBack(f *fixture) {
	l := f.one()
	late := f.item(1, 10*time.Second)
	f.ensure(late)
	f.jump(-time.Hour)
	c := f.claim(f.wide())
	if len(c.Leases) != 0 || c.Reaped != 0 {
		f.Fatalf("after a step back: %+v", c)
	}
	if c.Next == 0 || c.Next > c.Now+30_000 {
		f.Fatalf("next is %d, %d ms from now; the lease ends within 30 s", c.Next, c.Next-c.Now)
	}
	fresh := f.item(2, 0)
	f.ensure(fresh)
	got := f.takeOne(fresh.ID)
	if left := got.Until - f.Now(); left < 28_000 || left > 30_000 {
		f.Fatalf("a new lease of 30 s has %d ms left", left)
	}
	// A due time is a promise in wall time.
	f.expectAt(late.Ref(), late.Due)
	f.pass(31 * time.Second)
	if c := f.claim(f.wide()); c.Reaped != 2 {
		f.Fatalf("31 s later %d leases were reaped, want 2", c.Reaped)
	}
	f.expectSettled(settled(l, schedule.Ack), schedule.Stale)
	f.quiet()
}

// After the clock was put forward what is due by it is due, but no attempt in flight loses its lease.
func jumpForward(f *fixture) {
	f.ensure(f.items(0, schedule.StartConcurrency)...)
	leases := f.take()
	late := f.item(1, 10*time.Minute)
	f.ensure(late)
	f.jump(time.Hour)
	c := f.claim(f.wide())
	if c.Reaped != 0 || len(c.Leases) != 1 || c.Leases[0].ID != late.ID {
		f.Fatalf("after a jump forward %d were reaped and %v claimed, want %s alone", c.Reaped, idsOf(c.Leases), late.ID)
	}
	e := schedule.Extension{Ref: leases[0].Ref(), Token: leases[0].Token, Until: f.Now() + 60_000}
	if held, err := f.Index.Extend(f.ctx, []schedule.Extension{e}); err != nil || !held[0] {
		f.Fatalf("extension of a lease after a jump: %v, %v", held, err)
	}
	f.ack(leases[1:], schedule.Answered)
	for _, l := range []schedule.Lease{c.Leases[0], leases[0]} { // the one lasts 30 s, the other a minute
		f.pass(31 * time.Second)
		reap := f.wide()
		reap.Max = 0
		if c := f.claim(reap); c.Reaped != 1 {
			f.Fatalf("%d were reaped, want %s alone", c.Reaped, l.ID)
		}
		f.expectSettled(settled(l, schedule.Ack), schedule.Stale)
	}
	f.quiet()
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
	if left := l.Until - before; left < 29_000 || left > 31_000 {
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

// jump puts both clocks forward or back by whole steps. Whether a pause that has ended begins again is the
// index's choice.
func (p *pair) jump(rt *rapid.T) {
	for lane := range p.lanes {
		s := schedule.LaneSetting{Lane: p.a.lanes[lane], Limit: rapid.IntRange(0, 6).Draw(rt, "limit"), Version: 5}
		if rapid.IntRange(0, 2).Draw(rt, "pause") == 0 {
			s.PausedUntil = p.at(2)
		}
		s.Every = p.every(rt)
		both(p, "set lanes", func(f *fixture) (any, error) { return nil, f.Index.SetLanes(f.ctx, []schedule.LaneSetting{s}) })
	}
	steps := int64(rapid.SampledFrom([]int{-180, -3, 3, 180}).Draw(rt, "jump"))
	d := time.Duration(steps) * step * time.Millisecond
	p.a.jump(d)
	p.b.jump(d)
	p.base += steps * step
	if p.kept != 0 {
		p.kept += steps * step
	}
}
