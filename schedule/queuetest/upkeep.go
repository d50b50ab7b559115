package queuetest

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

var upkeepChecks = []check{
	{"EmptyCalls", emptyCalls},
	{"ForeignGenerationIsLost", foreignGeneration},
	{"ResetEmptiesAndCloses", resetEmpties},
	{"ScanMeetsWhatStays", scanMeets},
	{"StatsAddUp", statsAddUp},
	{"EndedContext", endedContext},
}

// everyBatch calls each operation on elements with n of them, and hands on the errors by name.
func (f *fixture) everyBatch(ctx context.Context, n int, got func(name string, err error)) {
	items := f.items(0, n)
	settlements, extensions := make([]schedule.Settlement, n), make([]schedule.Extension, n)
	refs, movements := make([]schedule.Ref, n), make([]schedule.Movement, n)
	adoptions, requests := make([]schedule.Adoption, n), make([]schedule.LockRequest, n)
	unlocks, settings, lanes := make([]schedule.Unlock, n), make([]schedule.LaneSetting, n), make([]int64, n)
	for i, item := range items {
		settlements[i] = schedule.Settlement{Item: item, Token: "t", Outcome: schedule.Reschedule, Won: true}
		extensions[i] = schedule.Extension{Ref: item.Ref(), Token: "t", Until: 1}
		refs[i], movements[i] = item.Ref(), schedule.Movement{Ref: item.Ref()}
		adoptions[i] = schedule.Adoption{Item: item, Token: "t", Until: f.Now() + 60_000}
		requests[i], unlocks[i] = f.want("k", item.ID, "t"), schedule.Unlock{Lock: "k", ID: item.ID, Token: "t"}
		settings[i], lanes[i] = schedule.LaneSetting{Lane: int64(i + 1), Limit: 1, Version: 1}, int64(i+1)
	}
	_, err := f.Index.Ensure(ctx, items)
	got("ensure", err)
	_, err = f.Index.Settle(ctx, settlements)
	got("settle", err)
	_, err = f.Index.Extend(ctx, extensions)
	got("extend", err)
	_, err = f.Index.Cancel(ctx, refs)
	got("cancel", err)
	_, err = f.Index.Lookup(ctx, refs)
	got("lookup", err)
	_, err = f.Index.Move(ctx, movements)
	got("move", err)
	_, err = f.Index.Acquire(ctx, requests)
	got("acquire", err)
	_, err = f.Index.Release(ctx, unlocks)
	got("release", err)
	got("adopt", f.Index.Adopt(ctx, adoptions))
	got("set lanes", f.Index.SetLanes(ctx, settings))
	_, err = f.Index.LaneStates(ctx, lanes)
	got("lane states", err)
}

// everyOperation calls each operation that a foreign generation must refuse, and hands on the errors by name.
func (f *fixture) everyOperation(ctx context.Context, got func(name string, err error)) {
	f.everyBatch(ctx, 1, got)
	_, err := f.Index.Claim(ctx, 0, f.wide())
	got("claim", err)
	got("open", f.Index.Open(ctx, 0))
	_, err = f.Index.Audit(ctx, 0, "")
	got("audit", err)
	_, err = f.Index.Scan(ctx, 0, "", 10)
	got("scan", err)
	_, err = f.Index.Stats(ctx, 0)
	got("stats", err)
	_, err = f.Index.Watermark(ctx, 0)
	got("watermark", err)
	_, err = f.Index.MoveWatermark(ctx, 0, schedule.Advance{Horizon: time.Hour, Token: "t"})
	got("move watermark", err)
	_, err = f.Index.Loaded(ctx, 0, "t", 1)
	got("loaded", err)
}

func emptyCalls(f *fixture) {
	f.everyBatch(f.ctx, 0, func(name string, err error) {
		if err != nil {
			f.Fatalf("%s of nothing: %v", name, err)
		}
	})
	if c := f.claim(f.wide()); len(c.Leases) != 0 || c.More || c.Next != 0 || c.Now == 0 {
		f.Fatalf("a claim of an empty index answered %+v", c)
	}
}

func foreignGeneration(f *fixture) {
	item := f.item(0, time.Hour)
	f.ensure(item)
	f.Index.SetGeneration(f.generation + 1)
	f.everyOperation(f.ctx, func(name string, err error) {
		if !errors.Is(err, schedule.ErrLost) {
			f.Fatalf("%s under a foreign generation: %v, want ErrLost", name, err)
		}
	})
	generation, err := f.Index.Generation(f.ctx, 0)
	f.no(err)
	if generation != f.generation {
		f.Fatalf("the shard's generation is %d, want %d", generation, f.generation)
	}
	f.Index.SetGeneration(f.generation)
	f.expectAt(item.Ref(), item.Due)
	if s := f.stats(); s.Delayed != 1 || s.Ready+s.Leased+s.Locks+s.Waiters != 0 {
		f.Fatalf("refused operations changed something: %+v", s)
	}
}

