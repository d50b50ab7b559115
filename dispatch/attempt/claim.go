package attempt

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// claimBatch is the most that one claim takes; with many shards less, so that one shard's claim does not
	// reserve the slots of all.
	claimBatch    = 64
	claimBatchMin = 8
	// claimLookahead is how long before its due time a callback is claimed. Its lock and its stamp are done by
	// then. The attempt waits for the due time (ADR 0015).
	claimLookahead = 30 * time.Millisecond
	// backlogWait is how long a claimer that sees work it has no slots for waits before it looks again.
	backlogWait = 20 * time.Millisecond
	// slotsWait is how long a claimer that had no slot waits for more than one.
	slotsWait = 2 * time.Millisecond
	// emptyRounds is how many claims in a row may come back empty-handed though more is there (they promote)
	// before the claimer pauses.
	emptyRounds = 256
)

// runClaims claims what is due in one shard until ctx ends, and hands each batch to be prepared and sent.
func (rn *Runner) runClaims(ctx, sending context.Context, shard int) {
	token := clock.NewToken()
	waker := rn.wakers[shard]
	batch := max(claimBatchMin, min(claimBatch, rn.o.Workers/len(rn.wakers)))
	empty := 0
	var asked time.Time
	var seen index.ShardVersion
	for ctx.Err() == nil {
		if !rn.mayClaim(ctx, waker) {
			continue
		}
		g := rn.slots.reserve(batch)
		if g.n == 0 && time.Since(asked) < schedule.MaxIdle {
			rn.awaitSlots(ctx)
			continue
		}
		sent, generation := time.Now(), rn.generation.Load()
		// without slots, too, now and then: a claim also reaps, and notices an index that is another one
		asked = sent
		claimed, err := rn.claim(ctx, shard, token, g)
		if err != nil {
			rn.slots.settle(g, nil)
			rn.putBackAside(sending, rn.limits.failClaim(shard))
			rn.claimFailed(ctx, waker, err)
			continue
		}
		token = clock.NewToken()
		rn.clock.Observe(claimed.Now, sent)
		rn.slots.settle(g, claimed.Leases)
		again, back := rn.limits.endClaim(shard, claimed.Leases, len(claimed.Leases) < g.n)
		rn.putBackAside(sending, back)
		rn.metrics.claimed(&claimed)
		before := seen.Seq
		if seen.Fell(generation, claimed.Seq) {
			rn.limits.rolledBack(shard)
			rn.attempts.Add(1)
			go func() {
				defer rn.attempts.Done()
				rn.index.RolledBack(ctx, shard, before, claimed.Seq)
			}()
		}
		if len(claimed.Leases) > 0 {
			empty = 0
			part.Failpoint("after_claim")
			rn.attempts.Add(1)
			go func() {
				defer rn.attempts.Done()
				rn.prepare(sending, claimed, sent)
			}()
			if claimed.More || again {
				continue
			}
		} else if again || g.n == 0 {
			continue
		} else if claimed.Next != 0 && claimed.Next <= claimed.Now {
			// There is more to promote. What is only ready, in lanes that have no slot left, is no reason to
			// ask at once.
			empty++
			if empty < emptyRounds {
				continue
			}
		}
		rn.sleep(ctx, waker, &claimed)
	}
}

// awaitSlots waits until slots are free: not for the first alone, which would be claimed for by itself.
func (rn *Runner) awaitSlots(ctx context.Context) {
	timer := time.NewTimer(backlogWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-rn.slots.freed:
	case <-timer.C:
		return
	}
	timer.Reset(slotsWait)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// sleep waits until the shard may have something to do.
func (rn *Runner) sleep(ctx context.Context, waker *schedule.Waker, claimed *schedule.Claimed) {
	idle := schedule.MaxIdle
	if claimed.More {
		idle = backlogWait
	}
	cause := waker.Wait(ctx, rn.clock.Now(), claimed.Next, idle)
	rn.metrics.wakes.WithLabelValues(cause.String()).Inc()
}

// mayClaim says whether claiming makes sense now, and otherwise waits a while.
func (rn *Runner) mayClaim(ctx context.Context, waker *schedule.Waker) bool {
	if rn.draining.Load() {
		<-ctx.Done()
		return false
	}
	if rn.o.SendingOff || rn.index.SQLIsDown() || rn.settler.stuck.Load() {
		waker.Wait(ctx, 0, 0, schedule.MaxIdle)
		return false
	}
	return true
}

// claim asks the shard. A claim whose reply is lost is asked for again with the same token, so the batch is
// not lost with it. It outlives ctx's end, for a batch that nobody hears of waits for its leases to run out.
func (rn *Runner) claim(ctx context.Context, shard int, token string, g grant) (schedule.Claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.Timeout)
	defer cancel()
	lookahead := time.Duration(0)
	if g.early {
		lookahead = claimLookahead // Where slots are scarce they are for what is due.
	}
	ended, prefetch := rn.limits.beginClaim(shard)
	return rn.o.Schedule.Claim(ctx, shard, schedule.ClaimRequest{
		Owner:        rn.o.Name,
		Token:        token,
		Max:          g.n,
		MaxUncertain: g.uncertain,
		MaxTimingOut: g.timingOut,
		Lease:        rn.times.Lease,
		Lookahead:    lookahead,
		LaneLimit:    rn.o.LaneConcurrency,
		Ended:        ended,
		Prefetch:     prefetch,
	})
}

// claimFailed waits before the next claim, and has the index looked after if it is lost.
func (rn *Runner) claimFailed(ctx context.Context, waker *schedule.Waker, err error) {
	rn.index.Failed("claim", err)
	waker.Wait(ctx, 0, 0, schedule.MaxIdle/4)
}

// Wake has the shard claimed.
func (rn *Runner) Wake(shard int) { rn.wakers[shard].Hint() }

// wakeAll has every shard claimed.
func (rn *Runner) wakeAll() {
	for shard := range rn.wakers {
		rn.Wake(shard)
	}
}

// NewGeneration takes over which generation claims are of.
func (rn *Runner) NewGeneration(generation int64) { rn.generation.Store(generation) }

// SettingsChanged puts back what waits in lanes with new settings: it was claimed by the old ones.
func (rn *Runner) SettingsChanged(settings []schedule.LaneSetting) {
	if sending := rn.sending.Load(); sending != nil {
		rn.putBackAside(*sending, rn.limits.changed(settings))
	}
}

// Crowded says whether this process has so much to do that redrives wait.
func (rn *Runner) Crowded() bool {
	return rn.settler.stuck.Load() || len(rn.settler.results) > maxUnsettled/2 ||
		rn.slots.inUse() > rn.o.Workers*3/4
}
