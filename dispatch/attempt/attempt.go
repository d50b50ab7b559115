package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ready is a stamped callback whose attempt has not begun.
type ready struct {
	cb      *store.Stamped
	lease   *schedule.Lease
	claimed time.Time
	// notBefore is the earliest time at which the callback can be due, by the index's clock as the claim read
	// it. Zero: it was due at the claim.
	notBefore time.Time
	// waited: the callback has waited for a slot, so its lane may have been paused or stopped meanwhile.
	waited bool
	// steps are the times of the claim's steps for its trace; nil: not kept.
	steps *trace.Steps
}

// runSlot makes an attempt, and then the attempts that waited for its slot, one after another. It runs on a
// worker.
func (rn *Runner) runSlot(ctx context.Context, r ready) {
	for {
		first, more := rn.skipStopped(ctx, r)
		if !more {
			return
		}
		r, more = rn.attemptOne(ctx, first, nil)
		rn.attempts.Done()
		if !more {
			return
		}
	}
}

// laneStopped returns whether a callback that waited for a slot must not begin now: its lane is paused, or a
// time-out or a hold has stopped it since.
func (rn *Runner) laneStopped(r *ready) bool {
	return rn.index.Paused(r.lease.Lane) || rn.limits.stopped(r)
}

// skipStopped returns the callback that begins in r's slot. That is r, or the first in the queue of the slots
// whose lane is not stopped. It puts back the callbacks that it skips. more is false if no callback may
// begin.
func (rn *Runner) skipStopped(ctx context.Context, r ready) (first ready, more bool) {
	var back []ready
	more = true
	for more && r.waited && rn.laneStopped(&r) {
		back = append(append(back, rn.limits.drop(r.lease)...), r)
		r, more = rn.slots.undoBegin()
	}
	rn.putBackAsync(ctx, back)
	return r, more
}

// attemptOne makes one attempt, releases its lock, and passes the result to the settler. It returns the
// callback that begins in its slot, if there is one. If committed is not nil, the settler closes it when the
// result is in SQL or was given up.
//
// The lock is released before the result commits: it guards the request, not the row. A crash before the
// commit leaves the claim in SQL, so no process sends the callback again until that claim has expired.
func (rn *Runner) attemptOne(
	ctx context.Context, r ready, committed chan<- struct{},
) (next ready, more bool) {
	rn.awaitDue(&r)
	if r.cb.Lost {
		rn.metrics.crashed.Inc()
		rn.observer.Crashed(r.cb, rn.clock.Now())
	}
	began := time.Now()
	out := rn.try(ctx, &r)
	if committed != nil {
		out.committed, out.urgent = committed, true
	}
	successor, back, claim := rn.limits.end(&out, time.Since(began))
	if claim >= 0 {
		rn.wakers[claim].Hint()
	}
	rn.putBackAsync(ctx, back)
	out.generation = rn.generation.Load()
	out.beginSettle()
	unlocked := rn.unlockInTime(ctx, out.lease)
	rn.settler.add(out)
	if unlocked != nil {
		<-unlocked // so that the slots bound the calls to an index that hangs
	}
	// successor has r's place in the lane, next has r's slot. If both may begin, next begins on another
	// worker.
	next, more = rn.slots.end(r.lease.Health)
	if successor == nil || !rn.slots.begin(successor, false) {
		return next, more
	}
	if more {
		rn.start(ctx, next)
	}
	return *successor, true
}

// putBackDelay is how long a callback that was put back waits. If it were due at once, the claim would find
// the same stopped lane.
const putBackDelay = 20 * time.Millisecond