func resetEmpties(f *fixture) {
	f.ensure(f.items(0, 8)...)
	f.take()
	f.acquire(f.want("k", f.id(), "t"), true)
	f.acquire(f.want("k", f.id(), "t"), false)
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], PausedUntil: f.Now() + 3600_000, Version: 9}}))

	f.generation++
	f.Index.SetGeneration(f.generation)
	f.no(f.Index.Reset(f.ctx, 0, f.generation))
	if s := f.stats(); s.Delayed+s.Ready+s.Leased+s.Locks+s.Waiters != 0 || s.Counters["claimed"] != 0 {
		f.Fatalf("after a reset: %+v", s)
	}
	item := f.item(0, 0)
	f.ensure(item)
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: f.item(1, 0), Token: "t", Until: f.Now() + 60_000}}))
	f.no(f.Index.SetLanes(f.ctx, []schedule.LaneSetting{{Lane: f.lanes[0], Limit: 7, Version: 1}}))
	if _, err := f.Index.Claim(f.ctx, 0, f.wide()); !errors.Is(err, schedule.ErrRebuilding) {
		f.Fatalf("a claim of a closed shard: %v, want ErrRebuilding", err)
	}
	for shard := range f.Index.Shards() {
		if shard > 0 {
			f.no(f.Index.Reset(f.ctx, shard, f.generation))
		}
	}
	closedLocks(f)
	for range 2 {
		f.no(f.Index.Open(f.ctx, 0))
	}
	f.takeOne(item.ID)
	for shard := range f.Index.Shards() {
		if shard > 0 {
			f.no(f.Index.Open(f.ctx, shard))
		}
	}
	f.acquire(f.want("k", f.id(), "t"), true)
}

// closedLocks: until a shard is open, a lock may be that of an attempt which has yet to be adopted. Only its
// holder has it.
func closedLocks(f *fixture) {
	waiter := f.id()
	f.acquire(f.want("unknown", waiter, "t"), false)
	running := f.item(1, 0)
	running.Lock = "running"
	f.no(f.Index.Adopt(f.ctx, []schedule.Adoption{{Item: running, Token: "t", Until: f.Now() + 30_000}}))
	f.acquire(schedule.LockRequest{Lock: "running", ID: running.ID, Lane: running.Lane, Token: "t", Until: f.Now() + 60_000}, true)
	f.acquire(f.want("running", f.id(), "t"), false)
	f.release(schedule.Unlock{Lock: "unknown", ID: f.id(), Token: "t"}, waiter)
}

func scanMeets(f *fixture) {
	want := make(map[string]schedule.Item)
	for i := range 5 {
		for _, item := range f.items(i, 100) {
			item.Due += int64(i) * 3600_000
			want[item.ID] = item
			f.ensure(item)
		}
	}
	f.take()
	seen := make(map[string]bool)
	for cursor := ""; ; {
		page, err := f.Index.Scan(f.ctx, 0, cursor, 37)
		f.no(err)
		for _, found := range page.Found {
			if item, ok := want[found.ID]; ok && found.Item != item {
				f.Fatalf("the scan met %+v, want %+v", found.Item, item)
			}
			if found.Place == schedule.Absent {
				f.Fatalf("the scan met %s, which it says is absent", found.ID)
			}
			seen[found.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
		// Others come and go meanwhile.
		passing := f.item(5, time.Hour)
		f.ensure(passing)
		if len(seen)%2 == 0 {
			_, err := f.Index.Cancel(f.ctx, []schedule.Ref{passing.Ref()})
			f.no(err)
		}
	}
	for id := range want {
		if !seen[id] {
			f.Fatalf("the scan did not meet %s, which was there all the time", id)
		}
	}
}

func statsAddUp(f *fixture) {
	f.ensure(f.items(0, 10)...)
	f.ensure(f.item(1, time.Hour), f.item(1, 2*time.Hour))
	head := f.Now() + 3600_000
	leases := f.take()
	f.acquire(f.want("k", leases[0].ID, leases[0].Token), true)
	f.acquire(f.want("k", leases[1].ID, leases[1].Token), false)
	s := f.stats()
	if s.Delayed != 2 || s.Ready != 6 || s.Leased != 4 || s.Quarantined != 0 {
		f.Fatalf("sizes %+v, want 2 delayed, 6 ready, 4 leased", s)
	}
	if s.HeadDue == 0 || s.HeadDue > head {
		f.Fatalf("the head is due at %d, want %d or a little earlier", s.HeadDue, head)
	}
	if f.Index.Shards() == 1 && (s.Locks != 1 || s.Waiters != 1) {
		f.Fatalf("%d locks and %d waiters, want 1 and 1", s.Locks, s.Waiters)
	}
	if s.Now == 0 || s.Next == 0 {
		f.Fatalf("the tick of the stats is empty: %+v", s.Tick)
	}
}

func endedContext(f *fixture) {
	item := f.item(0, 0)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	f.everyOperation(ctx, func(name string, err error) {
		if !errors.Is(err, context.Canceled) {
			f.Fatalf("%s with an ended context: %v", name, err)
		}
	})
	if got := f.ensure(item)[0]; got.Place != schedule.Absent {
		f.Fatalf("a call with an ended context did something: %v", got)
	}
}
