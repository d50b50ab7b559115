package dispatch

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// sqlTimeout bounds a stamp. A commit of results is never given up: it is repeated until SQL takes it.
const sqlTimeout = 10 * time.Second

// poisonClaims is how many claims in a row may end without a result before the callback is dead.
const poisonClaims = 5

// prepare takes a claimed batch to its attempts: locks for those that need one, one stamp for all that remain, and a
// goroutine for each that SQL says is ours. Whatever falls out on the way is put back and frees its slot. The claim was asked for
// at sent: from then on its leases may run, however late its reply was read.
func (e *Engine) prepare(ctx context.Context, claimed schedule.Claimed, sent time.Time) {
	leases := e.lock(ctx, claimed.Leases, claimed.Now)
	if len(leases) == 0 {
		return
	}
	failpoint("after_lock")
	byID := make(map[string]*schedule.Lease, len(leases))
	s := store.Stamp{
		Token:   leases[0].Token,
		Now:     claimed.Now,
		Lead:    claimLead.Milliseconds(),
		Margin:  e.times.margin.Milliseconds(),
		Suspect: suspectClaims,
		Claims:  make([]store.StampClaim, len(leases)),
	}
	for i := range leases {
		byID[leases[i].ID] = &leases[i]
		s.Claims[i] = store.StampClaim{ID: leases[i].ID, Diverts: leases[i].Diverts}
	}
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	stamped, refused, err := e.o.Store.Stamp(sctx, s)
	cancel()
	if err != nil {
		e.stampFailed(ctx, err, s, leases)
		return
	}
	e.trouble.sqlWorked()
	failpoint("after_stamp")
	suspects, refused := setApart(byID, refused)
	e.refuse(ctx, byID, refused)
	var early []ready
	for i := range stamped {
		lease, ok := byID[stamped[i].ID]
		if !ok {
			e.log.Error("stamp returned a callback that was not asked for", "callback_id", stamped[i].ID)
			continue
		}
		// What waits to begin counts as an attempt under way: a drain waits for it.
		e.attempts.Add(1)
		r := ready{w: stamped[i], l: lease, claimed: sent, notBefore: dueFrom(sent, claimed.Now, stamped[i].DueAt)}
		if e.untilDue(&r) > 0 {
			early = append(early, r)
			continue
		}
		e.launch(ctx, r)
	}
	if len(suspects) > 0 {
		e.attempts.Add(1)
		go func() {
			defer e.attempts.Done()
			e.clearSuspects(ctx, suspects, sent)
		}()
	}
	e.launchInTime(ctx, early)
}

// launch begins a stamped attempt, or has it wait until others have ended. In a lane that is paused or
// stopped by now it is put back.
func (e *Engine) launch(ctx context.Context, r ready) {
	turn := goesBack
	if !e.pauses.has(r.l.Lane) {
		turn = e.limits.start(&r, true)
	}
	switch turn {
	case begins:
		if e.slots.begin(&r, false) {
			e.start(ctx, r)
		}
	case goesBack:
		e.putBack(ctx, append(e.limits.drop(r.l), r))
	case waits:
	}
}

// launchInTime begins attempts that were stamped before they are due, each when it is.
func (e *Engine) launchInTime(ctx context.Context, early []ready) {
	slices.SortFunc(early, func(a, b ready) int { return cmp.Compare(a.w.DueAt, b.w.DueAt) })
	for _, r := range early {
		e.awaitDue(&r)
		e.launch(ctx, r)
	}
}

// dueFrom returns when a due time has come at the earliest, by an index's clock that read now after sent; zero if it had then. Of that
// reading a part of a millisecond is cut off.
func dueFrom(sent time.Time, now, due int64) time.Time {
	if due <= now {
		return time.Time{}
	}
	return sent.Add(time.Duration(min(due-now, claimLead.Milliseconds())-1) * time.Millisecond)
}

