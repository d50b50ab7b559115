package queuetest

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// promoteAll makes due items ready.
func (f *fixture) promoteAll() {
	f.Helper()
	for s := f.stats(); s.HeadDue != 0 && s.HeadDue <= s.Now; s = f.stats() {
		req := f.wide()
		req.Max = 0 // so that it only promotes and reaps
		f.claim(req)
	}
}

// lanesHaveShards checks that an item is in the shard that ShardOf returns for its lane.
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
				f.Fatalf("lane %d is in shard %d, but ShardOf says %d", item.Lane, shard,
					f.Index.ShardOf(item.Lane))
			}
			found++
		}
	}
	if found != len(items) {
		f.Fatalf("the shards have %d of %d items", found, len(items))
	}
}

// scanFinds checks that a scan returns every item that stays, while others come and go.
func scanFinds(f *fixture) {
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
		f.noErr(err)
		for _, found := range page.Found {
			if item, ok := want[found.ID]; ok && found.Item != item {
				f.Fatalf("the scan met %+v, want %+v", found.Item, item)
			}
			if found.Place == schedule.Absent {
				f.Fatalf("the scan met %s, which it says is absent", found.ID)
			}
			seen[found.ID] = true
		}
		cursor = page.Next
		if cursor == "" {
			break
		}
		// Other items come and go meanwhile.
		passing := f.item(5, time.Hour)
		f.ensure(passing)
		if len(seen)%2 == 0 {
			_, err := f.Index.Cancel(f.ctx, []schedule.Ref{passing.Ref()})
			f.noErr(err)
		}
	}
	for id := range want {
		if !seen[id] {
			f.Fatalf("the scan did not meet %s, which was there all the time", id)
		}
	}
}

// A call is an operation without its reply.
type call = func() error

// calls returns the operations of Index whose first argument is of a kind, by name. argument returns an
// argument of a type.
func (f *fixture) calls(
	ctx context.Context, first reflect.Kind, argument func(reflect.Type) any,
) map[string]call {
	calls := make(map[string]call)
	for m := range reflect.TypeFor[Index]().Methods() {
		do := reflect.ValueOf(f.Index).MethodByName(m.Name)
		if do.Type().NumIn() < 2 || do.Type().In(1).Kind() != first {
			continue
		}
		calls[m.Name] = func() error {
			args := []reflect.Value{reflect.ValueOf(ctx)}
			for i := 1; i < do.Type().NumIn(); i++ {
				args = append(args, reflect.ValueOf(argument(do.Type().In(i))))
			}
			_, err := splitResults(do.Call(args))
			return err
		}
	}
	return calls
}

// onElements returns the operations on elements, each with one element for each item.
func (f *fixture) onElements(ctx context.Context, items ...schedule.Item) map[string]call {
	return f.calls(ctx, reflect.Slice, func(of reflect.Type) any {
		elements := reflect.MakeSlice(of, len(items), len(items))
		for i, item := range items {
			item.Lock = "k"
			known := struct {
				schedule.Lease
				Outcome schedule.Outcome
				Won     bool
				Gone    []string
				Limit   int
				Version int64
			}{
				schedule.Lease{Item: item, Token: "t", Until: f.Now() + 60_000},
				schedule.Reschedule, true, []string{item.ID}, 1, 1,
			}
			if e := elements.Index(i); e.Kind() == reflect.Int64 {
				e.SetInt(item.Lane)
			} else {
				share(e, reflect.ValueOf(known))
			}
		}
		return elements.Interface()
	})
}

// onShard returns the operations on a shard.
func (f *fixture) onShard(ctx context.Context, shard int) map[string]call {
	return f.calls(ctx, reflect.Int, func(of reflect.Type) any {
		switch of {
		case reflect.TypeFor[int]():
			return shard
		case reflect.TypeFor[schedule.ClaimRequest]():
			return f.wide()
		case reflect.TypeFor[schedule.Advance]():
			return schedule.Advance{Horizon: time.Hour, Token: "t"}
		}
		return reflect.Zero(of).Interface()
	})
}

// refusals checks that a refused call changes nothing. Package schedule defines, and tests, what is invalid.
func refusals(f *fixture) {
	expect := func(want error, calls map[string]call) {
		f.Helper()
		for name, do := range calls {
			if err := do(); !errors.Is(err, want) {
				f.Fatalf("%s: %v, want %v", name, err, want)
			}
		}
	}
	many := f.items(0, schedule.MaxBatch+1)
	expect(nil, f.onElements(f.ctx))
	expect(schedule.ErrTooMany, f.onElements(f.ctx, many...))
	expect(schedule.ErrInvalid, f.onElements(f.ctx, many[0], schedule.Item{}))
	bad, ix := f.wide(), f.Index
	bad.Max = -1
	expect(schedule.ErrInvalid, map[string]call{
		"claim": func() error { _, err := ix.Claim(f.ctx, 0, bad); return err },
		"move watermark": func() error {
			_, err := ix.MoveWatermark(f.ctx, 0, schedule.Advance{Horizon: 1})
			return err
		},
		"loaded": func() error { _, err := ix.Loaded(f.ctx, 0, "\t", 1); return err },
	})
	for _, shard := range []int{-1, ix.Shards()} {
		expect(schedule.ErrInvalid, f.onShard(f.ctx, shard))
	}
	ended, cancel := context.WithCancel(f.ctx)
	cancel()
	expect(context.Canceled, f.onElements(ended, many[0]))
	expect(context.Canceled, f.onShard(ended, 0))
	ix.SetGeneration(f.generation + 1)
	expect(schedule.ErrLost, f.onElements(f.ctx, many[0]))
	lost := f.onShard(f.ctx, 0)
	delete(lost, "Generation")
	delete(lost, "Reset")
	expect(schedule.ErrLost, lost)
	if generation, err := ix.Generation(f.ctx, 0); err != nil || generation != f.generation {
		f.Fatalf("the shard's generation is %d, %v; want %d", generation, err, f.generation)
	}
	ix.SetGeneration(f.generation)
	s := f.stats()
	empty := s.Delayed+s.Ready+s.Leased+s.Locks+s.Waiters == 0
	if !empty || f.watermark().At != schedule.Forever {
		f.Fatalf("refused calls changed something: %+v", s)
	}
	f.ensure(many...) // in full batches
	if s := f.stats(); s.Delayed != int64(len(many)) {
		f.Fatalf("%d of %d items were ensured in full batches", s.Delayed, len(many))
	}
}
