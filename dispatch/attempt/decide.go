package attempt

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// maxHold is the longest time that a Retry-After may pause a whole lane.
	maxHold = time.Minute
	// busyDelay is the shortest wait of a callback whose receiver is busy with the same business key. After
	// maxBusy such answers the attempt counts, so that the callback ends one day.
	busyDelay = 3 * time.Second
	maxBusy   = 100
	// maxBlocked is how many counted attempts in a row the egress guard may refuse before the callback is
	// dead.
	maxBlocked = 3
	// blockedPage is how many attempts one read returns. Attempts that do not count lie between those that
	// do, so more than maxBlocked are read.
	blockedPage = 20
)

// decide is the retry policy. It turns the result of an attempt into state and reason, the next due time,
// whether the attempt counts, and the signal for the lane. The store only applies it.
func (rn *Runner) decide(
	ctx context.Context, cb *store.Stamped, l *schedule.Lease, resp outbound.Response,
) ended {
	startedAt, endedAt := rn.clock.At(resp.StartedAt), rn.clock.At(resp.EndedAt)
	late := startedAt.Sub(time.UnixMilli(cb.DueAt))
	a := &store.Attempt{
		CallbackID:        cb.ID,
		Project:           cb.Project,
		Trigger:           cb.Trigger,
		Outcome:           resp.Outcome,
		Charged:           resp.Charged,
		Class:             resp.Class,
		Status:            resp.Status,
		Error:             resp.Error,
		StartedAt:         startedAt.UnixMilli(),
		EndedAt:           endedAt.UnixMilli(),
		DueAt:             cb.DueAt,
		Lateness:          float64(late.Microseconds()) / 1000,
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
		result: store.Result{
			ID: cb.ID, Fence: cb.Fence, Attempt: a, State: store.Scheduled, Charge: resp.Charged, Stamped: cb,
		},
		lease:  l,
		urgent: urgent(l),
		class:  resp.Class,
		signal: signalOf(&resp),
	}
	switch {
	case resp.PollState == rule.StateHold:
		out.hold = schedule.DueAfter(endedAt, pollHold(cb, resp.DeferAfter))
	case resp.RetryAfter > 0 && (resp.Status == 429 || resp.Status == 503):
		out.hold = schedule.DueAfter(endedAt, min(resp.RetryAfter, cb.Policy.RetryAfterCap, maxHold))
	}
	// A result that stops its lane must reach the index soon.
	out.urgent = out.urgent || out.hold != 0 || out.signal == schedule.TimedOut
	rn.next(ctx, cb, &resp, endedAt, &out)
	if out.result.State != store.Scheduled {
		out.result.DueAt = 0
		return out
	}
	if cb.ExpiresAt != 0 && out.result.DueAt > cb.ExpiresAt {
		// The claim at the expiry ends it; the next sweep would end it later.
		out.result.DueAt = cb.ExpiresAt
	}
	if out.result.DueAt <= endedAt.UnixMilli()+urgentWithin.Milliseconds() {
		out.urgent = true
	}
	return out
}

// signalOf returns what an attempt says about the receiver of its lane. An attempt that this process stopped
// or could not send says nothing.
func signalOf(resp *outbound.Response) schedule.Signal {
	switch {
	case resp.TimedOut:
		return schedule.TimedOut
	case resp.Answered:
		return schedule.Answered
	}
	switch resp.Class {
	case store.ClassBlocked, store.ClassInvalidRequest, store.ClassCorrupt, store.ClassSignError,
		store.ClassPanic, store.ClassInterrupted, store.ClassLocalInfra:
		return schedule.NoSignal
	}
	return schedule.Unanswered
}

// urgentWithin: a callback that is due again within this time is committed without waiting for a batch.
const urgentWithin = 20 * time.Millisecond

