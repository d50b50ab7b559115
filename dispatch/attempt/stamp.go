package attempt

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxClaimsWithoutResult is how many claims in a row may end without a result before the callback is dead.
const maxClaimsWithoutResult = 5

// prepare takes a claimed batch to its attempts: locks for those that need one, one stamp for all that
// remain, and a goroutine for each that SQL says is ours. Whatever falls out on the way is put back and frees
// its slot. The claim was asked for at sent: from then on its leases may run, however late its reply was
// read.
func (rn *Runner) prepare(ctx context.Context, claimed schedule.Claimed, sent time.Time) {
	leases := rn.lock(ctx, claimed.Leases, claimed.Now)
	if len(leases) == 0 {
		return
	}
	part.Failpoint("after_lock")
	byID := make(map[string]*schedule.Lease, len(leases))
	s := store.Stamp{
		Token:           leases[0].Token,
		Now:             claimed.Now,
		Lookahead:       claimLookahead.Milliseconds(),
		Margin:          rn.times.Margin.Milliseconds(),
		QuarantineAfter: quarantineAfter,
		Claims:          make([]store.StampClaim, len(leases)),
	}
	for i := range leases {
		byID[leases[i].ID] = &leases[i]
		s.Claims[i] = store.StampClaim{ID: leases[i].ID, Diverts: leases[i].Diverts}
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.SQLTimeout)
	stamped, refused, err := rn.o.Store.Stamp(sctx, s)
	cancel()
	if err != nil {
		rn.stampFailed(ctx, err, s, leases)
		return
	}
	rn.index.SQLWorked()
	part.Failpoint("after_stamp")
	quarantined, refused := splitQuarantined(byID, refused)
	rn.refuse(ctx, byID, refused)
	var early []ready
	for i := range stamped {
		lease, ok := byID[stamped[i].ID]
		if !ok {
			rn.log.Error("stamp returned a callback that was not asked for", "callback_id", stamped[i].ID)
			continue
		}
		// What waits to begin counts as an attempt under way: a drain waits for it.
		rn.attempts.Add(1)
		r := ready{cb: stamped[i], lease: lease, claimed: sent,
			notBefore: dueFrom(sent, claimed.Now, stamped[i].DueAt)}
		if rn.untilDue(&r) > 0 {
			early = append(early, r)
			continue
		}
		rn.launch(ctx, r)
	}
	if len(quarantined) > 0 {
		rn.attempts.Add(1)
		go func() {
			defer rn.attempts.Done()
			rn.attemptQuarantined(ctx, quarantined, sent)
		}()
	}
	rn.launchWhenDue(ctx, early)
}

// launch begins a stamped attempt, or has it wait until others have ended. In a lane that is paused or
// stopped by now it is put back.
func (rn *Runner) launch(ctx context.Context, r ready) {
	turn := goesBack
	if !rn.index.Paused(r.lease.Lane) {
		turn = rn.limits.start(&r, true)
	}
	switch turn {
	case begins:
		if rn.slots.begin(&r, false) {
			rn.start(ctx, r)
		}
	case goesBack:
		rn.putBack(ctx, append(rn.limits.drop(r.lease), r))
	case waits:
	}
}

// launchWhenDue begins attempts that were stamped before they are due, each when it is.
func (rn *Runner) launchWhenDue(ctx context.Context, early []ready) {
	slices.SortFunc(early, func(a, b ready) int { return cmp.Compare(a.cb.DueAt, b.cb.DueAt) })
	for _, r := range early {
		rn.awaitDue(&r)
		rn.launch(ctx, r)
	}
}

// dueFrom returns when a due time has come at the earliest, by an index's clock that read now after sent;
// zero if it had then. Of that reading a part of a millisecond is cut off.
func dueFrom(sent time.Time, now, due int64) time.Time {
	if due <= now {
		return time.Time{}
	}
	return sent.Add(time.Duration(min(due-now, claimLookahead.Milliseconds())-1) * time.Millisecond)
}

// untilDue returns how long it is until a stamped callback is surely due by the index's clock. It is no more
// than the lookahead: by a clock that was put back meanwhile it would be more, and what has been claimed was
// nearly due.
func (rn *Runner) untilDue(r *ready) time.Duration {
	if r.notBefore.IsZero() {
		return 0
	}
	return min(max(rn.clock.Until(r.cb.DueAt), time.Until(r.notBefore)), claimLookahead)
}

// awaitDue waits until a stamped callback is due.
func (rn *Runner) awaitDue(r *ready) {
	if wait := rn.untilDue(r); wait > 0 {
		time.Sleep(wait)
	}
}

// handBackDelay is when a batch that SQL could not stamp is due again.
const handBackDelay = time.Second

// handBack puts leases back without a charge, because of our own trouble.
func (rn *Runner) handBack(ctx context.Context, leases []schedule.Lease, delay time.Duration) {
	due := rn.clock.Now() + delay.Milliseconds()
	settlements := make([]schedule.Settlement, len(leases))
	held := make([]*schedule.Lease, len(leases))
	for i := range leases {
		l := &leases[i]
		held[i] = l
		settlements[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Divert}
		settlements[i].Due = max(due, l.Due)
	}
	rn.index.Unlock(ctx, held...)
	rn.index.Settle(ctx, settlements)
	rn.index.HintOnlyShard()
	rn.drop(ctx, held...)
}

// refuse parks or drops what SQL did not let us claim.
func (rn *Runner) refuse(ctx context.Context, byID map[string]*schedule.Lease, refused []store.Refusal) {
	if len(refused) == 0 {
		return
	}
	settlements := make([]schedule.Settlement, 0, len(refused))
	held := make([]*schedule.Lease, 0, len(refused))
	for i := range refused {
		r := &refused[i]
		l, ok := byID[r.ID]
		if !ok {
			continue
		}
		s := schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Reschedule}
		s.Due, s.Retry = r.Due, r.Retry
		why := "parked"
		if r.Terminal {
			s.Outcome, why = schedule.Ack, "dropped"
		}
		if r.Behind {
			// The one before it has it claimed when that is terminal; its own timer heals where nobody does.
			s.Outcome, why = schedule.Divert, "behind"
			s.Due = rn.clock.Now() + conflictDelay(l.Diverts).Milliseconds()
		}
		if r.Corrupt {
			why = "corrupt"
			rn.log.Error("a callback's row cannot be decoded; it was set aside as dead, invalid",
				"callback_id", store.CallbackPrefix+r.ID)
		}
		rn.metrics.refused.WithLabelValues(why).Inc()
		settlements, held = append(settlements, s), append(held, l)
	}
	rn.index.Unlock(ctx, held...)
	rn.index.Settle(ctx, settlements)
	rn.index.HintOnlyShard()
	rn.drop(ctx, held...)
}

// drop ends leases that are not attempted, and frees their slots.
func (rn *Runner) drop(ctx context.Context, leases ...*schedule.Lease) {
	for _, l := range leases {
		rn.putBack(ctx, rn.limits.drop(l))
		rn.slots.drop(l.Health)
	}
}
