package attempt

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A ready attempt is stamped.
type ready struct {
	w       *store.Stamped
	l       *schedule.Lease
	claimed time.Time
	// notBefore is when its due time has come at the earliest, by the claim's own reading of the index's
	// clock.
	notBefore time.Time
	// waited: it waited for a slot. Its lane may be stopped by now.
	waited bool
}

// attempt makes one attempt, and then those that waited for its slot, one after the other.
func (rn *Runner) attempt(ctx context.Context, r ready) {
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

// stopped says whether what waited for a slot must not begin by now.
func (rn *Runner) stopped(r *ready) bool {
	return rn.index.Paused(r.l.Lane) || rn.limits.stopped(r)
}

// skipStopped returns the first that may begin of an attempt and those that wait for its slot. It puts back
// those whose lane is paused or stopped by now.
func (rn *Runner) skipStopped(ctx context.Context, r ready) (first ready, more bool) {
	var back []ready
	more = true
	for more && r.waited && rn.stopped(&r) {
		back = append(append(back, rn.limits.drop(r.l)...), r)
		r, more = rn.slots.replace()
	}
	rn.putBackAside(ctx, back)
	return r, more
}

// attemptOne makes one attempt of a stamped callback, releases its lock, and passes the result on to be
// settled. It returns the one that begins in its place. Committed is closed, if it is not nil, when the
// result is in SQL or was given up.
func (rn *Runner) attemptOne(ctx context.Context, r ready,
	committed chan<- struct{}) (next ready, more bool) {
	rn.awaitDue(&r)
	if r.w.Lost {
		rn.metrics.crashed.Inc()
		rn.observer.Crashed(r.w, rn.clock.Now())
	}
	began := time.Now()
	out := rn.try(ctx, r.w, r.l, r.claimed)
	if committed != nil {
		out.committed, out.urgent = committed, true
	}
	successor, back, claim := rn.limits.end(&out, time.Since(began))
	if claim >= 0 {
		rn.wakers[claim].Hint()
	}
	rn.putBackAside(ctx, back)
	out.generation = rn.generation.Load()
	unlocked := rn.unlockSoon(ctx, out.lease)
	rn.settler.add(out)
	if unlocked != nil {
		<-unlocked
	}
	next, more = rn.slots.end(r.l.Health)
	if successor == nil || !rn.slots.begin(successor, false) {
		return next, more
	}
	if more {
		rn.start(ctx, next)
	}
	return *successor, true
}

// putBackDelay is when a callback is due again that was put back: at once, it would meet the same.
const putBackDelay = 20 * time.Millisecond

// putBack gives up stamped callbacks that are not to be sent at present: uncharged. Their lanes' limits know
// of it.
func (rn *Runner) putBack(ctx context.Context, back []ready) {
	if len(back) == 0 {
		return
	}
	due, generation := rn.clock.Now()+putBackDelay.Milliseconds(), rn.generation.Load()
	// An index that hangs is asked once, not for each lease: their claims must not run out meanwhile.
	leases := make([]*schedule.Lease, len(back))
	for i := range back {
		leases[i] = back[i].l
	}
	rn.index.Unlock(ctx, leases...)
	for i := range back {
		r := &back[i]
		at := max(due, r.w.DueAt)
		if rn.index.Paused(r.l.Lane) {
			at = max(at, due+heldDelay.Milliseconds()) // the index may not know of the pause yet
		}
		rn.settler.add(ended{
			lease: r.l, generation: generation, putBack: "lane_stopped",
			result: store.Result{
				ID: r.w.ID, Fence: r.w.Fence, State: store.Scheduled, DueAt: at, Diverts: 1, Stamped: r.w,
			},
		})
		rn.slots.putBack(r.l.Health)
		rn.attempts.Done()
	}
}

// putBackAside is putBack for callers that must not wait for an index that hangs. A drain waits for what is
// put back.
func (rn *Runner) putBackAside(ctx context.Context, back []ready) {
	if len(back) > 0 {
		go rn.putBack(ctx, back)
	}
}

// An ended attempt is a result that is to be committed, and what the index is to be told if it wins.
type ended struct {
	result store.Result
	lease  *schedule.Lease
	signal schedule.Signal
	// hold of the lane, in Unix milliseconds.
	hold int64
	// urgent results are not held back for a batch: somebody waits for them.
	urgent bool
	class  store.Class
	// next is whose turn it is in strict order, now that this one is terminal; nil: nobody's.
	next *store.OpenRow
	// putBack is why it was put back without an attempt.
	putBack string
	// generation of the index when the lock was released: a rebuild since then may have taken it again for
	// this attempt.
	generation int64
	// committed is closed when the result was committed, or given up; nil: nobody waits for it.
	committed chan<- struct{}
}

// urgent says whether somebody waits for the lease's result: for its lock, or for what the lane learns of its
// receiver.
func urgent(l *schedule.Lease) bool { return l.Lock != "" || l.Health != schedule.Answering }

// try decides how the claimed callback goes on; mostly by sending it.
func (rn *Runner) try(ctx context.Context, w *store.Stamped, l *schedule.Lease,
	claimed time.Time) (out ended) {
	out = ended{lease: l, urgent: urgent(l), result: store.Result{ID: w.ID, Fence: w.Fence, Stamped: w}}
	now := rn.clock.Now()
	switch {
	case w.ClaimsWithoutResult > poisonClaims:
		out.result.State, out.result.Reason = store.Dead, store.Poison
		return out
	case w.ExpiresAt != 0 && max(now, w.DueAt) >= w.ExpiresAt:
		// It was claimed, so that by the index's clock its due time has come, whatever this process's says.
		out.result.State, out.result.Reason = store.Dead, store.Expired
		return out
	}
	started := time.Now()
	defer func() {
		if p := recover(); p != nil {
			rn.log.Error("attempt panicked", "callback_id", store.CallbackPrefix+w.ID, "panic", fmt.Sprint(p),
				"stack", string(debug.Stack()))
			resp := outbound.Response{
				Class: store.ClassPanic, Outcome: store.AttemptUnknown,
				Error:     "the attempt panicked in the dispatcher",
				StartedAt: started, EndedAt: time.Now(),
			}
			out = rn.decide(ctx, w, l, resp)
		}
	}()
	if !rn.extend(ctx, w, l) {
		// Somebody else may hold the lock: not sent, not charged.
		out.putBack = "lock_lost"
		out.result.State, out.result.DueAt, out.result.Diverts = store.Scheduled, now, 1
		return out
	}
	if since := time.Since(claimed); since > rn.times.Margin {
		return rn.tooOld(w, since, out)
	}
	t, err := rn.target(ctx, w, now)
	if since := time.Since(claimed); since > rn.times.Margin {
		return rn.tooOld(w, since, out) // reading what it is sent by took so long
	}
	if err != nil && !errors.Is(err, errUnsigned) {
		rn.unaimed(w, now, err, &out)
		return out
	}
	var resp outbound.Response
	if err != nil {
		resp = rn.unsigned(w, err)
	} else {
		resp = rn.send(ctx, w, &t)
	}
	part.Failpoint("after_send")
	out = rn.decide(ctx, w, l, resp)
	if a := out.result.Attempt; a != nil && t.url != w.URL {
		a.URL = t.url
	}
	return out
}

// tooOld puts an attempt off: so much was lost on the way to it that its claim, and its lock, would end
// before it does.
func (rn *Runner) tooOld(w *store.Stamped, age time.Duration, out ended) ended {
	rn.log.Warn("an attempt was put off: its claim had grown too old", "callback_id",
		store.CallbackPrefix+w.ID, "age", age)
	out.putBack = "claim_old"
	out.result.State, out.result.DueAt, out.result.Diverts = store.Scheduled, w.DueAt, 1
	return out
}

// extend lengthens the lease, once, where the claim in SQL lives longer, and the lock with it. It says
// whether a lock that the callback needs is still held: always, because a rebuild knows of a lock only from
// the stamp on, so that one taken before may have been forgotten, and taken by somebody else, when the stamp
// commits.
func (rn *Runner) extend(ctx context.Context, w *store.Stamped, l *schedule.Lease) bool {
	longer := w.ClaimUntil > l.Until
	if !longer && l.Lock == "" {
		return true
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.Timeout)
	defer cancel()
	if longer {
		l.Until = w.ClaimUntil
		if _, err := rn.o.Schedule.Extend(ctx, []schedule.Lease{*l}); err != nil {
			// SQL's claim is what keeps others from sending; an early reap only costs a refused stamp.
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

// unsigned is how an attempt ends that cannot be signed.
func (rn *Runner) unsigned(w *store.Stamped, why error) outbound.Response {
	now := time.Now()
	rn.log.Error("an attempt cannot be signed", "callback_id", store.CallbackPrefix+w.ID, "error", why)
	r := outbound.Response{
		Class: store.ClassSignError, Outcome: store.AttemptFailed, LocalFailure: true, StartedAt: now,
		EndedAt: now,
		Error:   "a secret cannot be read",
	}
	switch {
	case errors.Is(why, secret.ErrNoSecret):
		r.Error = "there is no secret for the signer: give the endpoint or the project one"
	case errors.Is(why, secret.ErrNotForHost):
		// Only a person can cure that: the attempt is charged, and the callback ends as dead.
		r.Error = "the signer's secret was not given for this host: give a new one with the host among its " +
			"hosts"
		r.LocalFailure, r.Charged = false, true
	case errors.Is(why, store.ErrNotFound):
		r.Error = "a header was sealed for a poll that was purged: give the callback a new one"
		r.LocalFailure, r.Charged = false, true
	case errors.Is(why, secret.ErrUnknownKey), errors.Is(why, secret.ErrTampered):
		r.Error = "a secret cannot be decrypted with the master keys of this process"
	}
	return r
}

// send makes the request.
func (rn *Runner) send(ctx context.Context, w *store.Stamped, t *target) outbound.Response {
	r := outbound.Request{
		ID:          store.CallbackPrefix + w.ID,
		Number:      w.AttemptSeq + 1,
		URL:         t.url,
		Method:      w.Method,
		Headers:     t.headers,
		ContentType: w.ContentType,
		Body:        w.Body,
		Timeout:     w.Policy.Timeout,
		Success:     w.Success,
		Poll:        w.Kind == store.Poll,
		Signer:      t.signer,
		Secrets:     t.secrets,
		Fresh:       w.FreeRetry,
	}
	part.FailpointOf("before_send", r.URL)
	return rn.o.Sender.Send(ctx, r)
}

// workerIdle is how long a worker without an attempt stays. A new goroutine begins with a small stack, which
// an attempt makes grow several times: with each attempt on a goroutine of its own that was an eighth of all
// CPU time.
const workerIdle = time.Second

// start makes the attempt on a worker that is idle, or on a new one. Workers are bounded as attempts are, by
// the slots.
func (rn *Runner) start(ctx context.Context, r ready) {
	select {
	case rn.idle <- r:
	default:
		rn.workers.Go(func() { rn.work(ctx, r) })
	}
}

// work makes attempts until none has come for workerIdle, or the drain has begun.
func (rn *Runner) work(ctx context.Context, r ready) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		rn.attempt(ctx, r)
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
