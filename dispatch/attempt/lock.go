package attempt

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// lock takes the locks of those leases that need one and returns the leases that may go on. Conflicts are
// diverted: they cost no attempt, and touch the index only.
func (rn *Runner) lock(ctx context.Context, leases []schedule.Lease, now int64) []schedule.Lease {
	var requests []schedule.Lease
	var places []int
	for i := range leases {
		if l := &leases[i]; l.Lock != "" {
			requests = append(requests, *l)
			places = append(places, i)
		}
	}
	if len(requests) == 0 {
		return leases
	}
	lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rn.index.CallTime())
	replies, err := rn.o.Schedule.Acquire(lctx, requests)
	cancel()
	if err != nil {
		rn.index.Failed("acquire", err)
	}
	diverted := make([]schedule.Settlement, 0, len(requests))
	conflict := make(map[int]bool, len(requests))
	for k, i := range places {
		// Shards that answered have been read, whatever the others did.
		if k < len(replies) && replies[k].Acquired {
			continue
		}
		conflict[i] = true
		if err != nil {
			rn.index.Locked(&leases[i]) // it may have been taken all the same
		}
		s := schedule.Settlement{Item: leases[i].Item, Token: leases[i].Token, Outcome: schedule.Divert}
		s.Due = now + conflictDelay(leases[i].Diverts).Milliseconds()
		diverted = append(diverted, s)
	}
	if len(conflict) == 0 {
		return leases
	}
	rn.metrics.diverted.WithLabelValues("lock_conflict").Add(float64(len(diverted)))
	rn.index.Settle(ctx, diverted)
	rn.index.HintOnlyShard()
	kept := make([]schedule.Lease, 0, len(leases)-len(conflict))
	for i := range leases {
		if conflict[i] {
			rn.drop(ctx, &leases[i])
			continue
		}
		kept = append(kept, leases[i])
	}
	return kept
}

// conflictDelay is a waiter's own timer: it heals a release that was lost. 1 to 3 s at first, up to 30 s.
func conflictDelay(diverts int) time.Duration {
	base := time.Second + rand.N(2*time.Second)
	return min(base<<min(diverts, 5), 30*time.Second)
}

// unlockTimeout is how long the result of an attempt waits for its lock to be released: an index that hangs
// must not use up what is left of the claim.
const unlockTimeout = 100 * time.Millisecond

// unlockInTime releases the lease's lock, if it has one, and returns when that is done or takes too long; the
// channel, nil without a lock, is closed when it is done.
func (rn *Runner) unlockInTime(ctx context.Context, l *schedule.Lease) <-chan struct{} {
	if l.Lock == "" {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		rn.index.Unlock(ctx, l)
	}()
	timer := time.NewTimer(unlockTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return done
}
