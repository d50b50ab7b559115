package attempt

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// maxClaimsWithoutResult is how many claims in a row may end without a result before the callback is dead
// with the reason poison.
const maxClaimsWithoutResult = 5

// prepare locks, stamps and launches a claimed batch, on its own goroutine. All leases that have their lock
// are stamped together, and only callbacks that SQL stamps are sent. Each other lease is settled in the index
// and frees its slot, or is attempted alone if it is quarantined.
//
// sent is when the claim was sent. The leases may run from then on, however late the reply was read, so the
// age of a claim is counted from it.
func (rn *Runner) prepare(ctx context.Context, claimed schedule.Claimed, sent time.Time) {
	steps := rn.o.Tracer.NewSteps()
	leases := rn.lock(ctx, claimed.Leases, claimed.Now)
	if len(leases) == 0 {
		return
	}
	steps.Locked()
	process.Failpoint("after_lock")
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
	steps.Stamped()
	rn.index.SQLWorked()
	process.Failpoint("after_stamp")
	quarantined, refused := splitQuarantined(byID, refused)
	rn.refuse(ctx, byID, refused)
	var notDue []ready
	for i := range stamped {
		lease, ok := byID[stamped[i].ID]
		if !ok {
			rn.log.Error("stamp returned a callback that was not claimed", "callback_id", stamped[i].ID)
			continue
		}
		// A callback that waits to begin counts, so that a drain waits for it.
		rn.attempts.Add(1)
		addDiverts(stamped[i], lease)
		notBefore := dueFrom(sent, claimed.Now, stamped[i].DueAt)
		r := ready{cb: stamped[i], lease: lease, claimed: sent, notBefore: notBefore, steps: steps}
		if rn.untilDue(&r) > 0 {
			notDue = append(notDue, r)
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
	rn.launchWhenDue(ctx, notDue)
}

// addDiverts adds the diverts that only the index has counted to those of the stamped row.
func addDiverts(cb *store.Stamped, l *schedule.Lease) {
	if l.Diverts > 0 {
		cb.Since = &store.Diverts{Times: cb.DivertsSince().Times + l.Diverts, Reason: l.Cause.String()}
	}
}

// launch begins the attempt of a stamped callback, or lets it wait for a place in its lane or for a slot. If
// its lane is paused or stopped now, it puts the callback back.
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

// launchWhenDue launches callbacks that were stamped before they are due, each when it is due.
func (rn *Runner) launchWhenDue(ctx context.Context, notDue []ready) {
	slices.SortFunc(notDue, func(a, b ready) int { return cmp.Compare(a.cb.DueAt, b.cb.DueAt) })
	for _, r := range notDue {
		rn.awaitDue(&r)
		rn.launch(ctx, r)
	}
}

// dueFrom returns the earliest time at which a callback can be due, if the index's clock read now after the
// claim was sent; zero: it was due. The reading is cut off to a millisecond, so the true wait may be 1 ms
// shorter.
func dueFrom(sent time.Time, now, due int64) time.Time {
	if due <= now {
		return time.Time{}
	}
	return sent.Add(time.Duration(min(due-now, claimLookahead.Milliseconds())-1) * time.Millisecond)
}

// untilDue returns how long until a stamped callback is surely due by the index's clock. It is at most
// claimLookahead, because no callback is claimed earlier than that; a clock that was put back after the claim
// would give a longer wait.
func (rn *Runner) untilDue(r *ready) time.Duration {
	if r.notBefore.IsZero() {
		return 0
	}
	return min(max(rn.clock.Until(r.cb.DueAt), time.Until(r.notBefore)), claimLookahead)
}

// awaitDue waits until a stamped callback is due. This is the guard against a request that is too early.
func (rn *Runner) awaitDue(r *ready) {
	if wait := rn.untilDue(r); wait > 0 {
		time.Sleep(wait)
	}
}

// stampFailed hands back a batch that SQL could not stamp. If SQL does not answer, claims stop too; any
// other error concerns this batch only. In both cases some or all rows may be stamped, so the stamp is
// remembered, and the next probe that finds SQL working undoes it (uncertain.go).
func (rn *Runner) stampFailed(ctx context.Context, err error, s store.Stamp, leases []schedule.Lease) {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		rn.index.SQLFailed(err)
	} else {
		rn.log.Error("stamp failed", "error", err, "callbacks", len(leases))
	}
	rn.handBack(ctx, leases, handBackDelay)
	rn.uncertain.add(s, leases)
}

// handBackDelay is the wait of leases whose stamp failed or was undone.
const handBackDelay = time.Second

// handBack returns leases to the index, due after delay: their stamp failed, or they are quarantined and not
// stamped yet. No attempt is counted. They need no result in SQL; for a stamp that failed see
// uncertainStamps.
func (rn *Runner) handBack(ctx context.Context, leases []schedule.Lease, delay time.Duration) {
	due := rn.clock.Now() + delay.Milliseconds()
	settlements := make([]schedule.Settlement, len(leases))
	unlock := make([]*schedule.Lease, len(leases))
	for i := range leases {
		l := &leases[i]
		unlock[i] = l
		settlements[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Divert,
			Cause: schedule.NotStamped}
		settlements[i].Due = max(due, l.Due)
	}
	rn.index.Unlock(ctx, unlock...)
	rn.index.Settle(ctx, settlements)
	rn.index.HintOnlyShard()
	rn.drop(ctx, unlock...)
}

// refuse settles the leases whose rows SQL refused to stamp. A row that is due later, or has another live
// claim, is parked at the due time of the refusal. A terminal or missing row is dropped from the index.
func (rn *Runner) refuse(ctx context.Context, byID map[string]*schedule.Lease, refused []store.Refusal) {
	if len(refused) == 0 {
		return
	}
	settlements := make([]schedule.Settlement, 0, len(refused))
	unlock := make([]*schedule.Lease, 0, len(refused))
	for i := range refused {
		r := &refused[i]
		l, ok := byID[r.ID]
		if !ok {
			continue
		}
		s := schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Reschedule}
		s.Due, s.Retry = r.Due, r.Retry
		why := refusedParked
		if r.Terminal {
			s.Outcome, why = schedule.Ack, refusedDropped
		}
		if r.Behind {
			// It waits for an earlier callback in strict order. The end of that one moves it forward
			// (BringForward). Its own timer repairs a lost move.
			s.Outcome, s.Cause, why = schedule.Divert, schedule.OutOfTurn, refusedBehind
			s.Due = rn.clock.Now() + conflictDelay(l.Diverts).Milliseconds()
		}
		if r.Corrupt {
			why = refusedCorrupt
			rn.log.Error("row of a callback cannot be decoded; the callback is dead with reason invalid",
				"callback_id", store.CallbackPrefix+r.ID)
		}
		rn.metrics.refused.WithLabelValues(why).Inc()
		settlements, unlock = append(settlements, s), append(unlock, l)
	}
	rn.index.Unlock(ctx, unlock...)
	rn.index.Settle(ctx, settlements)
	rn.index.HintOnlyShard()
	rn.drop(ctx, unlock...)
}

// drop frees the places and slots of leases that are not attempted. The caller has settled them. It puts back
// the callbacks of their lanes that can no longer get a place.
func (rn *Runner) drop(ctx context.Context, leases ...*schedule.Lease) {
	for _, l := range leases {
		rn.putBack(ctx, rn.limits.drop(l))
		rn.slots.drop(l.Health)
	}
}
