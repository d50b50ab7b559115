package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// healthAge is how long an answer about SQL's health is good for: probes must not be a load of their own.
const healthAge = time.Second

// A warner is an index on a server that may lose parts of it, as one that evicts does, and says why.
type warner interface{ Warnings() []string }

type healthCache struct {
	mu  sync.Mutex
	at  time.Time
	err error
	// failing is since when err is what is said.
	failing time.Time
}

// Health says whether this process can do its work. SQL that cannot commit and a drain make it unready; an index that does not
// answer or is being rebuilt only degrades it, for accepting goes on.
func (e *Engine) Health(ctx context.Context) Health {
	h := Health{Ready: true}
	if e.trouble.indexDown.Load() || e.keeper.degraded() || e.keeper.foreign.Load() != 0 {
		h.Degraded = append(h.Degraded, "redis")
	}
	if w, ok := e.o.Schedule.(warner); ok && len(w.Warnings()) > 0 {
		h.Degraded = append(h.Degraded, "redis_unsafe")
	}
	if e.unreadable.lately() {
		h.Degraded = append(h.Degraded, "secrets")
	}
	if e.o.Hold {
		h.Degraded = append(h.Degraded, "held")
	}
	if e.draining.Load() {
		h.Ready, h.Why = false, "draining"
		return h
	}
	if err := e.pingSQL(ctx); err != nil {
		h.Ready, h.Why = false, "SQL cannot commit"
	}
	return h
}

func (e *Engine) pingSQL(ctx context.Context) error {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	if !e.health.at.IsZero() && time.Since(e.health.at) < healthAge {
		return e.health.err
	}
	// The answer is everybody's for a while: a prober that hangs up must not make it "no".
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	e.health.err = e.o.Store.Ping(ctx)
	e.health.at = time.Now()
	if e.health.err == nil {
		e.health.failing = time.Time{}
	} else if e.health.failing.IsZero() {
		e.health.failing = e.health.at
	}
	return e.health.err
}

// Stats sums the sizes of the index over its shards. Now, Next and Seq are the first shard's.
func (e *Engine) Stats(ctx context.Context) (schedule.Stats, error) {
	var sum schedule.Stats
	for shard := range e.o.Schedule.Shards() {
		s, err := e.o.Schedule.Stats(ctx, shard)
		if err != nil {
			return sum, fmt.Errorf("stats of shard %d: %w", shard, err)
		}
		if shard == 0 {
			sum = s
			continue
		}
		sum.Delayed += s.Delayed
		sum.Ready += s.Ready
		sum.Leased += s.Leased
		sum.RunnableLanes += s.RunnableLanes
		sum.BlockedLanes += s.BlockedLanes
		sum.OpenBreakers += s.OpenBreakers
		sum.Locks += s.Locks
		sum.Waiters += s.Waiters
		sum.Quarantined += s.Quarantined
		if s.HeadDue != 0 && (sum.HeadDue == 0 || s.HeadDue < sum.HeadDue) {
			sum.HeadDue = s.HeadDue
		}
		for name, n := range s.Counters {
			sum.Counters[name] += n
		}
	}
	return sum, nil
}
