package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// This file is the index: one in memory that several processes share as they share Redis, and each process's view of it.

// A simIndex is what stands for Redis. Which generation a caller expects comes with each of its calls.
type simIndex struct {
	mu sync.Mutex
	ix *memq.Index
	// leases are the last ones that claims gave out, by id: a snapshot needs their tokens.
	leases map[string]schedule.Lease
	views  []*indexView
	saved  *savedIndex
}

// A savedIndex is what an index was at a time.
type savedIndex struct {
	generation int64
	items      []schedule.Item
	leased     []schedule.Adoption
	mark       schedule.Watermark
}

func newSimIndex(now func() time.Time) *simIndex {
	return &simIndex{ix: memq.New(memq.Options{Now: now}), leases: map[string]schedule.Lease{}}
}

// run passes hints on to every process until the context ends.
func (s *simIndex) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.ix.Hints():
		}
		s.mu.Lock()
		for _, v := range s.views {
			select {
			case v.hints <- 0:
			default:
			}
		}
		s.mu.Unlock()
	}
}

// wipe empties it, as FLUSHALL does.
func (s *simIndex) wipe(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ix.Reset(ctx, 0, 0)
}

// save keeps what the index is now, to come back to. An index that is being rebuilt is not kept.
func (s *simIndex) save(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation, err := s.ix.Generation(ctx, 0)
	if err != nil || generation == 0 {
		return err
	}
	s.ix.SetGeneration(generation)
	if _, err := s.ix.Claim(ctx, 0, schedule.ClaimRequest{Owner: "snapshot", Token: "snapshot", Lease: time.Second, LaneLimit: 32}); err != nil {
		return nil
	}
	saved := &savedIndex{generation: generation}
	if saved.mark, err = s.ix.Watermark(ctx, 0); err != nil {
		return err
	}
	for cursor := ""; ; {
		page, err := s.ix.Scan(ctx, 0, cursor, 1000)
		if err != nil {
			return err
		}
		for _, f := range page.Found {
			if l, ok := s.leases[f.ID]; ok && f.Place == schedule.Leased {
				saved.leased = append(saved.leased, schedule.Adoption{Item: f.Item, Token: l.Token, Until: l.Until})
				continue
			}
			saved.items = append(saved.items, f.Item)
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	s.saved = saved
	return nil
}

// restore comes back to what was kept, as a replica does that lagged behind, and says whether anything was.
func (s *simIndex) restore(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		return false, nil
	}
	if err := s.ix.Reset(ctx, 0, s.saved.generation); err != nil {
		return false, err
	}
	s.ix.SetGeneration(s.saved.generation)
	if _, err := s.ix.Ensure(ctx, s.saved.items); err != nil {
		return false, err
	}
	if err := s.ix.Adopt(ctx, s.saved.leased); err != nil {
		return false, err
	}
	if err := s.mark(ctx, s.saved.mark); err != nil {
		return false, err
	}
	return true, s.ix.Open(ctx, 0)
}

// contents lists what the index holds now.
func (s *simIndex) contents(ctx context.Context) ([]schedule.Found, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation, err := s.ix.Generation(ctx, 0)
	if err != nil {
		return nil, err
	}
	s.ix.SetGeneration(generation)
	var found []schedule.Found
	for cursor := ""; ; {
		page, err := s.ix.Scan(ctx, 0, cursor, 1000)
		if err != nil {
			return nil, err
		}
		found = append(found, page.Found...)
		if cursor = page.Next; cursor == "" {
			return found, nil
		}
	}
}

// An indexView is the index as one process reaches it.
type indexView struct {
	*simIndex
	p      *process
	hints  chan int
	wanted int64 // guarded by simIndex.mu
}

func (s *simIndex) view(p *process) *indexView {
	v := &indexView{simIndex: s, p: p, hints: make(chan int, 1)}
	s.mu.Lock()
	s.views = append(s.views, v)
	s.mu.Unlock()
	return v
}

// ask makes one call of the process, with the generation that it expects when it makes it: a call that is late still expects
// that one. What the call carries is copied by whoever asks, for it is sent before its caller goes on to use it for something else.
func ask[T any](ctx context.Context, v *indexView, op string, do func(context.Context, *memq.Index) (T, error)) (T, error) {
	v.mu.Lock()
	wanted := v.wanted
	v.mu.Unlock()
	return around(ctx, v.p, op, errCut, func(ctx context.Context) (T, error) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.ix.SetGeneration(wanted)
		return do(ctx, v.ix)
	})
}

func told(ctx context.Context, v *indexView, op string, do func(context.Context, *memq.Index) error) error {
	_, err := ask(ctx, v, op, func(ctx context.Context, ix *memq.Index) (int, error) { return 0, do(ctx, ix) })
	return err
}

func (*indexView) Shards() int { return 1 }

func (v *indexView) SetGeneration(generation int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.wanted = generation
}

func (v *indexView) Hints() <-chan int { return v.hints }

