package attempt

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What follows an attempt, for every way in which one ends.
func TestDecide(t *testing.T) {
	t.Parallel()
	const s = time.Second
	timedOut := fmt.Sprint("signal ", int(schedule.TimedOut))
	unanswered := fmt.Sprint("signal ", int(schedule.Unanswered))
	silent := fmt.Sprint("signal ", int(schedule.NoSignal))
	for _, c := range []struct {
		name    string
		want    string
		changes []change
	}{
		{"the first tier", "scheduled, in 10s, charged", nil},
		{"the second", "scheduled, in 20s, charged", []change{before(1)}},
		{"the ladder's end", "dead exhausted, charged", []change{before(2)}},
		{"a ladder that began later", "scheduled, in 20s, charged",
			[]change{before(5), func(d *decision) { d.w.LadderBase = 4 }}},
		{"success", "succeeded, charged", []change{inClass(store.ClassOK), status(200), succeeded, uncharged}},
		{"a failure is charged in any case", "scheduled, in 10s, charged", []change{uncharged}},

		{"429 without Retry-After", "scheduled, in 30s, charged", []change{status(429)}},
		{"429, short", "scheduled, in 30s, charged, lane held 5s, urgent",
			[]change{status(429), retryAfter(5 * s)}},
		{"429, long", "scheduled, in 45s, charged, lane held 45s, urgent",
			[]change{status(429), retryAfter(45 * s)}},
		{"429, beyond the cap", "scheduled, in 1m0s, charged, lane held 1m0s, urgent",
			[]change{status(429), retryAfter(time.Hour)}},
		{"a lane is held for a minute at most", "scheduled, in 5m0s, charged, lane held 1m0s, urgent",
			[]change{status(429), retryAfter(time.Hour), retryCap(5 * time.Minute)}},
		{"503 without Retry-After", "scheduled, in 10s, charged", []change{status(503)}},
		{"503 with one", "scheduled, in 15s, charged, lane held 15s, urgent",
			[]change{status(503), retryAfter(15 * s)}},
		{"500 with one", "scheduled, in 10s, charged", []change{retryAfter(15 * s)}},
		{"no answer in time", "scheduled, in 30s, charged, " + timedOut + ", urgent",
			[]change{inClass(store.ClassTimeoutHeaders), func(d *decision) { d.resp.TimedOut = true }}},
		{"no connection", "scheduled, in 10s, charged, " + unanswered,
			[]change{inClass(store.ClassConnectRefused)}},

		{"a panic", "scheduled, in 3s, crash count stays, " + silent,
			[]change{inClass(store.ClassPanic), crashed(4)}},
		{"the fifth panic", "dead poison, crash count stays, " + silent,
			[]change{inClass(store.ClassPanic), crashed(5)}},
		{"a stale connection", "scheduled, in 0s, free, " + unanswered + ", urgent",
			[]change{inClass(store.ClassConnReset), uncharged, func(d *decision) { d.resp.Stale = true }}},
		{"no signature", "scheduled, in 1m0s, 1 divert, " + silent,
			[]change{inClass(store.ClassSignError), uncharged}},
		{"interrupted on the wire", "scheduled, in 0s, 1 divert, " + silent + ", urgent",
			[]change{inClass(store.ClassInterrupted), uncharged, unknown}},
		{"interrupted before", "scheduled, in 0s, no row, 1 divert, " + silent + ", urgent",
			[]change{inClass(store.ClassInterrupted), uncharged}},

		{"busy", "scheduled, in 3s, 1 divert", []change{busy(5, 1)}},
		{"busy for the hundredth time", "scheduled, in 3s, 1 divert", []change{busy(149, 50)}},
		{"busy once more", "scheduled, in 10s, charged", []change{busy(150, 50)}},
		{"busy, with a delay of its rule", "scheduled, in 7s, 1 divert",
			[]change{busy(5, 1), deferAfter(7 * s)}},
		{"busy, with Retry-After", "scheduled, in 20s, 1 divert", []change{busy(5, 1), retryAfter(20 * s)}},
		{"busy, beyond the cap", "scheduled, in 1m0s, 1 divert", []change{busy(5, 1), retryAfter(time.Hour)}},
		{"busy as often as its rule allows", "scheduled, in 10s, charged",
			[]change{busy(3, 1), func(d *decision) { d.resp.MaxDefers = 2 }}},

		{"a rule that rejects", "dead rejected, charged",
			[]change{inClass(store.ClassRejected), status(200), uncharged}},
		{"a request that cannot be made", "dead invalid, " + silent,
			[]change{inClass(store.ClassInvalidRequest), uncharged}},
		{"a row that cannot be read", "dead invalid, " + silent,
			[]change{inClass(store.ClassCorrupt), uncharged}},
		{"404 stops", "dead rejected, charged", []change{status(404), stopOn(404, 410)}},
		{"410 stops", "dead gone, charged", []change{status(410), stopOn(404, 410)}},
		{"500 does not stop", "scheduled, in 10s, charged", []change{stopOn(404, 410)}},
		{"410 does not stop a poll", "scheduled, in 10s, charged",
			[]change{status(410), stopOn(410), poll(rule.VerdictOpen)}},

		{"due at the deadline", "scheduled, in 10s, charged", []change{deadline(10 * s)}},
		{"due after it", "dead exhausted, charged", []change{deadline(10*s - time.Millisecond)}},
		{"a poll that is due after it", "dead unresolved, charged",
			[]change{deadline(9 * s), poll(rule.VerdictOpen)}},
		{"due after its expiry", "scheduled, in 5s, charged", []change{expires(5 * s)}},
		{"due before its expiry", "scheduled, in 10s, charged", []change{expires(15 * s)}},

		{"due again at once", "scheduled, in 20ms, charged, urgent",
			[]change{firstTier(20 * time.Millisecond)}},
		{"due again a bit later", "scheduled, in 21ms, charged", []change{firstTier(21 * time.Millisecond)}},
		{"others wait for its lock", "scheduled, in 10s, charged, urgent",
			[]change{func(d *decision) { d.lease.Lock = "k" }}},
		{"its lane has yet to answer", "scheduled, in 10s, charged, urgent",
			[]change{func(d *decision) { d.lease.Health = schedule.Unproven }}},

		{"a poll that succeeded", "succeeded success, charged",
			[]change{poll(rule.VerdictSuccess), succeeded}},
		{"a poll that failed", "succeeded failure, charged",
			[]change{poll(rule.VerdictFailure), succeeded}},
		{"not final yet", "scheduled, in 20s, charged", []change{poll(rule.VerdictOpen), before(1)}},
		{"a poll without a tier left", "dead unresolved, charged",
			[]change{poll(rule.VerdictOpen), before(2)}},
		{"an error stays at its tier", "scheduled, in 10s, charged, stays, 2 errors",
			[]change{poll(rule.VerdictError), before(1), errorsBefore(1)}},
		{"an error beyond the budget", "dead unresolved, charged, stays, 3 errors",
			[]change{poll(rule.VerdictError), errorsBefore(2)}},
		{"an upstream asks to wait", "scheduled, in 40s, 1 divert, lane held 40s, urgent",
			[]change{busy(5, 1), poll(rule.VerdictHold), deferAfter(40 * s)}},
		{"for longer than it may", "scheduled, in 1m0s, 1 divert, lane held 1m0s, urgent",
			[]change{busy(5, 1), poll(rule.VerdictHold), deferAfter(time.Hour)}},
		{"until after the deadline", "dead unresolved, 1 divert, lane held 40s, urgent",
			[]change{busy(5, 1), poll(rule.VerdictHold), deferAfter(40 * s), deadline(30 * s)}},
	} {
		d := newDecision()
		for _, change := range c.changes {
			change(d)
		}
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
	if a.CallbackID != "x" || a.Project != "p" || a.Fence != 7 || a.StartedAt != end-40 ||
		a.EndedAt != end || a.DueAt != end-50 || a.Lateness != 10 {
		t.Errorf("the attempt is %+v", a)
	}
	if a.Trigger != store.Manual || a.Class != store.ClassHTTP5xx || a.Status != 500 || a.Error != "why" ||
		a.KeyID != "key" || a.ResponseBody != "body" || !a.ResponseTruncated {
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
		{"never sent", func(d *decision) { d.resp.LocalTrouble, d.resp.Charged = true, false }, 5 * time.Second,
			30 * time.Second, "no row, 1 divert"},
		{"perhaps sent", func(d *decision) {
			d.resp.LocalTrouble, d.resp.Charged, d.resp.Outcome = true, false, store.AttemptUnknown
		},
			5 * time.Second, 30 * time.Second, "1 divert"},
		{"jitter", func(d *decision) { d.w.Policy.Jitter = 0.5 }, 10 * time.Second, 15 * time.Second,
			"charged"},
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

// Three charged attempts in a row that the egress guard refuses end a callback. What was not charged, or
// is stale, does not count.
func TestDecideBlocked(t *testing.T) {
	t.Parallel()
	row := func(class store.Class) store.Attempt { return store.Attempt{Class: class, Charged: true} }
	blocked, failed := row(store.ClassBlocked), row(store.ClassHTTP5xx)
	uncharged, stale := store.Attempt{Class: store.ClassHTTP5xx}, store.Attempt{Class: store.ClassHTTP5xx,
		Charged: true, Stale: true}
	for _, c := range []struct {
		name string
		past pastAttempts
		dead bool
	}{
		{"the third", pastAttempts{List: []store.Attempt{blocked, blocked}}, true},
		{"after others", pastAttempts{List: []store.Attempt{failed, blocked, uncharged, stale, blocked}}, true},
		{
			"before very many others",
			pastAttempts{List: append([]store.Attempt{blocked, blocked},
				slices.Repeat([]store.Attempt{uncharged}, 3*blockedPage)...)}, true,
		},
		{"the second", pastAttempts{List: []store.Attempt{blocked}}, false},
		{"not in a row", pastAttempts{List: []store.Attempt{blocked, failed, blocked}}, false},
		{"the attempts cannot be read", pastAttempts{List: []store.Attempt{blocked, blocked},
			err: errors.New("away")}, false},
	} {
		d := newDecision()
		d.failed(store.ClassBlocked)
		d.w.LastClass, d.past = store.ClassBlocked, c.past
		r := d.decide(t).result
		if dead := r.State == store.Dead && r.Reason == store.Blocked; dead != c.dead || !c.dead &&
			r.State != store.Scheduled {
			t.Errorf("%s: %s %s", c.name, r.State, r.Reason)
		}
	}
	// Others do not ask for the attempts before.
	d := newDecision()
	d.failed(store.ClassBlocked)
	d.w.LastClass, d.past.List = store.ClassHTTP5xx, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("after another failure: %s %s", r.State, r.Reason)
	}
	d = newDecision()
	d.w.LastClass, d.past.List = store.ClassBlocked, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("another failure: %s %s", r.State, r.Reason)
	}
}
