package dispatch_test

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The whole default ladder, to the millisecond: ten attempts over 25 h 13 m 15 s, none early and none late. Outside the full
// size every wait is a 60th: a day of an idle engine takes five seconds, and a minute under the race detector.
func TestTheWholeLadder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, always(500, "no"))
		tiers, asked := schedule.Payment(), dispatch.Submission{}
		short := underRace || !testserver.Full()
		if short {
			for i := range tiers {
				tiers[i] /= 60
			}
			asked.PolicyGiven, asked.Policy = true, dispatch.PaymentPolicy()
			asked.Policy.Tiers = tiers
		}
		start := time.Now()
		c := b.accept(asked)
		done := b.await(c.ID, 26*time.Hour)
		if done.State != store.Dead || done.Reason != store.Exhausted || done.AttemptCount != 10 {
			t.Errorf("got %s/%s after %d attempts, want dead/exhausted after 10", done.State, done.Reason, done.AttemptCount)
		}
		hits := b.receiver.seen()
		if len(hits) != 10 {
			t.Fatalf("the receiver saw %d requests, want 10", len(hits))
		}
		due := start
		for i, h := range hits {
			if !h.at.Equal(due) {
				t.Errorf("attempt %d came %v after its due time", i+1, h.at.Sub(due))
			}
			if h.id != store.CallbackPrefix+c.ID || h.number != strconv.Itoa(i+1) {
				t.Errorf("attempt %d: webhook-id %s, webhook-attempt %s", i+1, h.id, h.number)
			}
			if i < 9 {
				due = due.Add(tiers[i])
			}
		}
		if total := hits[9].at.Sub(start); !short && total != 25*time.Hour+13*time.Minute+15*time.Second {
			t.Errorf("the ladder took %v", total)
		}
		for i, a := range b.attempts(c.ID) {
			if a.Number != i+1 || a.Class != store.ClassHTTP5xx || !a.Charged || a.Lateness != 0 {
				t.Errorf("attempt row %d: number %d, class %s, charged %v, lateness %v", i+1, a.Number, a.Class, a.Charged, a.Lateness)
			}
			if wantNext := i < 9; (a.NextDueAt != 0) != wantNext {
				t.Errorf("attempt row %d: next due %d", i+1, a.NextDueAt)
			}
		}
	})
}

func TestSuccessAfterFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(_ context.Context, _ hit, before int) (*http.Response, error) {
			time.Sleep(300 * time.Millisecond) // The wait runs from the attempt's end.
			return answer([]int{500, 500, 200}[before], []string{"", "", " SUCCESS\n"}[before]), nil
		})
		s := tiers(time.Second, 2*time.Second)
		s.Success = "body-success"
		s.Body = []byte("{ \"paid\" :\t1.00, \"paid\": \"\\u00e9\"}")
		start := time.Now()
		c := b.accept(s)
		done := b.await(c.ID, time.Minute)
		if done.State != store.Succeeded || done.Reason != "" || done.AttemptCount != 3 || done.DueAt != 0 {
			t.Errorf("got %s/%q after %d attempts, due %d", done.State, done.Reason, done.AttemptCount, done.DueAt)
		}
		hits := b.receiver.seen()
		want := []time.Duration{0, 1300 * time.Millisecond, 3600 * time.Millisecond}
		for i, h := range hits {
			if got := h.at.Sub(start); got != want[i] || h.body != string(s.Body) {
				t.Errorf("attempt %d at %v, want %v; body %q", i+1, got, want[i], h.body)
			}
		}
	})
}

// A policy from its acceptance to its end. What follows each kind of answer is TestDecide's.
func TestPoliciesInTime(t *testing.T) {
	policy := func(change func(*store.Policy)) dispatch.Submission {
		s := tiers(time.Second, time.Second)
		change(&s.Policy)
		return s
	}
	for _, c := range []struct {
		name     string
		submit   dispatch.Submission
		answer   func(context.Context, hit, int) (*http.Response, error)
		state    store.State
		reason   store.Reason
		attempts int
		took     time.Duration
	}{
		{"410 does not stop payments", dispatch.Submission{}, inTurn(410, 200), store.Succeeded, "", 2, 15 * time.Second},
		{"Retry-After lengthens", tiers(time.Second), func(_ context.Context, _ hit, before int) (*http.Response, error) {
			if before == 0 {
				return answer(503, "", "Retry-After", "30"), nil
			}
			return answer(200, ""), nil
		}, store.Succeeded, "", 2, 30 * time.Second},
		{"deadline", policy(func(p *store.Policy) { p.RepeatLast, p.Deadline = true, 4500*time.Millisecond }), always(500, ""), store.Dead, store.Exhausted, 5, 4 * time.Second},
		{"expires", func() dispatch.Submission {
			s := tiers(time.Second, time.Minute)
			s.ExpiresIn = &[]time.Duration{10 * time.Second}[0]
			return s
		}(), always(500, ""), store.Dead, store.Expired, 2, 10 * time.Second},
		{"start_attempt", func() dispatch.Submission {
			s := tiers(time.Hour, time.Hour, 7*time.Second)
			s.StartAttempt = 3
			return s
		}(), always(500, ""), store.Dead, store.Exhausted, 2, 7 * time.Second},
		{"receiver busy is not charged", tiers(), func(_ context.Context, _ hit, before int) (*http.Response, error) {
			return answer([]int{423, 423, 200}[before], "", "Retry-After", "4"), nil
		}, store.Succeeded, "", 1, 8 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, c.answer)
				start := time.Now()
				id := b.accept(c.submit).ID
				done := b.await(id, 2*time.Hour)
				if done.State != c.state || done.Reason != c.reason || done.AttemptCount != c.attempts {
					t.Errorf("got %s/%q with %d charged, want %s/%q with %d", done.State, done.Reason, done.AttemptCount, c.state, c.reason, c.attempts)
				}
				if took := time.UnixMilli(done.FinishedAt).Sub(start); took < c.took || took > c.took+50*time.Millisecond {
					t.Errorf("took %v, want %v", took, c.took)
				}
			})
		})
	}
}

