package smoke

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// SIGTERM: not ready at once, what is in flight ends, exit 0, nothing is sent twice.
func TestSIGTERMLetsAttemptsInFlightEnd(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		r := harness.NewReceiver(t, func(*harness.Arrival) harness.Reply { return harness.Reply{Status: 200, After: 2 * time.Second} })
		p := harness.Serve(t, harness.Launch{On: b, Args: []string{"--shutdown-delay", "4s", "--drain-timeout", "15s"}})
		cb := acceptSlow(t, p, r, "in-flight")
		p.Terminate()
		harness.Eventually(t, 3900*time.Millisecond, "/readyz turns 503 while the API is still open", func() error {
			status, body, err := p.Readyz()
			if err == nil && status == http.StatusServiceUnavailable {
				return nil
			}
			return fmt.Errorf("%d %s %w", status, body, err)
		})
		if code := p.ExitCode(time.Minute); code != 0 {
			t.Errorf("exit code %d, want 0\n%s", code, p.LogTail(2000))
		}
		p = harness.Serve(t, harness.Launch{On: b})
		harness.Await(t, p.Client, 30*time.Second)
		got, err := p.Get(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != "succeeded" || got.AttemptCount != 1 || len(r.Of(cb.ID)) != 1 {
			t.Errorf("%s after the drain, %d attempts, %d arrivals; want succeeded, 1, 1", got.State, got.AttemptCount, len(r.Of(cb.ID)))
		}
	})
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
		p.Terminate()
		start := time.Now()
		if code := p.ExitCode(time.Minute); code != 0 {
			t.Errorf("exit code %d, want 0\n%s", code, p.LogTail(2000))
		}
		drained := time.Since(start)
		p = harness.Serve(t, harness.Launch{On: b})
		start = time.Now()
		harness.Await(t, p.Client, 90*time.Second)
		got, err := p.Get(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		attempts, err := p.Attempts(t.Context(), cb.ID)
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
func acceptSlow(t *testing.T, p *harness.Process, r *harness.Receiver, ref string) harness.Callback {
	t.Helper()
	cb, err := p.Accept(t.Context(), harness.Submission{"url": r.URL, "ref": ref, "payload": harness.Payload(ref), "policy": harness.Submission{"tiers": []string{"1s"}, "timeout": "30s"}})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, 10*time.Second, "the attempt has begun", func() error {
		if r.Count() == 0 {
			return fmt.Errorf("%s has not arrived", cb.ID)
		}
		return nil
	})
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
	p.Terminate()
	if code := p.ExitCode(time.Minute); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p = harness.Serve(t, harness.Launch{On: b})
	harness.Await(t, p.Client, 30*time.Second)
	if len(r.Of(cb.ID)) != 1 {
		t.Errorf("it arrived %d times after the hold, want once", len(r.Of(cb.ID)))
	}
}