// putBack returns stamped callbacks to the schedule without an attempt, not counted. The caller has removed
// them from the lane limits. Because they are stamped, their results go through the settler: without a
// result, SQL would count each of them as a crash.
func (rn *Runner) putBack(ctx context.Context, back []ready) {
	if len(back) == 0 {
		return
	}
	due, generation := rn.clock.Now()+putBackDelay.Milliseconds(), rn.generation.Load()
	// All locks are released with one call. One call a lease could take so long, with an index that hangs,
	// that the claims expire.
	leases := make([]*schedule.Lease, len(back))
	for i := range back {
		leases[i] = back[i].lease
	}
	rn.index.Unlock(ctx, leases...)
	for i := range back {
		r := &back[i]
		at := max(due, r.cb.DueAt)
		if rn.index.Paused(r.lease.Lane) {
			at = max(at, due+pausedDelay.Milliseconds()) // the index may not have the pause yet
		}
		result := store.Result{
			ID: r.cb.ID, Fence: r.cb.Fence, State: store.Scheduled, DueAt: at, Diverts: 1, Stamped: r.cb,
		}
		rn.settler.add(ended{
			lease: r.lease, generation: generation, putBack: divertLaneStopped, result: result,
		})
		rn.slots.putBack(r.lease.Health)
		rn.attempts.Done()
	}
}

// putBackAsync is putBack for callers that must not wait for an index that hangs. A drain waits for the
// callbacks: they count in rn.attempts until putBack has passed them to the settler.
func (rn *Runner) putBackAsync(ctx context.Context, back []ready) {
	if len(back) > 0 {
		go rn.putBack(ctx, back)
	}
}

// An ended is the result of an attempt that is to be committed, and the signal for the index if the result
// wins the fence.
type ended struct {
	result store.Result
	lease  *schedule.Lease
	signal schedule.Signal
	// hold is until when the lane sends only forced callbacks, because of Retry-After or a poll's hold_if, in
	// Unix milliseconds; 0: no hold.
	hold int64
	// urgent results are committed at once, without waiting for a batch.
	urgent bool
	class  store.Class
	// nextInOrder is the callback whose turn it is in strict order, now that this one is terminal; nil: there
	// is none.
	nextInOrder *store.OpenRow
	// putBack is why the callback was put back without an attempt; empty: it was attempted.
	putBack string
	// generation of the index when the lock was released. If the index was rebuilt since, the rebuild may
	// have taken the lock again for this attempt (see unlockAfterRebuild).
	generation int64
	// committed is closed when the result was committed or given up; nil: no goroutine waits for that.
	committed chan<- struct{}
	// span of the attempt; nil: it is not recorded.
	span *trace.Span
}

// beginSettle begins the part of the attempt's span that the settler ends. An attempt without a row in SQL
// leaves its number, and with it the ids of its span, to the next attempt. So its span is dropped.
func (e *ended) beginSettle() {
	if e.result.Attempt == nil {
		e.span = nil
	}
	e.span.BeginSettle(&e.result)
}

// urgent returns whether the lease's result is committed at once: the next waiter needs its lock, or the lane
// has yet to show that its receiver answers.
func urgent(l *schedule.Lease) bool { return l.Lock != "" || l.Health != schedule.Answering }