// untilDue returns how long it is until a stamped callback is surely due by the index's clock. It is no more than the lead: by a
// clock that was put back meanwhile it would be more, and what has been claimed was nearly due.
func (e *Engine) untilDue(r *ready) time.Duration {
	if r.notBefore.IsZero() {
		return 0
	}
	return min(max(e.clock.until(r.w.DueAt), time.Until(r.notBefore)), claimLead)
}

// awaitDue waits until a stamped callback is due.
func (e *Engine) awaitDue(r *ready) {
	if wait := e.untilDue(r); wait > 0 {
		time.Sleep(wait)
	}
}

// handBackDelay is when a batch that SQL could not stamp is due again.
const handBackDelay = time.Second

// handBack puts leases back without a charge, because of our own trouble.
func (e *Engine) handBack(ctx context.Context, leases []schedule.Lease, delay time.Duration) {
	due := e.clock.now() + delay.Milliseconds()
	settlements := make([]schedule.Settlement, len(leases))
	held := make([]*schedule.Lease, len(leases))
	for i := range leases {
		l := &leases[i]
		held[i] = l
		settlements[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Divert}
		settlements[i].Due = max(due, l.Due)
	}
	e.unlock(ctx, held...)
	e.settleIndex(ctx, settlements)
	e.hintAlone()
	e.drop(ctx, held...)
}

// refuse parks or drops what SQL did not let us claim.
func (e *Engine) refuse(ctx context.Context, byID map[string]*schedule.Lease, refused []store.Refusal) {
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
			s.Due = e.clock.now() + conflictDelay(l.Diverts).Milliseconds()
		}
		if r.Corrupt {
			why = "corrupt"
			e.log.Error("a callback's row cannot be decoded; it was set aside as dead, invalid", "callback_id", store.CallbackPrefix+r.ID)
		}
		e.metrics.refused.WithLabelValues(why).Inc()
		settlements, held = append(settlements, s), append(held, l)
	}
	e.unlock(ctx, held...)
	e.settleIndex(ctx, settlements)
	e.hintAlone()
	e.drop(ctx, held...)
}

