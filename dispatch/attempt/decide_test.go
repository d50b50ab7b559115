package attempt

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestDecide runs the cases of testdata/decide.txt.
func TestDecide(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/decide.txt", func(line string) string {
		_, words, _ := strings.Cut(line, ":")
		d := newDecision()
		for _, word := range strings.Fields(words) {
			if err := d.change(strings.Cut(word, "=")); err != nil {
				t.Errorf("%s: %s: %v", line, word, err)
			}
		}
		out := d.decide(t)
		return describe(&out)
	})
}

// The recorded attempt has the response of the sender, and how late it began.
func TestDecideKeepsTheAttempt(t *testing.T) {
	t.Parallel()
	d := newDecision()
	d.cb.Trigger, d.resp.Error, d.resp.KeyID, d.resp.ResponseBody, d.resp.ResponseTruncated = store.Manual,
		"why", "key", "body", true
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

// A failure of this machine leaves no attempt in SQL. So it is logged: at once, and then not more often than
// each 10 s.
func TestLocalFailuresAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := newDecision()
		rn := d.runner(slog.NewTextHandler(&log, nil))
		d.failed(store.ClassLocalInfra)
		d.resp.LocalFailure, d.resp.Charged, d.resp.Error = true, false, "no name server answers"
		for range 13 { // each second, the last after 12 s
			rn.decide(t.Context(), &d.cb, &d.lease, d.resp)
			time.Sleep(time.Second)
		}
		const line = `level=WARN msg="attempts postponed: this machine or its network failed" ` +
			`error="no name server answers" callback_id=cb_x`
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.HasSuffix(lines[0], line) || !strings.HasSuffix(lines[1], line) {
			t.Errorf("logged:\n%s", log.String())
		}
	})
}

// Random waits lie between their bounds: those after a local failure, and jitter.
func TestDecideDraws(t *testing.T) {
	t.Parallel()
	neverSent := func(d *decision) { d.resp.LocalFailure, d.resp.Charged = true, false }
	perhapsSent := func(d *decision) {
		neverSent(d)
		d.resp.Outcome = store.AttemptUnknown
	}
	jitter := func(d *decision) { d.cb.Policy.Jitter = 0.5 }
	for _, c := range []struct {
		name        string
		change      func(*decision)
		least, most time.Duration
		want        string
	}{
		{"never sent", neverSent, 5 * time.Second, 30 * time.Second, "no row, 1 divert"},
		{"perhaps sent", perhapsSent, 5 * time.Second, 30 * time.Second, "1 divert"},
		{"jitter", jitter, 10 * time.Second, 15 * time.Second, "charged"},
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

// Three counted attempts in a row that the egress guard refuses end a callback. Attempts that were not
// counted or are stale do not matter.
func TestDecideBlocked(t *testing.T) {
	t.Parallel()
	row := func(class store.Class) store.Attempt { return store.Attempt{Class: class, Charged: true} }
	past := func(list ...store.Attempt) pastAttempts { return pastAttempts{List: list} }
	blocked, failed := row(store.ClassBlocked), row(store.ClassHTTP5xx)
	uncharged := store.Attempt{Class: store.ClassHTTP5xx}
	many := slices.Repeat([]store.Attempt{uncharged}, 3*blockedPage)
	unreadable := pastAttempts{List: []store.Attempt{blocked, blocked}, err: errors.New("away")}
	stale := store.Attempt{Class: store.ClassHTTP5xx, Charged: true, Stale: true}
	for _, c := range []struct {
		name string
		past pastAttempts
		dead bool
	}{
		{"the third", past(blocked, blocked), true},
		{"after others", past(failed, blocked, uncharged, stale, blocked), true},
		{"before very many others", past(append([]store.Attempt{blocked, blocked}, many...)...), true},
		{"the second", past(blocked), false},
		{"not in a row", past(blocked, failed, blocked), false},
		{"the attempts cannot be read", unreadable, false},
	} {
		d := newDecision()
		d.failed(store.ClassBlocked)
		d.cb.LastClass, d.past = store.ClassBlocked, c.past
		r := d.decide(t).result
		dead := r.State == store.Dead && r.Reason == store.Blocked
		if dead != c.dead || !dead && r.State != store.Scheduled {
			t.Errorf("%s: %s %s", c.name, r.State, r.Reason)
		}
	}
	// Without the class blocked, the earlier attempts are not read.
	d := newDecision()
	d.failed(store.ClassBlocked)
	d.cb.LastClass, d.past.List = store.ClassHTTP5xx, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("after another failure: %s %s", r.State, r.Reason)
	}
	d = newDecision()
	d.cb.LastClass, d.past.List = store.ClassBlocked, []store.Attempt{blocked, blocked}
	if r := d.decide(t).result; r.State != store.Scheduled {
		t.Errorf("another failure: %s %s", r.State, r.Reason)
	}
}
