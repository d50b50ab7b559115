package smoke

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// The first SIGTERM: not ready at once, what is in flight ends, what is accepted is not sent. The second one
// ends the process at once: no test waits for the delay.
func TestShutdownDelayKeepsTheAPIOpen(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		r, release := gatedReceiver(t)
		p := harness.Serve(t, harness.Launch{On: b, Args: []string{"--shutdown-delay", "1h"}})
		first := acceptSlow(t, p, r, "in-flight")
		p.Terminate()
		harness.Eventually(t, time.Minute, "/readyz turns 503", func() error {
			status, body, err := p.Readyz()
			if err == nil && status == http.StatusServiceUnavailable {
				return nil
			}
			return fmt.Errorf("%d %s %w", status, body, err)
		})
		late, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "payload": harness.Payload("late")})
		if err != nil {
			t.Fatal(err)
		}
		wantState(t, p, first.ID, "attempting")
		release()
		wantState(t, p, first.ID, "succeeded")
		if n := len(r.Of(late.ID)); n != 0 {
			t.Errorf("what was accepted after SIGTERM arrived %d times before the restart", n)
		}
		p.Terminate()
		if code := p.ExitCode(time.Minute); code != 1 {
			t.Errorf("exit code %d after the second SIGTERM, want 1\n%s", code, p.LogTail(2000))
		}
		p = harness.Serve(t, harness.Launch{On: b})
		wantSentOnce(t, p, r, first.ID)
		wantSentOnce(t, p, r, late.ID)
	})
}

// SIGTERM, after the delay: the API closes, what is in flight ends, exit 0, nothing is sent twice.
func TestSIGTERMLetsAttemptsInFlightEnd(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		r, release := gatedReceiver(t)
		args := []string{"--shutdown-delay", "100ms", "--drain-timeout", "1h"}
		p := harness.Serve(t, harness.Launch{On: b, Args: args})
		cb := acceptSlow(t, p, r, "in-flight")
		p.Terminate()
		harness.Eventually(t, time.Minute, "the API is closed", func() error {
			if _, err := p.Callback(t.Context(), cb.ID); err == nil {
				return errors.New("it answers")
			}
			return nil
		})
		release()
		if code := p.ExitCode(time.Minute); code != 0 {
			t.Errorf("exit code %d, want 0\n%s", code, p.LogTail(2000))
		}
		wantSentOnce(t, harness.Serve(t, harness.Launch{On: b}), r, cb.ID)
	})
}

// gatedReceiver answers no request until it is released.
func gatedReceiver(t *testing.T) (r *harness.Receiver, release func()) {
	t.Helper()
	gate := make(chan struct{})
	release = sync.OnceFunc(func() { close(gate) })
	r = harness.NewReceiver(t, func(*harness.Arrival) harness.Reply {
		<-gate
		return harness.Reply{Status: 200}
	})
	t.Cleanup(release) // before the receiver is closed, which waits for its requests
	return r, release
}

// wantState waits until a callback is in a state.
func wantState(t *testing.T, p *harness.Process, id string, state client.State) (got client.Callback) {
	t.Helper()
	harness.Eventually(t, time.Minute, id+" has "+string(state), func() (err error) {
		got, err = p.Callback(t.Context(), id)
		if err == nil && got.State != state {
			err = fmt.Errorf("it is %s", got.State)
		}
		return err
	})
	return got
}

// wantSentOnce waits until a callback has succeeded, which must have taken one attempt.
func wantSentOnce(t *testing.T, p *harness.Process, r *harness.Receiver, id string) {
	t.Helper()
	got := wantState(t, p, id, "succeeded")
	if n := len(r.Of(id)); got.AttemptCount != 1 || n != 1 {
		t.Errorf("%s has %d attempts and %d arrivals, want 1 and 1", id, got.AttemptCount, n)
	}
}

// What does not end within the drain's time is handed back uncharged, and sent by the next process.
func TestDrainHandsBackUncharged(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		r := harness.NewReceiver(t, func(a *harness.Arrival) harness.Reply {
			if a.Nth == 1 {
				return harness.Reply{Status: 200, After: 20 * time.Second}
			}
			return harness.Reply{Status: 200}
		})
		p := harness.Serve(t, harness.Launch{On: b, Args: []string{"--drain-timeout", "1s"}})
		cb := acceptSlow(t, p, r, "too-slow")
		start := time.Now()
		p.Exit(time.Minute)
		drained := time.Since(start)
		p = harness.Serve(t, harness.Launch{On: b})
		start = time.Now()
		harness.Await(t, p.Client, 90*time.Second)
		got, err := p.Callback(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		attempts, err := p.AttemptsOf(cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != "succeeded" || got.AttemptCount != 1 || len(attempts) != 2 {
			t.Fatalf("%s with %d charged attempts of %d rows; want succeeded, 1, 2", got.State, got.AttemptCount, len(attempts))
		}
		if first := attempts[0]; first.Charged || first.Outcome != "unknown" || first.Class != "interrupted" {
			t.Errorf("the interrupted attempt is %+v; want outcome unknown, class interrupted, not charged", first)
		}
		t.Logf("%s: ended %s after SIGTERM; sent again by the next process, which was done after %s", b.Name, drained.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond))
	})
}

// acceptSlow accepts one callback and waits until it is being attempted.
func acceptSlow(t *testing.T, p *harness.Process, r *harness.Receiver, ref string) client.Callback {
	t.Helper()
	cb, err := p.Accept(t.Context(), harness.Submission{
		"url": r.URL, "ref": ref, "payload": harness.Payload(ref),
		"policy": harness.Tiers("60s", "1s"),
	})
	if err != nil {
		t.Fatal(err)
	}
	harness.AtLeast(t, time.Minute, "the attempt has begun", 1, r.Count)
	return cb
}

// With --hold callbacks are accepted and none is sent.
func TestHoldAcceptsAndSendsNothing(t *testing.T) {
	harness.BlackBox(t)
	b := harness.NewBackend(t, harness.SQLiteEmbedded)
	t.Cleanup(func() { // after the last process has ended
		if b.BooksBalanced() == 0 {
			t.Error("the books were compared by none of the processes")
		}
	})
	r := harness.NewReceiver(t, harness.Always(200, ""))
	p := harness.Serve(t, harness.Launch{On: b, Args: []string{"--hold"}})
	cb, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "ref": "held", "payload": harness.Payload("held")})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		if r.Count() > 0 {
			t.Fatal("something was sent by a process that holds")
		}
		harness.Pause()
	}
	p.Exit(time.Minute)
	p = harness.Serve(t, harness.Launch{On: b})
	harness.Await(t, p.Client, 30*time.Second)
	if len(r.Of(cb.ID)) != 1 {
		t.Errorf("it arrived %d times after the hold, want once", len(r.Of(cb.ID)))
	}
}