// next sets state, reason and due time of the result, and whether the attempt counts.
func (rn *Runner) next(
	ctx context.Context, cb *store.Stamped, resp *outbound.Response, endedAt time.Time, out *ended,
) {
	r := &out.result
	dueIn := func(wait time.Duration) { r.DueAt = schedule.DueAfter(endedAt, wait) }
	switch {
	case resp.Outcome == store.AttemptSucceeded:
		r.State, r.Reason = store.Succeeded, finalReason(resp)
		r.Charge, r.Attempt.Charged = true, true
	case resp.Class == store.ClassPanic:
		// The claim still counts as one without a result, so that a callback that always panics ends as
		// poison.
		r.KeepClaimsWithoutResult, r.Charge, r.Attempt.Charged = true, false, false
		if cb.ClaimsWithoutResult >= maxClaimsWithoutResult {
			r.State, r.Reason = store.Dead, store.Poison
			return
		}
		dueIn(busyDelay)
	case resp.Stale:
		// The request failed on a reused connection: try again at once on a new one.
		r.FreeRetry = true
		dueIn(0)
	case resp.Class == store.ClassSignError && !resp.Charged:
		// A person can set the secret, or another process has the key. A counted failure to sign takes the
		// next tier, like any other failure.
		r.Diverts = 1
		dueIn(time.Minute)
	case resp.LocalFailure:
		// The cause is in this process or its network. A request that was certainly not sent is no attempt.
		rn.localLog.warn(rn.log, cb, resp.Error)
		r.Diverts = 1
		if resp.Outcome != store.AttemptUnknown {
			r.Attempt = nil
		}
		dueIn(5*time.Second + rand.N(25*time.Second))
	case resp.Class == store.ClassInterrupted:
		// This process shuts down. Another one, or its next start, sends the callback.
		r.Diverts = 1
		if resp.Outcome != store.AttemptUnknown {
			r.Attempt = nil
		}
		dueIn(0)
	case resp.Class == store.ClassReceiverBusy &&
		cb.AttemptSeq-cb.AttemptCount < cmp.Or(resp.MaxDefers, maxBusy):
		// maxBusy bounds the recorded attempts that did not count: busy answers are such attempts. The count
		// of diverts cannot stand for them, because waiting for the lock adds to it too.
		r.Diverts, r.Charge, r.Attempt.Charged = 1, false, false
		if resp.PollState == rule.StateHold {
			dueIn(pollHold(cb, resp.DeferAfter))
			if pastDeadline(cb, r.DueAt) { // a hold may last for days, and must not keep a poll open for ever
				r.State, r.Reason = store.Dead, store.Unresolved
			}
			return
		}
		dueIn(max(cmp.Or(resp.DeferAfter, busyDelay), min(resp.RetryAfter, cb.Policy.RetryAfterCap)))
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

// A localLog logs attempts that are postponed because this machine or its network failed, but not each of
// them: most leave no other trace than a metric.
type localLog struct {
	mu    sync.Mutex
	limit process.LogLimiter
}

func (l *localLog) warn(log *slog.Logger, cb *store.Stamped, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit.Again(time.Now()) {
		log.Warn("attempts postponed: this machine or its network failed", "error", why,
			"callback_id", store.CallbackPrefix+cb.ID)
	}
}

// blockedBefore counts the last counted attempts in a row that the egress guard refused. If they cannot be
// read it returns 0: the callback is retried, and the next refusal reads them again.
func (rn *Runner) blockedBefore(ctx context.Context, cb *store.Stamped) int {
	n := 0
	for before := 0; ; {
		page, err := rn.o.Store.Attempts(context.WithoutCancel(ctx), cb.Project, cb.ID, before, blockedPage)
		if err != nil {
			rn.log.Warn("attempts of a blocked callback cannot be read",
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

// failed decides after a counted failure: the callback ends, or the next tier of its retry schedule gives the
// wait. StopOn does not end a poll, because each status may mean that its order is still pending.
func (rn *Runner) failed(
	ctx context.Context, cb *store.Stamped, resp *outbound.Response, endedAt time.Time, r *store.Result,
) {
	poll := cb.Kind == store.Poll
	if !poll && resp.Status != 0 && slices.Contains(cb.Policy.StopOn, resp.Status) {
		r.State, r.Reason = store.Dead, store.Rejected
		if resp.Status == 410 {
			r.Reason = store.Gone
		}
		return
	}
	// LastClass saves the read of the attempts after another failure.
	blockedAgain := resp.Class == store.ClassBlocked && cb.LastClass == store.ClassBlocked
	if blockedAgain && rn.blockedBefore(ctx, cb)+1 >= maxBlocked {
		r.State, r.Reason = store.Dead, store.Blocked
		return
	}
	wait, more := schedule.Tiers(cb.Policy.Tiers).Wait(cb.AttemptCount-cb.LadderBase+1, cb.Policy.RepeatLast)
	atEnd := store.Exhausted
	if poll {
		wait, more = pollWait(cb, resp, r)
		atEnd = store.Unresolved
	}
	if !more {
		r.State, r.Reason = store.Dead, atEnd
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
		r.State, r.Reason = store.Dead, atEnd
		return
	}
	r.DueAt = due
}

// pastDeadline returns whether a due time lies after the callback's deadline.
func pastDeadline(cb *store.Stamped, due int64) bool {
	return cb.Policy.Deadline > 0 && due > cb.FirstDueAt+cb.Policy.Deadline.Milliseconds()
}

// finalReason returns the reason of a callback whose attempt succeeded. A poll has succeeded when its
// upstream gave a final answer, which may be that the order failed: the reason says which. For a notification
// it is empty.
func finalReason(resp *outbound.Response) store.Reason {
	switch resp.PollState {
	case rule.StateSuccess:
		return store.PollSucceeded
	case rule.StateFailure:
		return store.PollFailed
	}
	return ""
}

// pollWait returns how long a poll waits whose answer is not final, and false if the poll ends. An answer
// "pending" moves it to the next tier. After an error it waits the same tier again (the first if there was
// none), at most MaxErrors times in a row.
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

// pollHold returns how long a poll and its lane wait if the upstream asked for that: at most the larger of
// the policy's cap for Retry-After and maxHold.
func pollHold(cb *store.Stamped, wait time.Duration) time.Duration {
	return min(wait, max(cb.Policy.RetryAfterCap, maxHold))
}
