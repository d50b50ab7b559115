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
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A drain is a trial with one callback on its way when the process is told to end.
type drain struct {
	*harness.Trial
	p       *harness.Process
	id      string
	release func() // has the receiver answer
}

// draining starts a process and one attempt, whose first request is not answered until it is released.
func draining(t *testing.T, b harness.Backend, args ...string) drain {
	t.Helper()
	gate := make(chan struct{})
	d := drain{Trial: trialOn(t, b), release: sync.OnceFunc(func() { close(gate) })}
	d.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
		if a.Nth == 1 {
			<-gate
		}
		return harness.Reply{Status: 200}
	})
	t.Cleanup(d.release) // before the receiver is closed, which waits for its requests
	d.p = d.Serve(args...)
	s := d.Callback("plain", "in-flight")
	s["policy"] = harness.Tiers("60s", "1s")
	d.id = d.AskAndNote(s)
	d.AtLeast(time.Minute, "the attempt has begun", 1, d.Receiver.Count)
	return d
}

// awaitState waits until the callback on its way is in a state.
func (d *drain) awaitState(state client.State) {
	d.Helper()
	d.Eventually(time.Minute, "it is "+string(state), func() error {
		got, err := d.p.Callback(d.Context(), d.id)
		if err == nil && got.State != state {
			err = fmt.Errorf("it is %s", got.State)
		}
		return err
	})
}

// ends waits for the end of the process, starts the next one, and judges: each is sent once.
func (d *drain) ends(code int) {
	d.Helper()
	if got := d.p.ExitCode(time.Minute); got != code {
		d.Errorf("exit code %d, want %d\n%s", got, code, d.p.LogTail(2000))
	}
	d.Serve()
	d.Settle(time.Minute)
	if v := d.Verdict(judge.Bounds{}); v.Sends != v.Accepted {
		d.Errorf("%d sends of %d callbacks", v.Sends, v.Accepted)
	}
}

// The first SIGTERM: not ready at once, what is in flight ends, what is accepted is not sent. The second one
// ends the process at once: no test waits for the delay.
func TestShutdownDelayKeepsTheAPIOpen(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		d := draining(t, b, "--shutdown-delay", "1h")
		d.p.Terminate()
		d.Eventually(time.Minute, "/readyz turns 503", func() error {
			status, body, err := d.p.Readyz()
			if err == nil && status == http.StatusServiceUnavailable {
				return nil
			}
			return fmt.Errorf("%d %s %w", status, body, err)
		})
		late := d.AskAndNote(d.Callback("plain", "late"))
		d.awaitState(client.Attempting)
		d.release()
		d.awaitState(client.Succeeded)
		if n := d.Receiver.Times(late); n != 0 {
			t.Errorf("what was accepted after SIGTERM arrived %d times before the restart", n)
		}
		d.p.Terminate()
		d.ends(1)
	})
}

// SIGTERM, after the delay: the API closes, what is in flight ends, exit 0, nothing is sent twice.
func TestSIGTERMLetsAttemptsInFlightEnd(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		d := draining(t, b, "--shutdown-delay", "100ms", "--drain-timeout", "1h")
		d.p.Terminate()
		d.Eventually(time.Minute, "the API is closed", func() error {
			if _, err := d.p.Callback(t.Context(), d.id); err == nil {
				return errors.New("it answers")
			}
			return nil
		})
		d.release()
		d.ends(0)
	})
}

// What does not end within the drain's time is handed back uncharged, and sent by the next process.
func TestDrainHandsBackUncharged(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		d := draining(t, b, "--drain-timeout", "1s")
		d.p.Exit(time.Minute)
		d.release()
		d.p = d.Serve()
		d.awaitState(client.Succeeded)
		attempts, err := d.p.AttemptsOf(d.id)
		d.Check(err)
		if len(attempts) != 2 || attempts[0].Charged || attempts[0].Outcome != "unknown" ||
			attempts[0].Class != "interrupted" || !attempts[1].Charged {
			t.Errorf("want an attempt of unknown outcome that was interrupted and not charged, and one that was: %+v", attempts)
		}
	})
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
	tr := trialOn(t, b)
	p := tr.Serve("--hold")
	tr.AskAndNote(tr.Callback("plain", "held"))
	time.Sleep(2 * time.Second) // so long nothing may be sent
	p.Exit(time.Minute)
	if n := tr.Receiver.Count(); n > 0 {
		t.Fatalf("%d requests were sent by a process that holds", n)
	}
	tr.Serve()
	tr.Settle(30 * time.Second)
	tr.Verdict(judge.Bounds{})
}
