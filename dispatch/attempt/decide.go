package attempt

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxHold is how long a receiver's Retry-After may hold its whole lane.
	maxHold = time.Minute
	// busyDelay is the least wait of a callback whose receiver is busy with the same business key; after
	// maxBusy diverts it is charged, so that it cannot go on for ever.
	busyDelay = 3 * time.Second
	maxBusy   = 100
	// maxBlocked is how many attempts in a row may be refused by the egress guard before the callback is
	// dead.
	maxBlocked = 3
	// blockedPage is how many attempts are read at a time to count them: those that are not charged lie
	// between.
	blockedPage = 20
)

// decide turns how an attempt ended into what follows: state and reason, the next due time, what is charged,
// and what the lane learns. It is the retry policy, whole; the store only applies it.
func (rn *Runner) decide(ctx context.Context, cb *store.Stamped, l *schedule.Lease,
	resp outbound.Response) ended {
	endedAt := rn.clock.At(resp.EndedAt)
	a := &store.Attempt{
		CallbackID: cb.ID,
		Project:    cb.Project,
		Trigger:    cb.Trigger,
		Outcome:    resp.Outcome,
		Charged:    resp.Charged,
		Class:      resp.Class,
		Status:     resp.Status,
		Error:      resp.Error,
		StartedAt:  rn.clock.At(resp.StartedAt).UnixMilli(),
		EndedAt:    endedAt.UnixMilli(),
		DueAt:      cb.DueAt,
		Lateness: float64(rn.clock.At(resp.StartedAt).Sub(time.UnixMilli(cb.DueAt)).Microseconds()) /
			1000,
		Timings:           resp.Timings,
		RequestHeaders:    resp.RequestHeaders,
		ResponseHeaders:   resp.ResponseHeaders,
		ResponseBody:      resp.ResponseBody,
		ResponseTruncated: resp.ResponseTruncated,
		Rule:              resp.Rule,
		KeyID:             resp.KeyID,
		Fence:             cb.Fence,
	}
	out := ended{
		result: store.Result{ID: cb.ID, Fence: cb.Fence, Attempt: a, State: store.Scheduled,
			Charge: resp.Charged, Stamped: cb},
		lease:  l,
		urgent: urgent(l),
		class:  resp.Class,
	}
	out.signal = signalOf(&resp)
	switch {
	case resp.PollState == rule.StateHold:
		out.hold = schedule.DueAfter(endedAt, pollHold(cb, resp.DeferAfter))
	case resp.RetryAfter > 0 && (resp.Status == 429 || resp.Status == 503):
		out.hold = schedule.DueAfter(endedAt, min(resp.RetryAfter, cb.Policy.RetryAfterCap, maxHold))
	}
	// What stops its lane is to be known soon.
	out.urgent = out.urgent || out.hold != 0 || out.signal == schedule.TimedOut
	rn.next(ctx, cb, &resp, endedAt, &out)
	if out.result.State != store.Scheduled {
		out.result.DueAt = 0
		return out
	}
	if cb.ExpiresAt != 0 && out.result.DueAt > cb.ExpiresAt {
		// Claimed at its expiry, it ends at once instead of at the next sweep.
		out.result.DueAt = cb.ExpiresAt
	}
	if out.result.DueAt <= endedAt.UnixMilli()+urgentWithin.Milliseconds() {
		out.urgent = true
	}
	return out
}

// signalOf returns what an attempt says of its lane: nothing, if it ended by our own doing.
func signalOf(resp *outbound.Response) schedule.Signal {
	switch {
	case resp.TimedOut:
		return schedule.TimedOut
	case resp.Answered:
		return schedule.Answered
	}
	switch resp.Class {
	case store.ClassBlocked, store.ClassInvalidRequest, store.ClassCorrupt, store.ClassSignError,
		store.ClassPanic, store.ClassInterrupted,
		store.ClassLocalInfra:
		return schedule.NoSignal
	}
	return schedule.Unanswered
}

// urgentWithin: what is due again that soon is not held back for a batch.
const urgentWithin = 20 * time.Millisecond

// next fills in state, reason and due time of the result.
func (rn *Runner) next(ctx context.Context, cb *store.Stamped, resp *outbound.Response, endedAt time.Time,
	out *ended) {
	r := &out.result
	later := func(wait time.Duration) { r.DueAt = schedule.DueAfter(endedAt, wait) }
	switch {
	case resp.Outcome == store.AttemptSucceeded:
		r.State, r.Reason = store.Succeeded, finalReason(resp)
		r.Charge, r.Attempt.Charged = true, true
	case resp.Class == store.ClassPanic:
		r.KeepClaimsWithoutResult, r.Charge, r.Attempt.Charged = true, false, false
		if cb.ClaimsWithoutResult >= maxClaimsWithoutResult {
			r.State, r.Reason = store.Dead, store.Poison
			return
		}
		later(busyDelay)
	case resp.Stale:
		r.FreeRetry = true
		later(0)
	case resp.Class == store.ClassSignError:
		r.Diverts = 1
		later(time.Minute)
	case resp.LocalFailure:
		// Our own trouble: what never reached the wire is no attempt.
		r.Diverts = 1
		if resp.Outcome != store.AttemptUnknown {
			r.Attempt = nil
		}
		later(5*time.Second + rand.N(25*time.Second))
	case resp.Class == store.ClassInterrupted:
		r.Diverts = 1
		if resp.Outcome != store.AttemptUnknown {
			r.Attempt = nil
		}
		later(0)
	case resp.Class == store.ClassReceiverBusy &&
		cb.AttemptSeq-cb.AttemptCount < cmp.Or(resp.MaxDefers, maxBusy):
		// Counted by rows that were not charged: diverts also count what the callback waited for its lock.
		r.Diverts, r.Charge, r.Attempt.Charged = 1, false, false
		if resp.PollState == rule.StateHold {
			later(pollHold(cb, resp.DeferAfter))
			if pastDeadline(cb, r.DueAt) { // a hold may last for days, and is no reason to ask for ever
				r.State, r.Reason = store.Dead, store.Unresolved
			}
			return
		}
		later(max(cmp.Or(resp.DeferAfter, busyDelay), min(resp.RetryAfter, cb.Policy.RetryAfterCap)))
	case resp.Class == store.ClassRejected:
		r.State, r.Reason = store.Dead, store.Rejected
		r.Charge, r.Attempt.Charged = true, true
	case resp.Class == store.ClassInvalidRequest || resp.Class == store.ClassCorrupt:
		r.State, r.Reason = store.Dead, store.Invalid
	default:
		r.Charge, r.Attempt.Charged = true, true
		rn.failed(ctx, cb, resp, endedAt, r)
	}
}

