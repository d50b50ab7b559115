package queuetest

import (
	"time"

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
