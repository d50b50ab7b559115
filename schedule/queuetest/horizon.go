package queuetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var horizonChecks = []check{
	{"EverythingIsHeldWithoutAWatermark", noWatermark},
	{"WhatIsBeyondIsLeftOut", beyondIsLeftOut},
	{"WhatIsDueSoonIsHeldAnyway", soonIsHeld},
	{"WhatIsThereStays", thereStays},
	{"SettlementsBeyondIt", settleBeyond},
	{"OverrulingBeyondIt", overruleBeyond},
	{"MovementsBeyondIt", moveBeyond},
	{"LeasesAreHeldAnyway", leasedBeyond},
	{"MovesBothWays", watermarkMoves},
	{"IsMovedByOneAtATime", watermarkIsCompared},
	{"LoadedIsWhatItsLoaderSays", loadedIsTold},
	{"EndsWhenAllIsLoaded", watermarkEnds},
	{"IsForgottenByAReset", watermarkForgotten},
	{"IsMovedWhileTheShardIsClosed", watermarkOfAClosedShard},
	{"FollowsTheClock", watermarkAndClock},
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

func beyondIsLeftOut(f *fixture) {
	w := f.advance(10 * time.Minute)
	if w.Loaded != w.At {
		f.Fatalf("a shard that held everything does not hold it up to its watermark: %+v", w)
	}
	near, far := f.item(0, 9*time.Minute), f.item(0, 11*time.Minute)
	for i, got := range f.ensure(near, far) {
		if got != (schedule.Position{}) {
			f.Fatalf("item %d was there before: %v", i, got)
		}
	}
	f.expectAt(near.Ref(), near.Due)
	for range 2 {
		f.expectPlace(far.Ref(), schedule.Absent)
		if got := f.ensure(far)[0]; got != (schedule.Position{}) {
			f.Fatalf("an item that was left out is there: %v", got)
		}
	}
	if s := f.stats(); s.Delayed != 1 || s.HeadDue != near.Due || s.Next != near.Due {
		f.Fatalf("%+v, want one item, due %d", s, near.Due)
	}
	// Once the watermark has passed its due time it is taken in like any other.
	f.pass(2 * time.Minute)
	f.advance(10 * time.Minute)
	f.ensure(far)
	f.expectAt(far.Ref(), far.Due)
	f.pass(9*time.Minute + time.Second)
	if got := f.take(); len(got) != 2 {
		f.Fatalf("claimed %v, want both", idsOf(got))
	}
	f.quiet()
}

func soonIsHeld(f *fixture) {
	f.advance(time.Second)
	f.pass(time.Hour)
	soon, later := f.item(0, schedule.AlwaysAhead-2*time.Second), f.item(0, schedule.AlwaysAhead+2*time.Second)
	f.ensure(soon, later)
	f.expectAt(soon.Ref(), soon.Due)
	f.expectPlace(later.Ref(), schedule.Absent)
}

func thereStays(f *fixture) {
	far := f.item(0, time.Hour)
	f.ensure(far)
	f.advance(10 * time.Minute)
	want := schedule.Position{Place: schedule.Delayed, Due: far.Due}
	if got := f.ensure(far)[0]; got != want {
		f.Fatalf("an item that was there before the watermark: %v, want %v", got, want)
	}
	f.quiet()
	f.pass(time.Hour)
	f.takeOne(far.ID)
}

func settleBeyond(f *fixture) {
	f.advance(10 * time.Minute)
	f.answer(0, 1, schedule.Answered) // its room is eight from now on
	f.ensure(f.items(0, 9)...)
	leases := f.take()
	if len(leases) != 8 {
		f.Fatalf("claimed %d, want the lane's eight", len(leases))
	}
	for i, o := range []schedule.Outcome{schedule.Reschedule, schedule.Divert} {
		s := settled(leases[i], o)
		s.Due = f.Now() + 3600_000
		f.expectSettled(s, schedule.Applied)
		f.expectPlace(s.Ref(), schedule.Absent)
		f.expectSettled(s, schedule.Gone)
	}
	near := settled(leases[2], schedule.Reschedule)
	near.Due = f.Now() + 300_000
	f.expectSettled(near, schedule.Applied)
	f.expectAt(near.Ref(), near.Due)
	// A movement that came meanwhile counts: the earlier of the two times decides, also after an ack.
	for i, o := range []schedule.Outcome{schedule.Reschedule, schedule.Ack} {
		l := leases[3+i]
		f.move(l.Ref(), f.Now()+200_000, schedule.MovedHeld)
		s := settled(l, o)
		s.Due = f.Now() + 3600_000
		f.expectSettled(s, schedule.Applied)
		f.expectPlace(l.Ref(), schedule.Delayed)
	}
	far := leases[5]
	f.move(far.Ref(), f.Now()+3600_000, schedule.MovedHeld)
	f.expectSettled(settled(far, schedule.Ack), schedule.Applied)
	f.expectPlace(far.Ref(), schedule.Absent)
	// The lane has room for the ninth, and the index is whole.
	f.quiet()
	if got := f.take(); len(got) != 1 {
		f.Fatalf("claimed %v, want the one that was ready", idsOf(got))
	}
}

func overruleBeyond(f *fixture) {
	f.advance(10 * time.Minute)
	delayed, absent := f.item(0, time.Minute), f.item(0, time.Minute)
	ready := f.items(1, schedule.StartConcurrency+1)
	f.ensure(append(ready, delayed)...)
	f.take()
	last := ready[len(ready)-1]
	f.expectPlace(last.Ref(), schedule.Ready)
	for _, item := range []schedule.Item{delayed, absent, last} {
		for _, o := range []schedule.Outcome{schedule.Reschedule, schedule.Divert} {
			s := schedule.Settlement{Item: item, Token: "t", Outcome: o, Won: true}
			s.Due = f.Now() + 3600_000
			f.expectSettled(s, schedule.Applied)
			f.expectPlace(item.Ref(), schedule.Absent)
		}
	}
	f.quiet()
}

func moveBeyond(f *fixture) {
	f.advance(10 * time.Minute)
	delayed := f.item(0, time.Minute)
	ready := f.items(1, schedule.StartConcurrency+1)
	f.ensure(append(ready, delayed)...)
	f.take()
	for _, item := range []schedule.Item{delayed, ready[len(ready)-1]} {
		f.move(item.Ref(), f.Now()+3600_000, schedule.MovedIt)
		f.expectPlace(item.Ref(), schedule.Absent)
		f.move(item.Ref(), f.Now()+3600_000, schedule.MovedGone)
	}
	held := f.item(2, time.Minute)
	f.ensure(held)
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: held.Lane, PausedUntil: f.Now() + 7200_000, Version: 1}}))
	f.move(held.Ref(), f.Now()+3600_000, schedule.MovedHeld)
	f.expectPlace(held.Ref(), schedule.Absent)
	f.quiet()
}

