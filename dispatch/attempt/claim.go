package attempt

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// A claim takes at most claimBatch callbacks. With many shards it takes fewer, at least claimBatchMin, so
	// that the claim of one shard does not reserve the slots of all.
	claimBatch    = 64
	claimBatchMin = 8
	// claimLookahead is how long before its due time a callback may be claimed. Its lock and its stamp are
	// then done when it is due. The attempt waits until then (ADR 0015).
	claimLookahead = 30 * time.Millisecond
	// backlogWait is how long a claimer waits before it claims again if work is ready that it has no slots
	// for.
	backlogWait = 20 * time.Millisecond
	// slotsWait is how long a claimer that had no slot waits for further slots after the first free one.
	slotsWait = 2 * time.Millisecond
	// maxEmptyClaims is how many claims in a row may return no lease although items are due, before the
	// claimer waits. Such claims only move items from the delay set to the ready lists.
	maxEmptyClaims = 256
)

// A claimer claims what is due in one shard. Only its own goroutine uses it.
type claimer struct {
	rn    *Runner
	shard int
	waker *schedule.Waker
	// batch is the most leases that one claim takes.
	batch int
	// token of the next claim. It changes only after a claim was answered: an index that executed a claim
	// whose reply was lost returns the same leases again for the same token.
	token string
	// claimedAt is when the last claim was sent.
	claimedAt time.Time
	// version is how far the shard was at the last claim. It shows that a shard was rolled back.
	version index.ShardVersion
	// empty counts claims in a row that returned no lease.
	empty int
	// stopped: since the last claim all sending was stopped.
	stopped bool
}

func (rn *Runner) newClaimer(shard int) *claimer {
	return &claimer{
		rn: rn, shard: shard, waker: rn.wakers[shard], token: clock.NewToken(),
		batch: max(claimBatchMin, min(claimBatch, rn.o.Workers/len(rn.wakers))),
	}
}

// run claims until ctx ends. Each batch is prepared and sent on its own goroutine under sending, which
// lives until the drain is over.
func (c *claimer) run(ctx, sending context.Context) {
	for ctx.Err() == nil {
		if c.rn.mayClaim(ctx, c.waker) && c.mayStart(ctx) {
			c.claim(ctx, sending)
		}
	}
}

// mayStart returns whether the claimer may claim after a stop of all sending. If not, it first waits a while.
// The lanes restart with a low concurrency before the first claim, so that the backlog begins slowly.
func (c *claimer) mayStart(ctx context.Context) bool {
	rn := c.rn
	if rn.index.Stopped() {
		c.stopped = true
		c.waker.Wait(ctx, 0, 0, schedule.MaxIdle)
		return false
	}
	if !c.stopped {
		return true
	}
	sctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	if err := rn.index.SlowStart(sctx, c.shard); err != nil {
		rn.log.Warn("restarting lanes after the stop failed, retrying", "error", err)
		c.waker.Wait(ctx, 0, 0, schedule.MaxIdle)
		return false
	}
	c.stopped = false
	return true
}

// claim makes one claim, starts its batch, and waits if another claim at once would return nothing.
func (c *claimer) claim(ctx, sending context.Context) {
	rn := c.rn
	g := rn.slots.reserve(c.batch)
	// A claim without slots is still made once in MaxIdle: it reaps expired leases, and it notices a lost or
	// rolled-back index.
	if g.n == 0 && time.Since(c.claimedAt) < schedule.MaxIdle {
		rn.awaitSlots(ctx)
		return
	}
	sent, generation := time.Now(), rn.generation.Load()
	c.claimedAt = sent
	claimed, err := rn.claim(ctx, c.shard, c.token, g)
	if err != nil {
		rn.slots.returnUnused(g, nil)
		rn.putBackAsync(sending, rn.limits.failClaim(c.shard))
		rn.claimFailed(ctx, c.waker, err)
		return
	}
	c.token = clock.NewToken()
	rn.clock.Observe(claimed.Now, sent)
	rn.slots.returnUnused(g, claimed.Leases)
	again, back := rn.limits.endClaim(c.shard, claimed.Leases, len(claimed.Leases) < g.n)
	rn.putBackAsync(sending, back)
	rn.metrics.claimed(&claimed)
	c.checkRollback(ctx, generation, claimed.Seq)
	c.prepare(sending, claimed, sent)
	if !c.claimsAtOnce(&claimed, g.n, again) {
		rn.sleep(ctx, c.waker, &claimed)
	}
}

