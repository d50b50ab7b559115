package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// SIGTERM: not ready at once, what is in flight ends, exit 0, nothing is sent twice.
func TestSIGTERMLetsAttemptsInFlightEnd(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		r := listen(t, func(*arrival) reply { return reply{status: 200, after: 2 * time.Second} })
		p := serve(t, launch{on: b, args: []string{"--shutdown-delay", "1s", "--drain-timeout", "15s"}})
		cb := acceptSlow(t, p, r, "in-flight")
		p.terminate()
		eventually(t, 900*time.Millisecond, "/readyz turns 503", func() error {
			status, body, err := p.readyz()
			if err == nil && status == http.StatusServiceUnavailable {
				return nil
			}
			return fmt.Errorf("%d %s %w", status, body, err)
		})
		if code := p.exitCode(15 * time.Second); code != 0 {
			t.Errorf("exit code %d, want 0\n%s", code, p.logTail(2000))
		}
		p = serve(t, launch{on: b})
		await(t, p.client, 30*time.Second)
		got, err := p.get(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != "succeeded" || got.AttemptCount != 1 || len(r.of(cb.ID)) != 1 {
			t.Errorf("%s after the drain, %d attempts, %d arrivals; want succeeded, 1, 1", got.State, got.AttemptCount, len(r.of(cb.ID)))
		}
	})
}

// What does not end within the drain's time is handed back uncharged, and sent by the next process.
func TestDrainHandsBackUncharged(t *testing.T) {
	blackBox(t)
	on(t, bothEnds, func(t *testing.T, b backend) {
		r := listen(t, func(a *arrival) reply {
			if a.nth == 1 {
				return reply{status: 200, after: 20 * time.Second}
			}
			return reply{status: 200}
		})
		p := serve(t, launch{on: b, args: []string{"--drain-timeout", "1s"}})
		cb := acceptSlow(t, p, r, "too-slow")
		p.terminate()
		start := time.Now()
		if code := p.exitCode(10 * time.Second); code != 0 {
			t.Errorf("exit code %d, want 0\n%s", code, p.logTail(2000))
		}
		drained := time.Since(start)
		p = serve(t, launch{on: b})
		start = time.Now()
		await(t, p.client, 90*time.Second)
		got, err := p.get(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		attempts, err := p.attempts(t.Context(), cb.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State != "succeeded" || got.AttemptCount != 1 || len(attempts) != 2 {
			t.Fatalf("%s with %d charged attempts of %d rows; want succeeded, 1, 2", got.State, got.AttemptCount, len(attempts))
		}
		if first := attempts[0]; first.Charged || first.Outcome != "unknown" || first.Class != "interrupted" {
			t.Errorf("the interrupted attempt is %+v; want outcome unknown, class interrupted, not charged", first)
		}
		t.Logf("%s: ended %s after SIGTERM; sent again by the next process, which was done after %s", b.name, drained.Round(10*time.Millisecond), time.Since(start).Round(10*time.Millisecond))
	})
}

// acceptSlow accepts one callback and waits until it is being attempted.
func acceptSlow(t *testing.T, p *process, r *receiver, ref string) callback {
	t.Helper()
	cb, err := p.accept(t.Context(), submission{"url": r.url, "ref": ref, "payload": payload(ref), "policy": submission{"tiers": []string{"1s"}, "timeout": "30s"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the attempt has begun", func() error {
		if r.count() == 0 {
			return fmt.Errorf("%s has not arrived", cb.ID)
		}
		return nil
	})
	return cb
}

// With --hold callbacks are accepted and none is sent.
func TestHoldAcceptsAndSendsNothing(t *testing.T) {
	blackBox(t)
	b := servers{}.backend(t, embedded)
	r := listen(t, always(200, ""))
	p := serve(t, launch{on: b, args: []string{"--hold"}})
	cb, err := p.accept(t.Context(), submission{"url": r.url, "ref": "held", "payload": payload("held")})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(2 * time.Second)
	for time.Now().Before(deadline) {
		if r.count() > 0 {
			t.Fatal("something was sent by a process that holds")
		}
		pause()
	}
	p.terminate()
	if code := p.exitCode(15 * time.Second); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	p = serve(t, launch{on: b})
	await(t, p.client, 30*time.Second)
	if len(r.of(cb.ID)) != 1 {
		t.Errorf("it arrived %d times after the hold, want once", len(r.of(cb.ID)))
	}
}

// The embedded index belongs to one process.
func TestSecondServeOnTheSameDataDirIsRefused(t *testing.T) {
	blackBox(t)
	for _, c := range []combination{embedded, postgresOnly} {
		t.Run(c.String(), func(t *testing.T) {
			b := startServers(t, c).backend(t, c)
			first := serve(t, launch{on: b})
			ports := freePorts(t, 2)
			args := append([]string{"serve", "--listen", "127.0.0.1:" + ports[0], "--ops-listen", "127.0.0.1:" + ports[1]}, b.args()...)
			second := command(t, 30*time.Second, keys, args...)
			lines := strings.Split(strings.TrimSpace(second.stderr), "\n")
			if second.code == 0 || len(lines) != 1 {
				t.Errorf("the second serve ended with code %d and said:\n%s", second.code, second.stderr)
			}
			if status, _, err := first.readyz(); err != nil || status != http.StatusOK {
				t.Errorf("the first one is not ready any more: %d %v", status, err)
			}
			t.Logf("%s: exit %d: %s", b.name, second.code, lines[0])
		})
	}
}
