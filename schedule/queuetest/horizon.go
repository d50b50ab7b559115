package queuetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

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

// load says that shard 0 was given everything up to then, and expects what is loaded afterwards.
func (f *fixture) load(token string, until, want int64) schedule.Watermark {
	f.Helper()
	w, err := f.Index.Loaded(f.ctx, 0, token, until)
	f.no(err)
	if w.Loaded != want {
		f.Fatalf("%s said that all is loaded until %d: %+v, want until %d", token, until, w, want)
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

// leftOut says whether an item whose due time was written just now, at or after before, was left out. Where
// that depends on the millisecond, the index says.
func (w *world) leftOut(ref schedule.Ref, due, before int64) bool {
	ahead := schedule.AlwaysAhead.Milliseconds()
	switch {
	case due <= max(w.mark.At, before+ahead):
		return false
	case due > max(w.mark.At, w.Now()+ahead):
		return true
	}
	return w.lookup(ref)[0].Place == schedule.Absent
}

func (w *world) randomHorizon(rt *rapid.T) {
	horizon := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 5 * time.Minute, 20 * time.Minute}).Draw(rt, "horizon")
	before, loaded := w.mark, w.mark.Loaded
	w.mark = w.advance(horizon)
	for _, late := range []schedule.Advance{
		{Horizon: horizon, After: before.Loader, Token: w.mark.Loader}, // the same call again
		{Horizon: time.Hour, After: "another", Token: "late"},
	} {
		got, err := w.Index.MoveWatermark(w.ctx, 0, late)
		w.no(err)
		if got.Now = w.mark.Now; got != w.mark {
			w.Fatalf("%+v moved the watermark from %+v to %+v", late, w.mark, got)
		}
	}
	if want := min(loaded, w.mark.At); w.mark.Loaded != want {
		w.Fatalf("a watermark that was loaded until %d has moved: %+v, want it loaded until %d", loaded, w.mark, want)
	}
}

func (w *world) randomLoaded(rt *rapid.T) {
	until := rapid.SampledFrom([]int64{0, w.Now() + 60_000, w.Now() + 900_000, schedule.Forever}).Draw(rt, "until")
	token, want := "foreign", w.mark.Loaded
	if w.mark.Loader != "" && rapid.Bool().Draw(rt, "mine") {
		token, want = w.mark.Loader, max(w.mark.Loaded, min(until, w.mark.At))
	}
	w.mark = w.load(token, until, want)
}
