package memq

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// maxTold is up to where ready items of a lane are counted.
const maxTold = 1000

// LaneStates says how lanes stand, and changes nothing. A lane that the index does not know stands as one that never had anything.
func (ix *Index) LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error) {
	err := checkAll("lane states", len(lanes), func(i int) error {
		if lanes[i] <= 0 {
			return fmt.Errorf("lane %d: %w", lanes[i], schedule.ErrInvalid)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.begin(ctx); err != nil {
		return nil, err
	}
	states := make([]schedule.LaneState, len(lanes))
	for i, number := range lanes {
		l := ix.lanes[number]
		if l == nil {
			l = &lane{number: number}
		}
		states[i] = ix.state(l)
	}
	return states, nil
}

func (ix *Index) state(l *lane) schedule.LaneState {
	s := schedule.LaneState{
		Lane: l.number, InFlight: l.inflight, Health: l.health,
		Fresh: len(l.fresh), Retries: len(l.retry),
	}
	if limit := ix.limitOf(l); limit < unlimited {
		s.Limit, s.Concurrency = limit, ix.concurrency(l)
	}
	if l.pausedUntil > 0 && l.pausedUntil <= ix.clock {
		s.Concurrency = min(s.Concurrency, schedule.StartConcurrency) // as it will be when somebody looks
	}
	if l.pausedUntil > ix.clock {
		s.PausedUntil = l.pausedUntil
	}
	if l.heldUntil > ix.steady() {
		s.HeldUntil, s.HeldSince = ix.wall(l.heldUntil), ix.wall(l.heldSince)
	}
	if f := l.flow; f != nil {
		s.Fresh += len(f.forced)
		s.Retries += len(f.forcedRetry)
		s.Every = time.Duration(f.every)
		if f.every > 0 && ix.tokens(f) == 0 {
			s.NextToken = ix.wall(f.next())
		}
		if f.fails > 0 {
			s.Unanswered, s.UnansweredSince = f.fails, ix.wall(f.since)
		}
		if f.probe > 0 {
			s.Breaker, s.ProbeAt, s.OpenedAt = schedule.BreakerOpen, ix.wall(f.probe), ix.wall(f.opened)
		}
		if f.probe > 0 && f.probe <= ix.steady() {
			s.Breaker = schedule.BreakerProbing
		}
	}
	s.Fresh, s.Retries = min(s.Fresh, maxTold), min(s.Retries, maxTold)
	return s
}
