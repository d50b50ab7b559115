package dispatch_test

import (
	"context"
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
	leased     []schedule.Lease
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
				saved.leased = append(saved.leased, schedule.Lease{Item: f.Item, Token: l.Token, Until: l.Until})
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
	calledIndex
	shared *simIndex
	p      *process
	hints  chan int
	wanted int64 // guarded by shared.mu
}

func (s *simIndex) view(p *process) *indexView {
	v := &indexView{shared: s, p: p, hints: make(chan int, 1)}
	v.calledIndex = calledIndex{leasing{s.ix, s}, v}
	s.mu.Lock()
	s.views = append(s.views, v)
	s.mu.Unlock()
	return v
}

// call makes a call with the generation that the process expects when it makes it: a call that is late still
// expects that one.
func (v *indexView) call(ctx context.Context, op string, _ []any, do work) (any, error) {
	v.shared.mu.Lock()
	wanted := v.wanted
	v.shared.mu.Unlock()
	return v.p.around(ctx, op, false, errCut, func(ctx context.Context) (any, error) {
		v.shared.mu.Lock()
		defer v.shared.mu.Unlock()
		v.shared.ix.SetGeneration(wanted)
		return do(ctx)
	})
}

func (v *indexView) SetGeneration(generation int64) {
	v.shared.mu.Lock()
	defer v.shared.mu.Unlock()
	v.wanted = generation
}

func (v *indexView) Hints() <-chan int { return v.hints }

func (*indexView) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// leasing is the index with an eye on the leases that it gives out.
type leasing struct {
	*memq.Index
	shared *simIndex
}

func (l leasing) Claim(ctx context.Context, shard int, r schedule.ClaimRequest) (schedule.Claimed, error) {
	got, err := l.Index.Claim(ctx, shard, r)
	for _, lease := range got.Leases {
		l.shared.leases[lease.ID] = lease
	}
	return got, err
}

func (l leasing) Adopt(ctx context.Context, list []schedule.Lease) error {
	for _, one := range list {
		l.shared.leases[one.ID] = one
	}
	return l.Index.Adopt(ctx, list)
}