// A lease is held whatever the watermark and its item's due time; when it runs out the item is due at once.
func leasedBeyond(f *fixture) {
	f.advance(10 * time.Minute)
	item := f.item(0, time.Hour)
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: item, Token: "running", Until: f.Now() + 30_000}}))
	f.expectPlace(item.Ref(), schedule.Leased)
	f.move(item.Ref(), f.Now()+7200_000, schedule.MovedHeld)
	f.pass(31 * time.Second)
	if c := f.claim(f.wide()); c.Reaped != 1 {
		f.Fatalf("reaped %d, want 1", c.Reaped)
	}
	f.pass(time.Second)
	f.take()
	f.expectPlace(item.Ref(), schedule.Leased)
	f.quiet()
}

// Wherever it is moved, what is loaded is never beyond it, and grows by nothing but what its loader says.
func watermarkMoves(f *fixture) {
	first := f.advance(10 * time.Minute)
	further := f.advance(time.Hour)
	if further.Loaded != first.At {
		f.Fatalf("moved on: %+v, want that it is loaded until %d", further, first.At)
	}
	back := f.advance(5 * time.Minute)
	if back.Loaded != back.At {
		f.Fatalf("moved back: %+v", back)
	}
	open := f.advance(0)
	if open.Loaded != back.At {
		f.Fatalf("moved to the end of time: %+v, want that it is loaded until %d", open, back.At)
	}
	far := f.item(0, 400*24*time.Hour)
	f.ensure(far)
	f.expectAt(far.Ref(), far.Due)
	if again := f.advance(10 * time.Minute); again.Loaded != back.At {
		f.Fatalf("moved back before all was loaded: %+v, want that it is loaded until %d", again, back.At)
	}
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

func loadedIsTold(f *fixture) {
	first := f.advance(10 * time.Minute)
	w := f.advance(time.Hour)
	f.load(first.Loader, w.At, first.At)
	f.load("", w.At, first.At)
	middle := first.At + 60_000
	f.load(w.Loader, middle, middle)
	f.load(w.Loader, middle-1000, middle)
	f.load(w.Loader, 0, middle)
	for range 2 {
		f.load(w.Loader, w.At+1, w.At)
	}
	f.load(w.Loader, schedule.Forever, w.At)
	if got := f.watermark(); got.At != w.At || got.Loaded != w.At || got.Loader != w.Loader {
		f.Fatalf("the watermark is %+v, want %+v, loaded to its end", got, w)
	}
}

func watermarkEnds(f *fixture) {
	f.advance(10 * time.Minute)
	w := f.advance(0)
	f.load(w.Loader, w.Loaded+1, w.Loaded+1)
	f.load(w.Loader, schedule.Forever, schedule.Forever)
	if got := f.watermark(); got.At != schedule.Forever || got.Loader != w.Loader {
		f.Fatalf("the watermark is %+v, want none", got)
	}
	far := f.item(0, 24*time.Hour)
	f.ensure(far)
	f.expectAt(far.Ref(), far.Due)
	if again := f.advance(10 * time.Minute); again.Loaded != again.At {
		f.Fatalf("a shard that held everything does not hold it up to its watermark: %+v", again)
	}
}

func watermarkForgotten(f *fixture) {
	f.advance(10 * time.Minute)
	f.reset()
	noWatermark(f)
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

// The watermark is a time of the wall clock. What is due soon by a clock that was put forward is held, wherever the watermark
// has stayed behind.
func watermarkAndClock(f *fixture) {
	w := f.advance(10 * time.Minute)
	f.jump(time.Hour)
	soon, far := f.item(0, time.Minute), f.item(0, 10*time.Minute)
	f.ensure(soon, far)
	f.expectPlace(soon.Ref(), schedule.Delayed)
	f.expectPlace(far.Ref(), schedule.Absent)
	f.jump(-2 * time.Hour)
	early := f.item(0, 55*time.Minute)
	f.ensure(early)
	f.expectPlace(early.Ref(), schedule.Delayed)
	if got := f.watermark(); got.At != w.At || got.Loaded != w.Loaded {
		f.Fatalf("jumps have moved the watermark from %+v to %+v", w, got)
	}
	if got := f.advance(10 * time.Minute); got.Loaded != got.At {
		f.Fatalf("moved back with the clock: %+v", got)
	}
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

func lanesHaveShards(f *fixture) {
	for _, lane := range f.lanes {
		if shard := f.Index.ShardOf(lane); shard != 0 {
			f.Fatalf("lane %d is one of shard 0's, but of shard %d by its own word", lane, shard)
		}
	}
	for lane := int64(1); lane < 1000; lane++ {
		if shard := f.Index.ShardOf(lane); shard < 0 || shard >= f.Index.Shards() {
			f.Fatalf("lane %d is of shard %d of %d", lane, shard, f.Index.Shards())
		}
	}
}

// leftOut says whether an item whose due time was written just now, at or after before, was left out. Where that depends on the
// millisecond, the index says.
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

// moveWatermark draws horizons whose end is a whole number of steps from now: nothing is due within a step's first part.
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