// try makes the attempt of a stamped callback and decides what follows. It sends nothing if the callback has
// expired, has had too many claims without a result, has lost its lock, or has a claim that would end during
// the attempt. It sends nothing either if the endpoint is deleted, paused or unreadable, if a secret cannot
// be used, or if all sending is stopped. A panic ends as an attempt of the class panic.
func (rn *Runner) try(ctx context.Context, r *ready) (out ended) {
	cb, l, claimed := r.cb, r.lease, r.claimed
	out = ended{lease: l, urgent: urgent(l), result: store.Result{ID: cb.ID, Fence: cb.Fence, Stamped: cb}}
	now := rn.clock.Now()
	switch {
	case cb.ClaimsWithoutResult > maxClaimsWithoutResult:
		out.result.State, out.result.Reason = store.Dead, store.Poison
		return out
	case cb.ExpiresAt != 0 && max(now, cb.DueAt) >= cb.ExpiresAt:
		// The index gave it out, so by the index's clock it is due, even if this process's clock is behind.
		out.result.State, out.result.Reason = store.Dead, store.Expired
		return out
	}
	started := time.Now()
	var span *trace.Span
	defer func() {
		if p := recover(); p != nil {
			span.Logger(rn.log).Error("attempt panicked", "callback_id", store.CallbackPrefix+cb.ID,
				"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			resp := outbound.Response{
				Class:     store.ClassPanic,
				Outcome:   store.AttemptUnknown,
				Error:     "the attempt panicked in the dispatcher",
				StartedAt: started,
				EndedAt:   time.Now(),
			}
			out = rn.decide(ctx, cb, l, resp)
			out.span = span
		}
	}()
	if !rn.extendLease(ctx, cb, l) {
		// Another process may hold the lock: do not send, and do not count an attempt.
		out.putBack = divertLockLost
		out.result.State, out.result.DueAt, out.result.Diverts = store.Scheduled, now, 1
		return out
	}
	if since := time.Since(claimed); since > rn.times.Margin {
		return rn.claimTooOld(cb, since, out)
	}
	t, err := rn.target(ctx, cb, now)
	if since := time.Since(claimed); since > rn.times.Margin {
		return rn.claimTooOld(cb, since, out) // reading the endpoint and the secrets took too long
	}
	if err != nil && !errors.Is(err, errUnsigned) {
		rn.withoutTarget(cb, now, err, &out)
		return out
	}
	if rn.index.Stopped() {
		out.putBack = divertLaneStopped
		out.result.State, out.result.DueAt, out.result.Diverts = store.Scheduled, now, 1
		return out
	}
	span = rn.o.Tracer.Attempt(cb, claimed, r.steps, l.Lock != "")
	var resp outbound.Response
	if err != nil {
		resp = rn.signFailure(cb, err, span)
	} else {
		resp = rn.send(ctx, cb, &t, span)
	}
	process.Failpoint("after_send")
	out = rn.decide(ctx, cb, l, resp)
	out.span = span
	if a := out.result.Attempt; a != nil && t.url != cmp.Or(cb.FirstURL, cb.URL) {
		a.URL = t.url
	}
	return out
}

// claimTooOld postpones an attempt that would begin too late. The claim in SQL lives for the timeout and the
// margin. An attempt that began after the margin could outlive its claim and its lock, and another process
// could send the callback a second time.
func (rn *Runner) claimTooOld(cb *store.Stamped, age time.Duration, out ended) ended {
	rn.log.Warn("attempt postponed: its claim is too old",
		"callback_id", store.CallbackPrefix+cb.ID, "age", age)
	out.putBack = divertClaimOld
	out.result.State, out.result.DueAt, out.result.Diverts = store.Scheduled, cb.DueAt, 1
	return out
}

// extendLease extends the lease to the end of the claim in SQL, if that is later, and the lock with it. It
// returns whether the callback still has its lock, if it needs one. If the index does not answer, that is
// unknown, and the result is false.
//
// The lock is acquired again in any case. A rebuild restores the locks of stamped callbacks only. If it ran
// between the lock and the stamp, it dropped this lock, and another callback may have taken it.
//
// An extension that fails does not stop the attempt: the claim in SQL keeps other processes from sending. If
// the index reaps the lease early, the next claim's stamp is refused.
func (rn *Runner) extendLease(ctx context.Context, cb *store.Stamped, l *schedule.Lease) bool {
	longer := cb.ClaimUntil > l.Until
	if !longer && l.Lock == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.Timeout)
	defer cancel()
	if longer {
		l.Until = cb.ClaimUntil
		if _, err := rn.o.Schedule.Extend(ctx, []schedule.Lease{*l}); err != nil {
			rn.index.Failed("extend", err)
		}
	}
	if l.Lock == "" {
		return true
	}
	replies, err := rn.o.Schedule.Acquire(ctx, []schedule.Lease{*l})
	if err != nil {
		rn.index.Failed("acquire", err)
		return false
	}
	return replies[0].Acquired
}