// blockedBefore counts the charged attempts in a row that the egress guard has refused. If they cannot be
// read it says none: the callback goes on, and the next attempt asks again.
func (rn *Runner) blockedBefore(ctx context.Context, cb *store.Stamped) int {
	n := 0
	for before := 0; ; {
		page, err := rn.o.Store.Attempts(context.WithoutCancel(ctx), cb.Project, cb.ID, before, blockedPage)
		if err != nil {
			rn.log.Warn("the attempts of a blocked callback cannot be read",
				"callback_id", store.CallbackPrefix+cb.ID, "error", err)
			return 0
		}
		for i := range page {
			switch a := &page[i]; {
			case !a.Charged || a.Stale:
			case a.Class == store.ClassBlocked:
				n++
			default:
				return n
			}
		}
		if len(page) < blockedPage || n >= maxBlocked {
			return n
		}
		before = page[len(page)-1].Number
	}
}

// failed walks the ladder after a charged failure. Of a poll every status may say that its order is not final
// yet: none stops it.
func (rn *Runner) failed(ctx context.Context, cb *store.Stamped, resp *outbound.Response, endedAt time.Time,
	r *store.Result) {
	poll := cb.Kind == store.Poll
	if !poll && resp.Status != 0 && slices.Contains(cb.Policy.StopOn, resp.Status) {
		r.State, r.Reason = store.Dead, store.Rejected
		if resp.Status == 410 {
			r.Reason = store.Gone
		}
		return
	}
	if resp.Class == store.ClassBlocked && cb.LastClass == store.ClassBlocked &&
		rn.blockedBefore(ctx, cb)+1 >= maxBlocked {
		r.State, r.Reason = store.Dead, store.Blocked
		return
	}
	wait, more := schedule.Tiers(cb.Policy.Tiers).Wait(cb.AttemptCount-cb.LadderBase+1, cb.Policy.RepeatLast)
	out := store.Exhausted
	if poll {
		wait, more = pollWait(cb, resp, r)
		out = store.Unresolved
	}
	if !more {
		r.State, r.Reason = store.Dead, out
		return
	}
	if cb.Policy.Jitter > 0 {
		wait += time.Duration(float64(wait) * cb.Policy.Jitter * rand.Float64())
	}
	if resp.Status == 429 || resp.TimedOut {
		wait = max(wait, cb.Policy.OverloadFloor)
	}
	if resp.Status == 429 || resp.Status == 503 {
		wait = max(wait, min(resp.RetryAfter, cb.Policy.RetryAfterCap))
	}
	due := schedule.DueAfter(endedAt, wait)
	if pastDeadline(cb, due) {
		r.State, r.Reason = store.Dead, out
		return
	}
	r.DueAt = due
}

// pastDeadline says whether an attempt that is due then would be after the deadline.
func pastDeadline(cb *store.Stamped, due int64) bool {
	return cb.Policy.Deadline > 0 && due > cb.FirstDueAt+cb.Policy.Deadline.Milliseconds()
}

// finalReason is the reason of a callback that has succeeded: of a poll, which final answer the upstream
// gave.
func finalReason(resp *outbound.Response) store.Reason {
	switch resp.PollState {
	case rule.StateSuccess:
		return store.PollSucceeded
	case rule.StateFailure:
		return store.PollFailed
	}
	return ""
}

// pollWait is how long a poll waits that is not final, and whether it goes on. An answer that says so moves
// it on to the next tier. An error does not: the tier that came before is waited for again, the first if
// there was none, as often in a row as the error budget says.
func pollWait(cb *store.Stamped, resp *outbound.Response, r *store.Result) (wait time.Duration, more bool) {
	tiers, moved := schedule.Tiers(cb.Policy.Tiers), cb.AttemptCount-cb.LadderBase
	if resp.PollState == rule.StateOpen {
		return tiers.Wait(moved+1, cb.Policy.RepeatLast)
	}
	r.Stays, r.PollErrors = true, cb.PollErrors+1
	if r.PollErrors > resp.MaxErrors {
		return 0, false
	}
	return tiers.Wait(max(moved, 1), cb.Policy.RepeatLast)
}

// pollHold is how long a poll, and its lane, wait whose upstream has asked for it: at least as long as lanes
// are held for anybody, and at most as its policy hears of Retry-After.
func pollHold(cb *store.Stamped, asked time.Duration) time.Duration {
	return min(asked, max(cb.Policy.RetryAfterCap, maxHold))
}
