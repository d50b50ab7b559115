package queuetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var horizonChecks = []check{
	{"EverythingIsHeldWithoutAWatermark", noWatermark},
	{"IsMovedByOneAtATime", watermarkIsCompared},
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

func noWatermark(f *fixture) {
	if w := f.watermark(); w.At != schedule.Forever || w.Loaded != schedule.Forever || w.Loader != "" || w.Now == 0 {
		f.Fatalf("the watermark of a new shard: %+v", w)
	}
	item := f.item(0, 400*24*time.Hour)
	f.ensure(item)
	f.expectAt(item.Ref(), item.Due)
}

func watermarkIsCompared(f *fixture) {
	a := schedule.Advance{Horizon: 10 * time.Minute, Token: "first"}
	first, err := f.Index.MoveWatermark(f.ctx, 0, a)
	f.no(err)
	f.pass(time.Minute)
	again, err := f.Index.MoveWatermark(f.ctx, 0, a)
	f.no(err)
	if again.At != first.At || again.Loader != "first" {
		f.Fatalf("the repeated call changed something: %+v, then %+v", first, again)
	}
	second, err := f.Index.MoveWatermark(f.ctx, 0, schedule.Advance{Horizon: time.Hour, After: "first", Token: "second"})
	f.no(err)
	if second.Loader != "second" || second.At <= first.At {
		f.Fatalf("the second one: %+v after %+v", second, first)
	}
	for _, late := range []schedule.Advance{a, {Horizon: time.Minute, After: "first", Token: "third"}, {After: "", Token: "fourth"}} {
		got, err := f.Index.MoveWatermark(f.ctx, 0, late)
		f.no(err)
		if got.At != second.At || got.Loaded != second.Loaded || got.Loader != "second" {
			f.Fatalf("%+v was not refused: %+v, want %+v", late, got, second)
		}
	}
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
	noWatermark(f)
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
	loaded := w.mark.Loaded
	w.mark = w.advance(horizon)
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

// when draws a due time that may be beyond what is always held.
func (p *pair) when(rt *rapid.T) int64 {
	return p.at(rapid.SampledFrom([]int{-3, -2, -1, 0, 1, 2, 3, 9, 12}).Draw(rt, "due"))
}

// moveWatermark draws horizons whose end is a whole number of steps from now: nothing is due within a step's
// first part.
func (p *pair) moveWatermark(rt *rapid.T) {
	after := p.a.watermark().Loader
	if rapid.IntRange(0, 3).Draw(rt, "late") == 0 {
		after = "nobody"
	}
	p.a.tokens++
	a := schedule.Advance{
		Horizon: rapid.SampledFrom([]time.Duration{0, 1, 10, 30}).Draw(rt, "horizon") * step * time.Millisecond,
		After:   after, Token: fmt.Sprintf("loader-%d", p.a.tokens),
	}
	p.bothMarks("move watermark", func(f *fixture) (schedule.Watermark, error) { return f.Index.MoveWatermark(f.ctx, 0, a) })
}

func (p *pair) loaded(rt *rapid.T) {
	token := p.a.watermark().Loader
	if rapid.IntRange(0, 3).Draw(rt, "foreign") == 0 {
		token = "nobody"
	}
	until := rapid.SampledFrom([]int64{0, p.at(1), p.at(15), schedule.Forever}).Draw(rt, "until")
	p.bothMarks("loaded", func(f *fixture) (schedule.Watermark, error) { return f.Index.Loaded(f.ctx, 0, token, until) })
	p.bothMarks("watermark", func(f *fixture) (schedule.Watermark, error) { return f.Index.Watermark(f.ctx, 0) })
}

// bothMarks compares watermarks by the steps that they are in.
func (p *pair) bothMarks(name string, call func(f *fixture) (schedule.Watermark, error)) {
	p.a.Helper()
	both(p, name, func(f *fixture) (schedule.Watermark, error) {
		w, err := call(f)
		w.Now, w.At, w.Loaded = 0, p.round(w.At), p.round(w.Loaded)
		return w, err
	})
}