// checkRollback has the index repaired if the shard is in an older state than at the last claim. The
// generation is the one before the claim was sent, so a rebuild in between is not taken for a rollback.
func (c *claimer) checkRollback(ctx context.Context, generation, seq int64) {
	before := c.version.Seq
	if !c.version.Fell(generation, seq) {
		return
	}
	rn := c.rn
	rn.limits.rolledBack(c.shard)
	rn.attempts.Go(func() { rn.index.RolledBack(ctx, c.shard, before, seq) })
}

// prepare starts the goroutine that locks, stamps and launches the batch. The drain waits for it.
func (c *claimer) prepare(sending context.Context, claimed schedule.Claimed, sent time.Time) {
	if len(claimed.Leases) == 0 {
		return
	}
	process.Failpoint("after_claim")
	c.rn.attempts.Go(func() { c.rn.prepare(sending, claimed, sent) })
}

// claimsAtOnce returns whether the next claim follows without a wait. slots is how many slots the last claim
// had. again is the reply of endClaim: a lane wants a claim.
func (c *claimer) claimsAtOnce(claimed *schedule.Claimed, slots int, again bool) bool {
	if len(claimed.Leases) > 0 {
		c.empty = 0
		return claimed.More || again
	}
	if again || slots == 0 {
		return true // without slots, awaitSlots waits
	}
	// A due time that has passed means that the index has more to move to the ready lists. Items that are
	// ready in full lanes are no reason to claim at once.
	if claimed.Next == 0 || claimed.Next > claimed.Now {
		return false
	}
	c.empty++
	return c.empty < maxEmptyClaims
}

// awaitSlots waits until a slot is free, and then a little longer for further ones. A claim for a single slot
// would cost as much as one for a batch.
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

// sleep waits until the shard's next event, a hint, or the end of the idle time, whichever is first.
func (rn *Runner) sleep(ctx context.Context, waker *schedule.Waker, claimed *schedule.Claimed) {
	idle := schedule.MaxIdle
	if claimed.More {
		idle = backlogWait
	}
	cause := waker.Wait(ctx, rn.clock.Now(), claimed.Next, idle)
	rn.metrics.wakes.WithLabelValues(cause.String()).Inc()
}

// mayClaim returns whether the process may claim now. If not, it first waits a while. A process does not
// claim while it drains, while sending is off, or while SQL is down: it could neither stamp a claim nor
// record a result.
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

// claim sends one claim for the slots of the grant. It does not end with ctx: if the process ignored the
// reply, the leases of the batch would be idle until they expire.
func (rn *Runner) claim(ctx context.Context, shard int, token string, g grant) (schedule.Claimed, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.Timeout)
	defer cancel()
	lookahead := time.Duration(0)
	if g.lookahead {
		lookahead = claimLookahead
	}
	ended, prefetch := rn.limits.beginClaim(shard)
	return rn.o.Schedule.Claim(ctx, shard, schedule.ClaimRequest{
		Owner:        rn.o.Name,
		Token:        token,
		Max:          g.n,
		MaxUncertain: g.notAnswering,
		MaxTimingOut: g.timingOut,
		Lease:        rn.times.Lease,
		Lookahead:    lookahead,
		LaneLimit:    rn.o.LaneConcurrency,
		Ended:        ended,
		Prefetch:     prefetch,
	})
}

// claimFailed reports the failure to the index's health, which probes or rebuilds the index, and waits before
// the next claim.
func (rn *Runner) claimFailed(ctx context.Context, waker *schedule.Waker, err error) {
	rn.index.Failed("claim", err)
	waker.Wait(ctx, 0, 0, schedule.MaxIdle/4)
}

// Wake makes the shard's claimer claim at once.
func (rn *Runner) Wake(shard int) { rn.wakers[shard].Hint() }

func (rn *Runner) wakeAll() {
	for shard := range rn.wakers {
		rn.Wake(shard)
	}
}

// NewGeneration sets the generation of the index that the next claims belong to.
func (rn *Runner) NewGeneration(generation int64) { rn.generation.Store(generation) }

// SettingsChanged puts back the callbacks that wait for a place in these lanes: the index granted them under
// the old settings, so the lane may be paused or smaller now. It does nothing before Run.
func (rn *Runner) SettingsChanged(settings []schedule.LaneSetting) {
	if sending := rn.sending.Load(); sending != nil {
		rn.putBackAsync(*sending, rn.limits.settingsChanged(settings))
	}
}

// Crowded returns whether this process is so busy that bulk actions should wait: results cannot be committed
// or fall behind, or more than three quarters of the slots are in use.
func (rn *Runner) Crowded() bool {
	return rn.settler.stuck.Load() || len(rn.settler.results) > maxUnsettled/2 ||
		rn.slots.inUse() > rn.o.Workers*3/4
}
