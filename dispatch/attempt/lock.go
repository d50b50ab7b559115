package attempt

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// lock acquires the locks of the leases that have a lock key, after the claim and before the stamp. It
// returns the leases that may go on. The others are diverted: the lock is held or kept for a waiter, and they
// join its queue, or the call failed. A divert costs no attempt and changes only the index; SQL keeps the due
// time. now is the index's clock in Unix milliseconds. The caller must not reuse the array of leases: locks
// that are uncertain are remembered by pointers into it.
//
// If the process dies after lock, the locks expire with the leases. A lock keeps attempts apart; what
// prevents a double send is the fence in SQL.
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
		// An error of one shard leaves the replies of the others valid.
		if k < len(replies) && replies[k].Acquired {
			continue
		}
		conflict[i] = true
		if err != nil {
			rn.index.MissedUnlocks(&leases[i]) // the lock may have been taken although the call failed
		}
		s := schedule.Settlement{Item: leases[i].Item, Token: leases[i].Token, Outcome: schedule.Divert,
			Cause: schedule.LockConflict}
		s.Due = now + conflictDelay(leases[i].Diverts).Milliseconds()
		diverted = append(diverted, s)
	}
	if len(conflict) == 0 {
		return leases
	}
	rn.metrics.diverted.WithLabelValues(divertLockConflict).Add(float64(len(diverted)))
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

// conflictDelay is how long a waiter waits before it tries the lock again. A release moves it forward, so
// this timer only repairs a lost release. It is 1 to 3 s at first and doubles up to 30 s.
func conflictDelay(diverts int) time.Duration {
	base := time.Second + rand.N(2*time.Second)
	return min(base<<min(diverts, 5), 30*time.Second)
}

// unlockTimeout is how long a result waits for the release of its lock. With an index that hangs, a longer
// wait could let the claim expire before the result is committed.
const unlockTimeout = 100 * time.Millisecond

// unlockInTime releases the lease's lock and returns when that is done or unlockTimeout has passed. The
// channel is closed when the release is done; it is nil for a lease without a lock.
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
