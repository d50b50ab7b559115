package dispatch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is a process's view of SQL, and what is remembered of what took effect there.

// A stampSeen is a claim that took effect in SQL.
type stampSeen struct {
	p      *process
	at     time.Time
	until  time.Time // of the claim, as the bubble's clock has it
	fence  int64
	number int
}

type stampKey struct {
	id    string
	fence int64
}

// storeOf is SQL as one process reaches it.
func storeOf(p *process) dispatch.Store {
	return &simStore{&calledStore{&noticed{p.sim.db, p}, sqlOf{p}}, p.sim.plan}
}

// A sqlOf makes a process's calls to SQL.
type sqlOf struct{ p *process }

func (s sqlOf) call(ctx context.Context, op string, _ []any, do work) (any, error) {
	return s.p.around(ctx, op, true, fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, errCut), do)
}

// A simStore has no schedules that the engine looks for every second, and leaves to processes that do not
// exist what its plan does not do.
type simStore struct {
	*calledStore
	plan *plan
}

func (*simStore) NextSchedules(context.Context, int64, int) ([]store.Schedule, error) {
	return nil, nil
}

func (s *simStore) TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error) {
	if !s.plan.folds && (name == "fold" || name == "purge") {
		return false, nil
	}
	return s.calledStore.TryLease(ctx, name, holder, now, ttl)
}

func (s *simStore) Fold(ctx context.Context, now int64) error {
	if !s.plan.folds {
		return nil
	}
	return s.calledStore.Fold(ctx, now)
}

// A noticed store has its simulation remember what took effect.
type noticed struct {
	dispatch.Store
	p *process
}

func (n *noticed) Stamp(ctx context.Context, st store.Stamp) ([]*store.Stamped, []store.Refusal, error) {
	stamped, refused, err := n.Store.Stamp(ctx, st)
	n.p.sim.stamped(n.p, stamped)
	return stamped, refused, err
}

func (n *noticed) Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error) {
	got, err := n.Store.Commit(ctx, results, now)
	n.p.sim.committed(results, got)
	return got, err
}

// EndpointsChanged, ProjectsChanged and Lanes: nothing of that changes in a simulation. A call of theirs can fail, but does
// not read SQL: every process makes each once a second, and they were more than half of the cost.
func (*noticed) EndpointsChanged(context.Context, int64, int) ([]store.Endpoint, error) {
	return nil, nil
}

func (*noticed) ProjectsChanged(context.Context, int64, int) ([]store.Project, error) {
	return nil, nil
}

func (*noticed) Lanes(context.Context, int64, int) ([]store.Lane, error) { return nil, nil }

// stamped remembers claims that took effect.
func (s *simulation) stamped(p *process, list []*store.Stamped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range list {
		w := list[i]
		key := stampKey{w.ID, w.Fence}
		if _, again := s.stamps[key]; again {
			continue // the same token once more
		}
		until := time.Now().Add(time.UnixMilli(w.ClaimUntil).Sub(s.now()))
		s.stamps[key] = stampSeen{p, time.Now(), until, w.Fence, w.AttemptSeq + 1}
	}
}

// committed remembers when the result of a claim first took effect.
func (s *simulation) committed(results []store.Result, got []store.Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range got {
		key := stampKey{results[i].ID, results[i].Fence}
		if _, known := s.results[key]; !known && got[i].Err == nil && got[i].Won {
			s.results[key] = time.Now()
		}
	}
}