// signFailure returns the result of an attempt that cannot be signed, and logs why. The attempt is not
// counted if the secret may become usable: a person can set it, or another process has the key. It is counted
// if the secret is for other hosts or the poll of a header was purged. Only an edit helps then, and without
// one the callback ends as dead.
func (rn *Runner) signFailure(cb *store.Stamped, why error, span *trace.Span) outbound.Response {
	now := time.Now()
	span.Logger(rn.log).Error("attempt cannot be signed",
		"callback_id", store.CallbackPrefix+cb.ID, "error", why)
	r := outbound.Response{
		Class:        store.ClassSignError,
		Outcome:      store.AttemptFailed,
		LocalFailure: true,
		StartedAt:    now,
		EndedAt:      now,
		Error:        "a secret cannot be read",
	}
	switch {
	case errors.Is(why, secret.ErrNoSecret):
		r.Error = "no secret for the signature: give the endpoint or the project a secret"
	case errors.Is(why, secret.ErrNotForHost):
		r.Error = "the secret is not for this host: give a new secret and list the host in its hosts"
		r.LocalFailure, r.Charged = false, true
	case errors.Is(why, store.ErrNotFound):
		r.Error = "a header belongs to a poll that was purged: edit the callback and set the header again"
		r.LocalFailure, r.Charged = false, true
	case errors.Is(why, secret.ErrUnknownKey), errors.Is(why, secret.ErrTampered):
		r.Error = "a secret cannot be decrypted with the master keys of this process"
	}
	return r
}

// send makes the request of the attempt. The receiver gets the context of the request's span if it is
// recorded, else that of the span that created the callback, as a part of the same trace.
func (rn *Runner) send(
	ctx context.Context, cb *store.Stamped, t *target, span *trace.Span,
) outbound.Response {
	r := outbound.Request{
		ID:          store.CallbackPrefix + cb.ID,
		Number:      cb.AttemptSeq + 1,
		URL:         t.url,
		Method:      cb.Method,
		Headers:     t.headers,
		ContentType: cb.ContentType,
		Body:        cb.Body,
		Timeout:     cb.Policy.Timeout,
		Success:     cb.Success,
		Poll:        cb.Kind == store.Poll,
		Signer:      t.signer,
		Secrets:     t.secrets,
		Fresh:       cb.FreeRetry,
	}
	process.FailpointOf("before_send", r.URL)
	if cb.TraceContext == nil {
		return rn.o.Sender.Send(ctx, r)
	}
	request := span.Send(cb.Method, t.url)
	r.Traceparent = trace.Context(cb.TraceContext).Header()
	if request != nil {
		r.Traceparent = request.Context().Header()
	}
	resp := rn.o.Sender.Send(ctx, r)
	request.EndSend(trace.Response{
		Status: resp.Status, Class: resp.Class, Error: resp.Error,
		StartedAt: resp.StartedAt, EndedAt: resp.EndedAt, Timings: resp.Timings,
	})
	return resp
}

// workerIdle is how long an idle worker stays. Workers are reused because a new goroutine has a small stack
// that an attempt grows several times: one goroutine per attempt cost an eighth of all CPU time.
const workerIdle = time.Second

// start gives the attempt to an idle worker or to a new one. The slots bound the attempts, and so the
// workers.
func (rn *Runner) start(ctx context.Context, r ready) {
	select {
	case rn.idle <- r:
	default:
		rn.workers.Go(func() { rn.work(ctx, r) })
	}
}

// work makes attempts until it was idle for workerIdle or the drain begins.
func (rn *Runner) work(ctx context.Context, r ready) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		rn.runSlot(ctx, r)
		timer.Reset(workerIdle)
		select {
		case r = <-rn.idle:
		case <-timer.C:
			return
		case <-rn.drain:
			return
		}
	}
}
