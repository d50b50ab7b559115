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
