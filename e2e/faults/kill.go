package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// killFaults are kill -9 between any two steps of the life of a callback: at the named failpoint of a test
// build, at the pass that lets some work come to its end first, so that the crash finds callbacks in every
// state.
func killFaults() []fault {
	at := func(id, title, failpoint string, on []harness.Combination) fault {
		return fault{id: id, title: title, quick: true, on: on, run: func(tr *trial) { killedAt(tr, failpoint) }}
	}
	inSteps := func(title string, run func(*trial)) fault {
		return fault{id: "F9", title: title, quick: true, on: harness.BothEnds, run: run}
	}
	return []fault{
		at("F1", "killed before an accept commits", "before_accept_commit:4", harness.BothEnds),
		at("F2", "killed between commit and index", "after_accept_commit:4", harness.AllFour),
		at("F3", "killed between index and answer", "after_enqueue:4", harness.BothEnds),
		at("F4", "killed after a claim", "after_claim:3", harness.BothEnds),
		at("F4", "killed after a lock", "after_lock:3", harness.BothEnds),
		at("F4", "killed after a stamp", "after_stamp:3", harness.BothEnds),
		at("F4", "killed before the send", "before_send:6", harness.BothEnds),
		{id: "F5", title: "killed while the receiver works", quick: true, on: harness.BothEnds,
			run: killedInFlight},
		at("F6", "killed after the answer", "after_send:6", harness.BothEnds),
		at("F6", "killed before a result commits", "before_result_commit:3", harness.BothEnds),
		at("F7", "killed between result and index", "after_result_commit:3", harness.AllFour),
		at("F8", "killed after a settlement", "after_settle:3", harness.BothEnds),
		inSteps("killed in the sweep", killedInSweep),
		inSteps("killed in a rebuild", killedInRebuild),
	}
}

// killLoad is how many callbacks each of these trials accepts.
const killLoad = 60

// crashLike is the load of the kill trials: every third fails at its first arrival, every fourth has a lock.
func (tr *trial) crashLike(delay string) func(int) harness.Submission {
	return func(i int) harness.Submission {
		kind := "plain"
		if i%3 == 0 {
			kind = "retry"
		}
		s := tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
		s["delay"] = delay
		if i%4 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%8)
		}
		return s
	}
}

// killedAt starts a process that kills itself, then another that goes on.
func killedAt(tr *trial, failpoint string) {
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		answer := harness.Usual(h)
		answer.After = 20 * time.Millisecond
		return answer
	})
	p := tr.ServeUntil(failpoint)
	left := tr.AcceptAll(harness.Numbers(killLoad), tr.crashLike("0s"))
	awaitDeath(tr.T, p, failpoint, 2*time.Minute)
	t := tr.UncommittedClaims()
	t.Take(time.Now(), 0)
	tr.goOn(left, t)
}

// goOn starts another process, hands over what was not answered, and comes to the verdict.
func (tr *trial) goOn(left []int, t *harness.UncommittedClaims) {
	tr.Helper()
	tr.MarkFault()
	tr.Serve()
	// What was not answered is asked for again with the same key: it must not become a second callback.
	for range 3 {
		left = tr.AcceptAll(left, tr.crashLike("0s"))
	}
	if len(left) > 0 {
		tr.Errorf("%d of %d callbacks were not accepted after the restart", len(left), killLoad)
	}
	tr.Settle(3 * time.Minute)
	t.Account()
	tr.Verdict(t.Bounds(2 * time.Minute))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := judge.ReadRows(ctx, tr.Database())
	if err != nil {
		tr.Fatal(err)
	}
	if len(rows) != killLoad {
		tr.Errorf("SQL has %d callbacks, want %d: an idempotency key was forgotten", len(rows), killLoad)
	}
	if tr.Backend.Postgres == "" {
		tr.intact()
	}
}

// killedInFlight kills the process while receivers work on its requests.
func killedInFlight(tr *trial) {
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Nth == 1 {
			return harness.Reply{Status: 200, After: time.Second} // it is dead by then
		}
		return harness.Usual(h)
	})
	p := tr.Serve()
	left := tr.AcceptAll(harness.Numbers(killLoad), tr.crashLike("0s"))
	harness.Eventually(tr, time.Minute, "ten requests are being answered", func() error {
		if n := tr.Recorder.InFlight(); n < 10 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	p.Kill()
	t := tr.UncommittedClaims()
	t.Take(time.Now(), 0)
	tr.goOn(left, t)
}

// killedInSweep kills a process whose sweep has found what another killed process had claimed.
func killedInSweep(tr *trial) {
	p := tr.ServeUntil("after_stamp:3")
	left := tr.AcceptAll(harness.Numbers(killLoad), tr.crashLike("0s"))
	awaitDeath(tr.T, p, "after_stamp", time.Minute)
	t := tr.UncommittedClaims()
	t.Take(time.Now(), 0)
	// By the eighth sweep, after 16 s, the claims of the dead one have run out.
	p = tr.ServeUntil("during_sweep:8")
	left = tr.AcceptAll(left, tr.crashLike("0s"))
	awaitDeath(tr.T, p, "during_sweep", 2*time.Minute)
	t.Take(time.Now(), 0)
	tr.goOn(left, t)
}

// killedInRebuild kills a process that rebuilds an index that was lost.
func killedInRebuild(tr *trial) {
	p := tr.Serve()
	left := tr.AcceptAll(harness.Numbers(killLoad), tr.crashLike("4s"))
	p.Kill()
	t := tr.UncommittedClaims()
	t.Take(time.Now(), 0)
	tr.flush()
	p = tr.ServeUntil("during_rebuild:1")
	left = tr.AcceptAll(left, tr.crashLike("0s"))
	awaitDeath(tr.T, p, "during_rebuild", 2*time.Minute)
	t.Take(time.Now(), 0)
	tr.goOn(left, t)
}

// awaitDeath waits until the process has killed itself.
func awaitDeath(t *testing.T, p *harness.Process, failpoint string, limit time.Duration) {
	t.Helper()
	name, _, _ := strings.Cut(failpoint, ":")
	select {
	case <-p.Done:
	case <-time.After(limit):
		t.Fatalf("the failpoint %s was not passed in %s", name, limit)
	}
	if code := p.Cmd.ProcessState.ExitCode(); code != -1 {
		t.Fatalf("at %s it ended with code %d and not by a signal\n%s", name, code, p.LogTail(3000))
	}
}
