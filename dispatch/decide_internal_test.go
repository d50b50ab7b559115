package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pastAttempts is a store of which only the attempts of one callback can be read.
type pastAttempts struct {
	Store
	list []store.Attempt
	err  error
}

func (p *pastAttempts) Attempts(context.Context, string, string) ([]store.Attempt, error) {
	return p.list, p.err
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

// newDecision is the first attempt of a callback with two tiers, which was answered 500 by a lane that answers.
func newDecision() *decision {
	d := &decision{
		w: store.Stamped{Callback: store.Callback{
			ID: "x", Project: "p", DueAt: decisionEnd.UnixMilli() - 50, FirstDueAt: decisionEnd.UnixMilli(), Fence: 7,
			Policy: store.Policy{Tiers: []time.Duration{10 * time.Second, 20 * time.Second}, RetryAfterCap: time.Minute, OverloadFloor: 30 * time.Second},
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

// polled makes it a poll's, whose answer was found to say that.
func (d *decision) polled(v outbound.Verdict) {
	d.w.Kind, d.resp.Verdict, d.resp.MaxErrors = store.Poll, v, 2
}

func (d *decision) decide(t *testing.T) ended {
	e := &Engine{o: Options{Store: &d.past}, log: slog.New(slog.DiscardHandler)}
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

// What follows an attempt, for every way in which one ends.
func TestDecide(t *testing.T) {
	t.Parallel()
	timedOut, unanswered, silent := fmt.Sprint("signal ", int(schedule.TimedOut)), fmt.Sprint("signal ", int(schedule.Unanswered)), fmt.Sprint("signal ", int(schedule.NoSignal))
	throttled := func(status int, after time.Duration) func(*decision) {
		return func(d *decision) {
			d.answered(status)
			d.resp.RetryAfter = after
		}
	}
	class := func(c store.Class, more func(*decision)) func(*decision) {
		return func(d *decision) {
			d.failed(c)
			if more != nil {
				more(d)
			}
		}
	}
	unknown := func(d *decision) { d.resp.Outcome = store.AttemptUnknown }
	busy := func(seq, count int, more func(*decision)) func(*decision) {
		return class(store.ClassReceiverBusy, func(d *decision) {
			d.answered(423)
			d.resp.Charged = false
			d.w.AttemptSeq, d.w.AttemptCount, d.w.LadderBase = seq, count, count
			if more != nil {
				more(d)
			}
		})
	}
	stopOn := func(status int, more func(*decision)) func(*decision) {
		return func(d *decision) {
			d.answered(status)
			d.w.Policy.StopOn = []int{404, 410}
			if more != nil {
				more(d)
			}
		}
	}
	deadline := func(after time.Duration, more func(*decision)) func(*decision) {
		return func(d *decision) {
			d.w.Policy.Deadline = after
			if more != nil {
				more(d)
			}
		}
	}
	poll := func(v outbound.Verdict, more func(*decision)) func(*decision) {
		return func(d *decision) {
			d.polled(v)
			if more != nil {
				more(d)
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func(*decision)
		want   string
	}{
		{"the first tier", func(*decision) {}, "scheduled, in 10s, charged"},
		{"the second", func(d *decision) { d.w.AttemptCount = 1 }, "scheduled, in 20s, charged"},
		{"the ladder's end", func(d *decision) { d.w.AttemptCount = 2 }, "dead exhausted, charged"},
		{"a ladder that began later", func(d *decision) { d.w.AttemptCount, d.w.LadderBase = 5, 4 }, "scheduled, in 20s, charged"},
		{"success", class(store.ClassOK, func(d *decision) {
			d.answered(200)
			d.resp.Outcome, d.resp.Charged = store.AttemptSucceeded, false
		}), "succeeded, charged"},

		{"429 without Retry-After", throttled(429, 0), "scheduled, in 30s, charged"},
		{"429 with a short one", throttled(429, 5*time.Second), "scheduled, in 30s, charged, lane held 5s, urgent"},
		{"429 with a long one", throttled(429, 45*time.Second), "scheduled, in 45s, charged, lane held 45s, urgent"},
		{"429 beyond the cap", throttled(429, time.Hour), "scheduled, in 1m0s, charged, lane held 1m0s, urgent"},
		{"a lane is held for a minute at most", func(d *decision) {
			throttled(429, time.Hour)(d)
			d.w.Policy.RetryAfterCap = 5 * time.Minute
		}, "scheduled, in 5m0s, charged, lane held 1m0s, urgent"},
		{"503 without Retry-After", throttled(503, 0), "scheduled, in 10s, charged"},
		{"503 with one", throttled(503, 15*time.Second), "scheduled, in 15s, charged, lane held 15s, urgent"},
		{"500 with one", throttled(500, 15*time.Second), "scheduled, in 10s, charged"},
		{"no answer in time", class(store.ClassTimeoutHeaders, func(d *decision) { d.resp.TimedOut = true }),
			"scheduled, in 30s, charged, " + timedOut + ", urgent"},
		{"no connection", class(store.ClassConnectRefused, nil), "scheduled, in 10s, charged, " + unanswered},

		{"a panic", class(store.ClassPanic, func(d *decision) { d.w.CrashCount = 4 }), "scheduled, in 3s, crash count stays, " + silent},
		{"the fifth panic", class(store.ClassPanic, func(d *decision) { d.w.CrashCount = 5 }), "dead poison, crash count stays, " + silent},
		{"a stale connection", class(store.ClassConnReset, func(d *decision) { d.resp.Stale, d.resp.Charged = true, false }),
			"scheduled, in 0s, free, " + unanswered + ", urgent"},
		{"no signature", class(store.ClassSignError, func(d *decision) { d.resp.Charged = false }), "scheduled, in 1m0s, 1 divert, " + silent},
		{"interrupted on the wire", class(store.ClassInterrupted, func(d *decision) {
			unknown(d)
			d.resp.Charged = false
		}), "scheduled, in 0s, 1 divert, " + silent + ", urgent"},
		{"interrupted before", class(store.ClassInterrupted, func(d *decision) { d.resp.Charged = false }),
			"scheduled, in 0s, no row, 1 divert, " + silent + ", urgent"},

		{"busy", busy(5, 1, nil), "scheduled, in 3s, 1 divert"},
		{"busy for the hundredth time", busy(149, 50, nil), "scheduled, in 3s, 1 divert"},
		{"busy once more", busy(150, 50, nil), "scheduled, in 10s, charged"},
		{"busy, with a delay of its rule", busy(5, 1, func(d *decision) { d.resp.DeferAfter = 7 * time.Second }), "scheduled, in 7s, 1 divert"},
		{"busy, with Retry-After", busy(5, 1, func(d *decision) { d.resp.RetryAfter = 20 * time.Second }), "scheduled, in 20s, 1 divert"},
		{"busy, beyond the cap", busy(5, 1, func(d *decision) { d.resp.RetryAfter = time.Hour }), "scheduled, in 1m0s, 1 divert"},
		{"busy as often as its rule allows", busy(3, 1, func(d *decision) { d.resp.MaxDefers = 2 }), "scheduled, in 10s, charged"},

		{"a rule that rejects", class(store.ClassRejected, func(d *decision) {
			d.answered(200)
			d.resp.Charged = false
		}), "dead rejected, charged"},
		{"a request that cannot be made", class(store.ClassInvalidRequest, func(d *decision) { d.resp.Charged = false }), "dead invalid, " + silent},
		{"a row that cannot be read", class(store.ClassCorrupt, func(d *decision) { d.resp.Charged = false }), "dead invalid, " + silent},
		{"404 stops", stopOn(404, nil), "dead rejected, charged"},
		{"410 stops", stopOn(410, nil), "dead gone, charged"},
		{"500 does not stop", stopOn(500, nil), "scheduled, in 10s, charged"},
		{"410 does not stop a poll", stopOn(410, poll(outbound.VerdictOpen, nil)), "scheduled, in 10s, charged"},

		{"due at the deadline", deadline(10*time.Second, nil), "scheduled, in 10s, charged"},
		{"due after it", deadline(10*time.Second-time.Millisecond, nil), "dead exhausted, charged"},
		{"a poll that is due after it", deadline(9*time.Second, poll(outbound.VerdictOpen, nil)), "dead unresolved, charged"},
		{"due after its expiry", func(d *decision) { d.w.ExpiresAt = decisionEnd.UnixMilli() + 5000 }, "scheduled, in 5s, charged"},
		{"due before its expiry", func(d *decision) { d.w.ExpiresAt = decisionEnd.UnixMilli() + 15_000 }, "scheduled, in 10s, charged"},

		{"due again at once", func(d *decision) { d.w.Policy.Tiers[0] = 20 * time.Millisecond }, "scheduled, in 20ms, charged, urgent"},
		{"due again a bit later", func(d *decision) { d.w.Policy.Tiers[0] = 21 * time.Millisecond }, "scheduled, in 21ms, charged"},
		{"others wait for its lock", func(d *decision) { d.lease.Lock = "k" }, "scheduled, in 10s, charged, urgent"},
		{"its lane has yet to answer", func(d *decision) { d.lease.Health = schedule.Unproven }, "scheduled, in 10s, charged, urgent"},

		{"a poll that succeeded", poll(outbound.VerdictSuccess, func(d *decision) { d.resp.Outcome = store.AttemptSucceeded }), "succeeded success, charged"},
		{"a poll that failed", poll(outbound.VerdictFailure, func(d *decision) { d.resp.Outcome = store.AttemptSucceeded }), "succeeded failure, charged"},
		{"not final yet", poll(outbound.VerdictOpen, func(d *decision) { d.w.AttemptCount = 1 }), "scheduled, in 20s, charged"},
		{"a poll without a tier left", poll(outbound.VerdictOpen, func(d *decision) { d.w.AttemptCount = 2 }), "dead unresolved, charged"},
		{"an error stays at its tier", poll(outbound.VerdictError, func(d *decision) { d.w.AttemptCount, d.w.PollErrors = 1, 1 }),
			"scheduled, in 10s, charged, stays, 2 errors"},
		{"an error beyond the budget", poll(outbound.VerdictError, func(d *decision) { d.w.PollErrors = 2 }), "dead unresolved, charged, stays, 3 errors"},
		{"an upstream asks to wait", busy(5, 1, poll(outbound.VerdictHold, func(d *decision) { d.resp.DeferAfter = 40 * time.Second })),
			"scheduled, in 40s, 1 divert, lane held 40s, urgent"},
		{"for longer than it may", busy(5, 1, poll(outbound.VerdictHold, func(d *decision) { d.resp.DeferAfter = time.Hour })),
			"scheduled, in 1m0s, 1 divert, lane held 1m0s, urgent"},
		{"until after the deadline", busy(5, 1, poll(outbound.VerdictHold, deadline(30*time.Second, func(d *decision) { d.resp.DeferAfter = 40 * time.Second }))),
			"dead unresolved, 1 divert, lane held 40s, urgent"},
	} {
		d := newDecision()
		c.change(d)
		out := d.decide(t)
		if got := describe(&out); got != c.want {
			t.Errorf("%s: %s; want %s", c.name, got, c.want)
		}
	}
}

// The row of an attempt has what the sender said, and how late it began.
func TestDecideKeepsTheAttempt(t *testing.T) {
	t.Parallel()
	d := newDecision()
	d.w.Trigger, d.resp.Error, d.resp.KeyID, d.resp.ResponseBody, d.resp.ResponseTruncated = store.Manual, "why", "key", "body", true
	a := d.decide(t).result.Attempt
	end := decisionEnd.UnixMilli()
	if a.CallbackID != "x" || a.Project != "p" || a.Fence != 7 || a.StartedAt != end-40 || a.EndedAt != end || a.DueAt != end-50 || a.Lateness != 10 {
		t.Errorf("the attempt is %+v", a)
	}
	if a.Trigger != store.Manual || a.Class != store.ClassHTTP5xx || a.Status != 500 || a.Error != "why" || a.KeyID != "key" || a.ResponseBody != "body" || !a.ResponseTruncated {
		t.Errorf("what the sender said is %+v", a)
	}
}

// Waits that are drawn lie between their bounds: those of our own trouble, and jitter.
func TestDecideDraws(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		change      func(*decision)
		least, most time.Duration
		want        string
	}{
		{"never sent", func(d *decision) { d.resp.LocalTrouble, d.resp.Charged = true, false }, 5 * time.Second, 30 * time.Second, "no row, 1 divert"},
		{"perhaps sent", func(d *decision) {
			d.resp.LocalTrouble, d.resp.Charged, d.resp.Outcome = true, false, store.AttemptUnknown
		},
			5 * time.Second, 30 * time.Second, "1 divert"},
		{"jitter", func(d *decision) { d.w.Policy.Jitter = 0.5 }, 10 * time.Second, 15 * time.Second, "charged"},
	} {
		var first, last time.Duration
		for i := range 200 {
			d := newDecision()
			c.change(d)
			out := d.decide(t)
			wait := time.Duration(out.result.DueAt-decisionEnd.UnixMilli()) * time.Millisecond
			if wait < c.least || wait > c.most {
				t.Fatalf("%s: waits %s, want %s to %s", c.name, wait, c.least, c.most)
			}
			if got, want := describe(&out), fmt.Sprintf("scheduled, in %s, %s", wait, c.want); got != want {
				t.Fatalf("%s: %s; want %s", c.name, got, want)
			}
			if i == 0 {
				first, last = wait, wait
			}
			first, last = min(first, wait), max(last, wait)
		}
		if last-first < (c.most-c.least)/2 {
			t.Errorf("%s: 200 waits lie between %s and %s", c.name, first, last)
		}
	}
}

// Three charged attempts in a row that the egress guard refuses end a callback. What was not charged, or is stale, does not count.
func TestDecideBlocked(t *testing.T) {
	t.Parallel()
	row := func(class store.Class) store.Attempt { return store.Attempt{Class: class, Charged: true} }
	blocked, failed := row(store.ClassBlocked), row(store.ClassHTTP5xx)
	uncharged, stale := store.Attempt{Class: store.ClassHTTP5xx}, store.Attempt{Class: store.ClassHTTP5xx, Charged: true, Stale: true}
	for _, c := range []struct {
		name string
		past pastAttempts
		dead bool
	}{
		{"the third", pastAttempts{list: []store.Attempt{blocked, blocked}}, true},
		{"after others", pastAttempts{list: []store.Attempt{failed, blocked, uncharged, stale, blocked}}, true},
		{"the second", pastAttempts{list: []store.Attempt{blocked}}, false},
		{"not in a row", pastAttempts{list: []store.Attempt{blocked, failed, blocked}}, false},
		{"the attempts cannot be read", pastAttempts{list: []store.Attempt{blocked, blocked}, err: errors.New("away")}, false},
	} {
		d := newDecision()
		d.failed(store.ClassBlocked)
		d.w.LastClass, d.past = store.ClassBlocked, c.past
		r := d.decide(t).result
		if dead := r.State == store.Dead && r.Reason == store.Blocked; dead != c.dead || !c.dead && r.State != store.Scheduled {
			t.Errorf("%s: %s %s", c.name, r.State, r.Reason)
		}
	}
	// Others do not ask for the attempts before.
	d := newDecision()
	d.failed(store.ClassBlocked)
	d.w.LastClass, d.past.list = store.ClassHTTP5xx, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("after another failure: %s %s", r.State, r.Reason)
	}
	d = newDecision()
	d.w.LastClass, d.past.list = store.ClassBlocked, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("another failure: %s %s", r.State, r.Reason)
	}
}
