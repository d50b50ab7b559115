package queuetest

import (
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var horizonChecks = []check{
	{"IsMovedWhileTheShardIsClosed", watermarkOfAClosedShard},
	{"InvalidWatermarks", invalidWatermarks},
	{"EveryLaneHasAShard", lanesHaveShards},
}

// watermark reads shard 0's.
func (f *fixture) watermark() schedule.Watermark {
	f.Helper()
	w, err := f.Index.Watermark(f.ctx, 0)
	f.no(err)
	return w
}

// advance moves shard 0's watermark to so long after now, under a new token, and expects that it has moved.
func (f *fixture) advance(horizon time.Duration) schedule.Watermark {
	f.Helper()
	f.tokens++
	a := schedule.Advance{Horizon: horizon, After: f.watermark().Loader, Token: fmt.Sprintf("loader-%d", f.tokens)}
	w, err := f.Index.MoveWatermark(f.ctx, 0, a)
	f.no(err)
	at := w.Now + horizon.Milliseconds()
	if horizon == 0 {
		at = schedule.Forever
	}
	if w.At != at || w.Loader != a.Token || w.Loaded > w.At {
		f.Fatalf("moved to a horizon of %s by %s: %+v", horizon, a.Token, w)
	}
	return w
}

func watermarkOfAClosedShard(f *fixture) {
	f.generation++
	f.Index.SetGeneration(f.generation)
	for shard := range f.Index.Shards() {
		f.no(f.Index.Reset(f.ctx, shard, f.generation))
	}
	f.advance(10 * time.Minute)
	near, far := f.item(0, 5*time.Minute), f.item(0, time.Hour)
	f.ensure(near, far)
	f.expectPlace(near.Ref(), schedule.Delayed)
	f.expectPlace(far.Ref(), schedule.Absent)
	for shard := range f.Index.Shards() {
		f.no(f.Index.Open(f.ctx, shard))
	}
	f.quiet()
}

func invalidWatermarks(f *fixture) {
	for what, a := range map[string]schedule.Advance{
		"a horizon in the past": {Horizon: -time.Second, Token: "t"}, "a horizon of nearly nothing": {Horizon: 1, Token: "t"},
		"no token": {Horizon: time.Hour}, "a malformed token": {Horizon: time.Hour, Token: "\t"}, "a malformed predecessor": {Horizon: time.Hour, After: " ", Token: "t"},
	} {
		_, err := f.Index.MoveWatermark(f.ctx, 0, a)
		f.refuse("a watermark with "+what, err)
	}
	_, err := f.Index.Loaded(f.ctx, 0, "\t", 1)
	f.refuse("loaded with a malformed token", err)
	for _, shard := range []int{-1, f.Index.Shards()} {
		_, err := f.Index.Watermark(f.ctx, shard)
		f.refuse("the watermark of no shard", err)
		_, err = f.Index.MoveWatermark(f.ctx, shard, schedule.Advance{Horizon: time.Hour, Token: "t"})
		f.refuse("moving the watermark of no shard", err)
		_, err = f.Index.Loaded(f.ctx, shard, "t", 1)
		f.refuse("loaded of no shard", err)
	}
	if w := f.watermark(); w.At != schedule.Forever || w.Loaded != schedule.Forever || w.Loader != "" || w.Now == 0 {
		f.Fatalf("without a watermark: %+v", w)
	}
	item := f.item(0, 400*24*time.Hour)
	f.ensure(item)
	f.expectAt(item.Ref(), item.Due)
}

// lanesHaveShards: an item is in the shard that ShardOf names for its lane.
func lanesHaveShards(f *fixture) {
	var items []schedule.Item
	for lane := int64(1); lane <= 100; lane++ {
		items = append(items, schedule.Item{ID: f.id(), Lane: lane, Due: f.Now()})
	}
	f.ensure(items...)
	found := 0
	for shard := range f.Index.Shards() {
		for _, item := range f.scan(shard) {
			if f.Index.ShardOf(item.Lane) != shard {
				f.Fatalf("lane %d is in shard %d, but ShardOf says %d", item.Lane, shard, f.Index.ShardOf(item.Lane))
			}
			found++
		}
	}
	if found != len(items) {
		f.Fatalf("the shards have %d of %d items", found, len(items))
	}
}

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
