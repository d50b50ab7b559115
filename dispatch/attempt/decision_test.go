package attempt

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pastAttempts is a store of which only the attempts of one callback can be read.
type pastAttempts struct {
	Store
	List []store.Attempt
	err  error
}

// Attempts numbers the list from 1, and reads it as a store does.
func (p *pastAttempts) Attempts(
	_ context.Context, _, _ string, before, limit int,
) (page []store.Attempt, err error) {
	for i := len(p.List); i > 0 && len(page) < limit; i-- {
		if before == 0 || i < before {
			a := p.List[i-1]
			a.Number = i
			page = append(page, a)
		}
	}
	return page, p.err
}

// A decision is an attempt that has ended, and what decide is to make of it.
type decision struct {
	w     store.Stamped
	lease schedule.Lease
	resp  outbound.Response
	past  pastAttempts
}

// decisionEnd is when the attempts of these tests end; they began 40 ms before, and were due 50 ms before.
var decisionEnd = time.UnixMilli(1_800_000_000_000)

// newDecision is the first attempt of a callback with two tiers, which was answered 500 by a lane that
// answers.
func newDecision() *decision {
	d := &decision{
		w: store.Stamped{Callback: store.Callback{
			ID: "x", Project: "p", DueAt: decisionEnd.UnixMilli() - 50, FirstDueAt: decisionEnd.UnixMilli(), Fence: 7,
			Policy: store.Policy{Tiers: []time.Duration{10 * time.Second, 20 * time.Second},
				RetryAfterCap: time.Minute, OverloadFloor: 30 * time.Second},
		}},
		lease: schedule.Lease{Health: schedule.Answering},
	}
	d.failed(store.ClassHTTP5xx)
	d.answered(500)
	return d
}

// failed has the attempt end in that class, without an answer.
func (d *decision) failed(class store.Class) {
	d.resp = outbound.Response{
		Class: class, Outcome: store.AttemptFailed, Charged: true, StartedAt: decisionEnd.Add(-40 * time.Millisecond), EndedAt: decisionEnd,
	}
}

func (d *decision) answered(status int) { d.resp.Answered, d.resp.Status = true, status }

func (d *decision) decide(t *testing.T) ended {
	e := &Runner{o: Options{Store: &d.past}, clock: new(clock.Clock), log: slog.New(slog.DiscardHandler)}
	return e.decide(t.Context(), &d.w, &d.lease, d.resp)
}

// describe tells everything that was decided; times are since the attempt's end.
func describe(out *ended) string {
	r := &out.result
	parts := []string{strings.TrimSpace(string(r.State) + " " + string(r.Reason))}
	since := func(ms int64) time.Duration { return time.Duration(ms-decisionEnd.UnixMilli()) * time.Millisecond }
	add := func(yes bool, format string, args ...any) {
		if yes {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add(r.DueAt != 0, "in %s", since(r.DueAt))
	add(r.Charge, "charged")
	add(r.Attempt == nil, "no row")
	add(r.Attempt != nil && r.Attempt.Charged != r.Charge, "its row differs")
	add(r.Diverts > 0, "%d divert", r.Diverts)
	add(r.FreeRetry, "free")
	add(r.KeepCrashCount, "crash count stays")
	add(r.Stays, "stays, %d errors", r.PollErrors)
	add(out.hold != 0, "lane held %s", since(out.hold))
	add(out.signal != schedule.Answered, "signal %d", out.signal)
	add(out.urgent, "urgent")
	return strings.Join(parts, ", ")
}

// A change makes the attempt another one.
type change func(*decision)

// inClass has the attempt end in that class, without an answer.
func inClass(c store.Class) change { return func(d *decision) { d.failed(c) } }

func status(n int) change { return func(d *decision) { d.answered(n) } }

func retryAfter(wait time.Duration) change { return func(d *decision) { d.resp.RetryAfter = wait } }

func deferAfter(wait time.Duration) change { return func(d *decision) { d.resp.DeferAfter = wait } }

func retryCap(most time.Duration) change {
	return func(d *decision) { d.w.Policy.RetryAfterCap = most }
}

func before(charged int) change { return func(d *decision) { d.w.AttemptCount = charged } }

func crashed(times int) change { return func(d *decision) { d.w.CrashCount = times } }

func deadline(after time.Duration) change { return func(d *decision) { d.w.Policy.Deadline = after } }

func expires(after time.Duration) change {
	return func(d *decision) { d.w.ExpiresAt = decisionEnd.Add(after).UnixMilli() }
}

func firstTier(wait time.Duration) change { return func(d *decision) { d.w.Policy.Tiers[0] = wait } }

func stopOn(statuses ...int) change { return func(d *decision) { d.w.Policy.StopOn = statuses } }

func uncharged(d *decision) { d.resp.Charged = false }

func unknown(d *decision) { d.resp.Outcome = store.AttemptUnknown }

func succeeded(d *decision) { d.resp.Outcome = store.AttemptSucceeded }

// busy is an answer of a receiver that is busy, to a callback with so many attempts, of which so many
// were charged.
func busy(attempts, charged int) change {
	return func(d *decision) {
		d.failed(store.ClassReceiverBusy)
		d.answered(423)
		d.resp.Charged = false
		d.w.AttemptSeq, d.w.AttemptCount, d.w.LadderBase = attempts, charged, charged
	}
}

// poll makes it a poll's, whose answer was found to say that.
func poll(v rule.Verdict) change {
	return func(d *decision) { d.w.Kind, d.resp.Verdict, d.resp.MaxErrors = store.Poll, v, 2 }
}

func errorsBefore(n int) change { return func(d *decision) { d.w.PollErrors = n } }
