package dispatch

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// claimBatch is the most that one claim takes; with many shards less, so that one shard's claim does not reserve the
	// slots of all.
	claimBatch    = 64
	claimBatchMin = 8
	// claimLead is how long before its due time a callback is claimed: its lock, its stamp and what these wait for are then behind it
	// when it is due. It is held until then (ADR 0015).
	claimLead = 30 * time.Millisecond
	// indexTimeout bounds every call to the index.
	indexTimeout = 5 * time.Second
	// backlogWait is how long a claimer that sees work it has no slots for waits before it looks again.
	backlogWait = 20 * time.Millisecond
	// slotsWait is how long a claimer that had no slot waits for more than one.
	slotsWait = 2 * time.Millisecond
	// emptyRounds is how many claims in a row may come back empty-handed though more is there (they promote) before the
	// claimer pauses.
	emptyRounds = 256
)

// runClaims claims what is due in one shard until ctx ends, and hands each batch to be prepared and sent.
func (e *Engine) runClaims(ctx, sending context.Context, shard int) {
	token := newToken()
	waker := e.wakers[shard]
	batch := max(claimBatchMin, min(claimBatch, e.o.Workers/len(e.wakers)))
	empty := 0
	var asked time.Time
	var seen tide
	for ctx.Err() == nil {
		if !e.mayClaim(ctx, waker) {
			continue
		}
		g := e.slots.reserve(batch)
		if g.n == 0 && time.Since(asked) < schedule.MaxIdle {
			e.awaitSlots(ctx)
			continue
		}
		sent, generation := time.Now(), e.keeper.get().Generation
		asked = sent // without slots, too, now and then: a claim also reaps, and notices an index that is another one
		claimed, err := e.claim(ctx, shard, token, g)
		if err != nil {
			e.slots.settle(g, nil)
			e.putBackAside(sending, e.limits.failClaim(shard))
			e.claimFailed(ctx, waker, err)
			continue
		}
		token = newToken()
		e.clock.observe(claimed.Now, sent)
		e.slots.settle(g, claimed.Leases)
		again, back := e.limits.endClaim(shard, claimed.Leases, len(claimed.Leases) < g.n)
		e.putBackAside(sending, back)
		e.metrics.claimed(&claimed)
		if before := seen.seq; seen.fell(generation, claimed.Seq) {
			e.limits.rolledBack(shard)
			e.attempts.Add(1)
			go func() {
				defer e.attempts.Done()
				e.rolledBack(ctx, shard, before, claimed.Seq)
			}()
		}
		if len(claimed.Leases) > 0 {
			empty = 0
			failpoint("after_claim")
			e.attempts.Add(1)
			go func() {
				defer e.attempts.Done()
				e.prepare(sending, claimed, sent)
			}()
			if claimed.More || again {
				continue
			}
		} else if again || g.n == 0 {
			continue
		} else if claimed.Next != 0 && claimed.Next <= claimed.Now {
			// There is more to promote. What is only ready, in lanes that have no slot left, is no reason to ask at once.
			if empty++; empty < emptyRounds {
				continue
			}
		}
		e.sleep(ctx, waker, &claimed)
	}
}

// awaitSlots waits until slots are free: not for the first alone, which would be claimed for by itself.
func (e *Engine) awaitSlots(ctx context.Context) {
	timer := time.NewTimer(backlogWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-e.slots.freed:
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
func (e *Engine) sleep(ctx context.Context, waker *schedule.Waker, claimed *schedule.Claimed) {
	idle := schedule.MaxIdle
	if claimed.More {
		idle = backlogWait
	}
	cause := waker.Wait(ctx, e.clock.now(), claimed.Next, idle)
	e.metrics.wakes.WithLabelValues(cause.String()).Inc()
}

// mayClaim says whether claiming makes sense now, and otherwise waits a while.
func (e *Engine) mayClaim(ctx context.Context, waker *schedule.Waker) bool {
	if e.draining.Load() {
		<-ctx.Done()
		return false
	}
	if e.o.Hold || e.trouble.sqlIsDown() || e.settler.stuck.Load() {
		waker.Wait(ctx, 0, 0, schedule.MaxIdle)
		return false
	}
	return true
}

// claim asks the shard. A claim whose reply is lost is asked for again with the same token, so the batch is not lost with
// it. It outlives ctx's end, for a batch that nobody hears of waits for its leases to run out.
func (e *Engine) claim(ctx context.Context, shard int, token string, g grant) (schedule.Claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), indexTimeout)
	defer cancel()
	lead := time.Duration(0)
	if g.early {
		lead = claimLead // Where slots are scarce they are for what is due.
	}
	ended, prefetch := e.limits.beginClaim(shard)
	return e.o.Schedule.Claim(ctx, shard, schedule.ClaimRequest{
		Owner:        e.o.Name,
		Token:        token,
		Max:          g.n,
		MaxUncertain: g.uncertain,
		MaxTimingOut: g.timingOut,
		Lease:        e.times.lease,
		Lead:         lead,
		LaneLimit:    e.o.LaneConcurrency,
		Ended:        ended,
		Prefetch:     prefetch,
	})
}

// claimFailed waits before the next claim, and has the index looked after if it is lost.
func (e *Engine) claimFailed(ctx context.Context, waker *schedule.Waker, err error) {
	switch {
	case errors.Is(err, schedule.ErrLost):
		e.keeper.lost()
	case errors.Is(err, schedule.ErrRebuilding):
		e.keeper.closed()
	default:
		e.trouble.indexFailed("claim", err)
	}
	waker.Wait(ctx, 0, 0, schedule.MaxIdle/4)
}