// lock takes the locks of those leases that need one and returns the leases that may go on. Conflicts are diverted: they
// cost no attempt, and touch the index only.
func (e *Engine) lock(ctx context.Context, leases []schedule.Lease, now int64) []schedule.Lease {
	var requests []schedule.LockRequest
	var places []int
	for i := range leases {
		if l := &leases[i]; l.Lock != "" {
			requests = append(requests, schedule.LockRequest{Lock: l.Lock, ID: l.ID, Lane: l.Lane, Token: l.Token, Until: l.Until})
			places = append(places, i)
		}
	}
	if len(requests) == 0 {
		return leases
	}
	lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.trouble.indexTime())
	replies, err := e.o.Schedule.Acquire(lctx, requests)
	cancel()
	if err != nil {
		e.trouble.indexFailed("acquire", err)
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
			e.trouble.locked(&leases[i]) // it may have been taken all the same
		}
		s := schedule.Settlement{Item: leases[i].Item, Token: leases[i].Token, Outcome: schedule.Divert}
		s.Due = now + conflictDelay(leases[i].Diverts).Milliseconds()
		diverted = append(diverted, s)
	}
	if len(conflict) == 0 {
		return leases
	}
	e.metrics.diverted.WithLabelValues("lock_conflict").Add(float64(len(diverted)))
	e.settleIndex(ctx, diverted)
	e.hintAlone()
	kept := make([]schedule.Lease, 0, len(leases)-len(conflict))
	for i := range leases {
		if conflict[i] {
			e.drop(ctx, &leases[i])
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

// maxWaiters is how many waiters a release tries before it leaves the rest to their timers.
const maxWaiters = 16

// unlock releases the locks of those leases that have one, all at once, and wakes the next waiters. It says
// whether the locks are released; if they may not be, that is remembered.
func (e *Engine) unlock(ctx context.Context, leases ...*schedule.Lease) bool {
	locked := slices.DeleteFunc(slices.Clone(leases), func(l *schedule.Lease) bool { return l.Lock == "" })
	if len(locked) == 0 {
		return true
	}
	if e.trouble.indexSilent() {
		// Callbacks that are put back one after the other must not each wait for an index that hangs.
		e.trouble.locked(locked...)
		return false
	}
	if err := e.release(context.WithoutCancel(ctx), locked); err != nil {
		e.trouble.indexFailed("release", err)
		e.trouble.locked(locked...)
		return false
	}
	return true
}

// release releases locks and wakes the next waiters: of each lock the first that can be moved. A waiter that
// is not woken is due by its own timer.
func (e *Engine) release(ctx context.Context, leases []*schedule.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	unlocks := make([]schedule.Unlock, len(leases))
	for i, l := range leases {
		unlocks[i] = schedule.Unlock{Lock: l.Lock, ID: l.ID, Token: l.Token}
	}
	for range maxWaiters {
		waiters, err := e.o.Schedule.Release(ctx, unlocks)
		if err != nil {
			return err
		}
		var movements []schedule.Movement
		var waited []schedule.Unlock
		for i, w := range waiters {
			if w.ID != "" {
				movements = append(movements, schedule.Movement{Ref: schedule.Ref(w), Due: e.clock.now()})
				waited = append(waited, unlocks[i])
			}
		}
		if len(movements) == 0 {
			return nil
		}
		moved, err := e.o.Schedule.Move(ctx, movements)
		if err != nil {
			e.trouble.indexFailed("move", err)
			return nil
		}
		unlocks = nil
		for i, u := range waited {
			switch moved[i] {
			case schedule.MovedIt:
				continue
			case schedule.MovedGone:
				u.Gone = append(u.Gone, movements[i].ID)
			default:
				u.Skip = append(u.Skip, movements[i].ID)
			}
			unlocks = append(unlocks, u)
		}
		if len(unlocks) < len(movements) {
			e.hintAlone()
		}
		if len(unlocks) == 0 {
			return nil
		}
	}
	return nil
}

// settleIndex tells the index how leases ended. A settlement that the index does not hear of is remembered, and told
// again once the index answers; what is still open is ensured then, too.
//
// It says whether the index has heard of all of them.
func (e *Engine) settleIndex(ctx context.Context, settlements []schedule.Settlement) bool {
	heard := true
	for len(settlements) > 0 {
		n := min(len(settlements), schedule.MaxBatch)
		heard = e.settleChunk(ctx, settlements[:n]) && heard
		settlements = settlements[n:]
	}
	return heard
}

func (e *Engine) settleChunk(ctx context.Context, settlements []schedule.Settlement) bool {
	if e.trouble.indexSilent() {
		// Results must not wait, batch after batch, for an index that hangs: their claims would run out before they are committed.
		e.unheard(settlements)
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.trouble.indexTime())
	defer cancel()
	settled, err := e.o.Schedule.Settle(ctx, settlements)
	if err != nil {
		e.trouble.indexFailed("settle", err)
		e.unheard(settlements)
		return false
	}
	for i := range settled {
		e.metrics.settled(settlements[i].Outcome, settled[i])
	}
	return true
}

// drop ends leases that are not attempted, and frees their slots.
func (e *Engine) drop(ctx context.Context, leases ...*schedule.Lease) {
	for _, l := range leases {
		e.putBack(ctx, e.limits.drop(l))
		e.slots.drop(l.Health)
	}
}

// hintAlone wakes the claimer, if there is one only, after something that gives a lane room or may be due at once. With several
// shards only the index knows whose it is.
func (e *Engine) hintAlone() {
	if len(e.wakers) == 1 {
		e.wakers[0].Hint()
	}
}

// unheard remembers settlements that the index may not have heard of, and what it should hold of them.
func (e *Engine) unheard(settlements []schedule.Settlement) {
	e.trouble.unsettled(settlements)
	var open []schedule.Item
	for i := range settlements {
		if o := settlements[i].Outcome; o == schedule.Reschedule || o == schedule.Divert {
			open = append(open, settlements[i].Item)
		}
	}
	e.trouble.missed(open)
}
