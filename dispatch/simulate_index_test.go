package dispatch_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// The index of a simulation is one in memory that several processes share as they share Redis, with a view
// for each process.

// A simIndex takes the place of Redis. Each call carries the generation that its caller expects.
type simIndex struct {
	mu sync.Mutex
	ix *memq.Index
	// leases are the latest leases by id; a snapshot needs their tokens.
	leases map[string]schedule.Lease
	views  []*indexView
	saved  *savedIndex
}

// A savedIndex is a snapshot of an index.
type savedIndex struct {
	generation int64
	items      []schedule.Item
	leased     []schedule.Lease
	mark       schedule.Watermark
}

// run forwards hints to every process until ctx ends.
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

// wipe empties the index, like FLUSHALL.
func (s *simIndex) wipe(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ix.Reset(ctx, 0, 0)
}

// contents returns the items of the index and its generation.
func (s *simIndex) contents(ctx context.Context) (found []schedule.Found, generation int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.scan(ctx)
}

func (s *simIndex) scan(ctx context.Context) (found []schedule.Found, generation int64, err error) {
	generation, err = s.ix.Generation(ctx, 0)
	if err != nil {
		return nil, 0, err
	}
	s.ix.SetGeneration(generation)
	for cursor := ""; ; {
		page, err := s.ix.Scan(ctx, 0, cursor, 1000)
		if err != nil {
			return nil, 0, err
		}
		found = append(found, page.Found...)
		cursor = page.Next
		if cursor == "" {
			return found, generation, nil
		}
	}
}

// save takes a snapshot, unless the index is being rebuilt.
func (s *simIndex) save(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, generation, err := s.scan(ctx)
	if err != nil || generation == 0 {
		return err
	}
	probe := schedule.ClaimRequest{Owner: "snapshot", Token: "snapshot", Lease: time.Second, LaneLimit: 32}
	if _, err := s.ix.Claim(ctx, 0, probe); err != nil {
		return nil
	}
	saved := &savedIndex{generation: generation}
	saved.mark, err = s.ix.Watermark(ctx, 0)
	if err != nil {
		return err
	}
	for _, f := range found {
		if l, ok := s.leases[f.ID]; ok && f.Place == schedule.Leased {
			saved.leased = append(saved.leased,
				schedule.Lease{Item: f.Item, Token: l.Token, Until: l.Until})
		} else {
			saved.items = append(saved.items, f.Item)
		}
	}
	s.saved = saved
	return nil
}

// restore returns to the snapshot, like a failover to a lagging replica. It reports whether there was one.
func (s *simIndex) restore(ctx context.Context) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.saved == nil {
		return false, nil
	}
	s.ix.SetGeneration(s.saved.generation)
	for _, step := range []func() error{
		func() error { return s.ix.Reset(ctx, 0, s.saved.generation) },
		func() error { _, err := s.ix.Ensure(ctx, s.saved.items); return err },
		func() error { return s.ix.Adopt(ctx, s.saved.leased) },
		func() error { return s.mark(ctx, s.saved.mark) },
		func() error { return s.ix.Open(ctx, 0) },
	} {
		if err := step(); err != nil {
			return false, err
		}
	}
	return true, nil
}

// mark restores the watermark of an index that was just reset, and what is loaded. A mark in the past becomes
// now: those rows are overdue, and the sweep finds them.
func (s *simIndex) mark(ctx context.Context, was schedule.Watermark) error {
	if was.At == schedule.Forever && was.Loaded == schedule.Forever {
		return nil
	}
	loader := ""
	for i, at := range []int64{was.Loaded, was.At} {
		now, err := s.ix.Watermark(ctx, 0)
		if err != nil {
			return err
		}
		a := schedule.Advance{Horizon: time.Duration(max(1, at-now.Now)) * time.Millisecond, After: loader,
			Token: fmt.Sprint("restored", i)}
		if at == schedule.Forever {
			a.Horizon = 0
		}
		if _, err := s.ix.MoveWatermark(ctx, 0, a); err != nil {
			return err
		}
		loader = a.Token
	}
	return nil
}

// An indexView is the index as one process reaches it.
type indexView struct {
	calledIndex
	shared *simIndex
	p      *process
	hints  chan int
	wanted int64 // guarded by shared.mu
	// acquired are the tokens of leases whose locks were acquired, guarded by shared.mu.
	acquired map[string]bool
}

func (s *simIndex) view(p *process) *indexView {
	v := &indexView{shared: s, p: p, hints: make(chan int, 1), acquired: map[string]bool{}}
	v.calledIndex = calledIndex{s.ix, v}
	s.mu.Lock()
	s.views = append(s.views, v)
	s.mu.Unlock()
	return v
}

// call makes a call with the generation that the process expects at this time, even if the call is made
// later.
func (v *indexView) call(ctx context.Context, op string, args []any, do work) (any, error) {
	v.shared.mu.Lock()
	wanted := v.wanted
	if op == "Acquire" {
		for _, lease := range args[0].([]schedule.Lease) {
			if v.acquired[lease.ID+lease.Token] {
				op = "Reacquire" // the second Acquire follows the stamp
			}
			v.acquired[lease.ID+lease.Token] = true
		}
	}
	v.shared.mu.Unlock()
	return v.p.around(ctx, op, errCut, func(ctx context.Context) (any, error) {
		v.shared.mu.Lock()
		defer v.shared.mu.Unlock()
		v.shared.ix.SetGeneration(wanted)
		got, err := do(ctx)
		if claimed, ok := got.(schedule.Claimed); ok {
			for _, lease := range claimed.Leases {
				v.shared.leases[lease.ID] = lease
			}
		}
		if op == "Adopt" {
			for _, one := range args[0].([]schedule.Lease) {
				v.shared.leases[one.ID] = one
			}
		}
		return got, err
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