// One lock key: never two at once, no attempt charged for waiting, and no gap while others wait.
func TestOneLockKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(20 * time.Millisecond)
			now.Add(-1)
			return answer(200, ""), nil
		})
		const n = 40
		ids := make([]string, n)
		start := time.Now()
		for i := range ids {
			ids[i] = b.accept(dispatch.Submission{LockKey: "order-1"}).ID
		}
		diverts := 0
		for _, id := range ids {
			c := b.await(id, time.Minute)
			if c.State != store.Succeeded || c.AttemptCount != 1 {
				t.Errorf("got %s after %d attempts", c.State, c.AttemptCount)
			}
			diverts += c.DivertCount
		}
		hits := b.receiver.seen()
		if most.Load() != 1 || len(hits) != n {
			t.Errorf("%d at once, %d requests; want 1 and %d", most.Load(), len(hits), n)
		}
		if diverts == 0 {
			t.Error("no diverts were counted")
		}
		if took := hits[n-1].at.Sub(start); took > n*20*time.Millisecond+200*time.Millisecond {
			t.Errorf("%d attempts of 20 ms took %v: waiters were not woken", n, took)
		}
	})
}

func TestCancel(t *testing.T) {
	by := store.Actor{Name: "test"}
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(ctx context.Context, h hit, _ int) (*http.Response, error) {
			time.Sleep(time.Second)
			if h.url == "https://good.example/" {
				return answer(200, ""), nil
			}
			return answer(500, ""), nil
		})
		cancel := func(id string) store.CancelResult {
			r, err := b.engine.Cancel(t.Context(), store.DefaultProject, id, by)
			if err != nil {
				t.Fatal(err)
			}
			return r.Result
		}
		hour := time.Hour
		waiting := b.accept(dispatch.Submission{Delay: &hour}).ID
		if got := cancel(waiting); got != store.CancelDone {
			t.Errorf("waiting: %s", got)
		}
		if got := cancel(waiting); got != store.CancelAlreadyTerminal {
			t.Errorf("again: %s", got)
		}
		bad, good := b.accept(dispatch.Submission{URL: "https://bad.example/"}).ID, b.accept(dispatch.Submission{URL: "https://good.example/"}).ID
		time.Sleep(500 * time.Millisecond)
		for _, id := range []string{bad, good} {
			if c := b.get(id); c.StateAt(b.engine.Now()) != store.Attempting {
				t.Errorf("%s while it is sent", c.StateAt(b.engine.Now()))
			}
			if got := cancel(id); got != store.CancelTooLate {
				t.Errorf("in flight: %s", got)
			}
		}
		if c := b.await(bad, time.Minute); c.State != store.Canceled || c.Reason != store.Requested || c.AttemptCount != 1 {
			t.Errorf("in flight and failing: %s/%s after %d", c.State, c.Reason, c.AttemptCount)
		}
		if c := b.await(good, time.Minute); c.State != store.Succeeded {
			t.Errorf("in flight and succeeding: %s", c.State)
		}
		time.Sleep(2 * time.Hour)
		if n := len(b.receiver.seen()); n != 2 {
			t.Errorf("%d requests, want 2: something canceled was sent", n)
		}
	})
}

func TestRetry(t *testing.T) {
	by := store.Actor{Name: "test"}
	synctest.Test(t, func(t *testing.T) {
		var status atomic.Int32
		status.Store(500)
		b := newBench(t, func(context.Context, hit, int) (*http.Response, error) { return answer(int(status.Load()), ""), nil })
		retry := func(id string, l store.Ladder) {
			t.Helper()
			b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, dispatch.RetryRequest{Ladder: l}, by))
		}
		// Scheduled: its next step, now.
		id := b.accept(tiers(time.Hour)).ID
		time.Sleep(time.Second)
		retry(id, "")
		if c := b.await(id, time.Minute); c.Reason != store.Exhausted || c.AttemptCount != 2 {
			t.Errorf("early retry: %s after %d", c.Reason, c.AttemptCount)
		}
		// Terminal, once: a failure changes nothing, a success makes it succeeded.
		retry(id, store.Once)
		time.Sleep(time.Second)
		if c := b.get(id); c.State != store.Dead || c.Reason != store.Exhausted || c.AttemptCount != 3 {
			t.Errorf("failed single retry: %s/%s after %d", c.State, c.Reason, c.AttemptCount)
		}
		// Restart: the whole ladder again; numbers go on.
		retry(id, store.Restart)
		time.Sleep(2 * time.Hour)
		if c := b.get(id); c.State != store.Dead || c.AttemptCount != 5 {
			t.Errorf("restarted: %s after %d", c.State, c.AttemptCount)
		}
		status.Store(200)
		retry(id, store.Once)
		time.Sleep(time.Second)
		if c := b.get(id); c.State != store.Succeeded || c.Reason != "" || c.AttemptCount != 6 {
			t.Errorf("successful single retry: %s/%s after %d", c.State, c.Reason, c.AttemptCount)
		}
		rows := b.attempts(id)
		if len(rows) != 6 || rows[5].Number != 6 || rows[5].Trigger != store.Manual || rows[4].Trigger != store.BySchedule {
			t.Errorf("rows: %d, last %+v", len(rows), rows[len(rows)-1])
		}
	})
}