func (*indexView) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (v *indexView) Generation(ctx context.Context, shard int) (int64, error) {
	return ask(ctx, v, "Generation", func(ctx context.Context, ix *memq.Index) (int64, error) { return ix.Generation(ctx, shard) })
}

func (v *indexView) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	items = slices.Clone(items)
	return ask(ctx, v, "Ensure", func(ctx context.Context, ix *memq.Index) ([]schedule.Position, error) { return ix.Ensure(ctx, items) })
}

func (v *indexView) Claim(ctx context.Context, shard int, r schedule.ClaimRequest) (schedule.Claimed, error) {
	return ask(ctx, v, "Claim", func(ctx context.Context, ix *memq.Index) (schedule.Claimed, error) {
		got, err := ix.Claim(ctx, shard, r)
		for _, l := range got.Leases {
			v.leases[l.ID] = l
		}
		return got, err
	})
}

func (v *indexView) Settle(ctx context.Context, s []schedule.Settlement) ([]schedule.Settled, error) {
	s = slices.Clone(s)
	return ask(ctx, v, "Settle", func(ctx context.Context, ix *memq.Index) ([]schedule.Settled, error) { return ix.Settle(ctx, s) })
}

func (v *indexView) Extend(ctx context.Context, e []schedule.Extension) ([]bool, error) {
	e = slices.Clone(e)
	return ask(ctx, v, "Extend", func(ctx context.Context, ix *memq.Index) ([]bool, error) { return ix.Extend(ctx, e) })
}

func (v *indexView) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	refs = slices.Clone(refs)
	return ask(ctx, v, "CancelItems", func(ctx context.Context, ix *memq.Index) ([]schedule.Position, error) { return ix.Cancel(ctx, refs) })
}

func (v *indexView) Move(ctx context.Context, m []schedule.Movement) ([]schedule.Moved, error) {
	m = slices.Clone(m)
	return ask(ctx, v, "Move", func(ctx context.Context, ix *memq.Index) ([]schedule.Moved, error) { return ix.Move(ctx, m) })
}

func (v *indexView) Acquire(ctx context.Context, r []schedule.LockRequest) ([]schedule.LockReply, error) {
	r = slices.Clone(r)
	return ask(ctx, v, "Acquire", func(ctx context.Context, ix *memq.Index) ([]schedule.LockReply, error) { return ix.Acquire(ctx, r) })
}

func (v *indexView) Release(ctx context.Context, u []schedule.Unlock) ([]schedule.Waiter, error) {
	u = slices.Clone(u)
	return ask(ctx, v, "Release", func(ctx context.Context, ix *memq.Index) ([]schedule.Waiter, error) { return ix.Release(ctx, u) })
}

func (v *indexView) Reset(ctx context.Context, shard int, generation int64) error {
	return told(ctx, v, "Reset", func(ctx context.Context, ix *memq.Index) error { return ix.Reset(ctx, shard, generation) })
}

func (v *indexView) Adopt(ctx context.Context, a []schedule.Adoption) error {
	a = slices.Clone(a)
	return told(ctx, v, "Adopt", func(ctx context.Context, ix *memq.Index) error {
		for _, one := range a {
			v.leases[one.ID] = schedule.Lease{Item: one.Item, Token: one.Token, Until: one.Until}
		}
		return ix.Adopt(ctx, a)
	})
}

func (v *indexView) Open(ctx context.Context, shard int) error {
	return told(ctx, v, "OpenShard", func(ctx context.Context, ix *memq.Index) error { return ix.Open(ctx, shard) })
}

func (v *indexView) SetLanes(ctx context.Context, s []schedule.LaneSetting) error {
	s = slices.Clone(s)
	return told(ctx, v, "SetLanes", func(ctx context.Context, ix *memq.Index) error { return ix.SetLanes(ctx, s) })
}

func (v *indexView) Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error) {
	return ask(ctx, v, "Audit", func(ctx context.Context, ix *memq.Index) (schedule.AuditPage, error) {
		return ix.Audit(ctx, shard, cursor)
	})
}

func (v *indexView) Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error) {
	return ask(ctx, v, "Scan", func(ctx context.Context, ix *memq.Index) (schedule.ScanPage, error) {
		return ix.Scan(ctx, shard, cursor, limit)
	})
}

func (v *indexView) Stats(ctx context.Context, shard int) (schedule.Stats, error) {
	return ask(ctx, v, "Stats", func(ctx context.Context, ix *memq.Index) (schedule.Stats, error) { return ix.Stats(ctx, shard) })
}

func (v *indexView) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ask(ctx, v, "Lookup", func(ctx context.Context, ix *memq.Index) ([]schedule.Position, error) { return ix.Lookup(ctx, refs) })
}

func (v *indexView) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	return ask(ctx, v, "LaneStates", func(ctx context.Context, ix *memq.Index) ([]schedule.LaneState, error) {
		return ix.LaneStates(ctx, lanes)
	})
}
