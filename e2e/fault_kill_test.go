package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// killFaults are kill -9 between any two steps of the life of a callback: at the named failpoint of a test build, at the
// pass that lets some work come to its end first, so that the crash finds callbacks in every state.
func killFaults() []fault {
	at := func(id, title, failpoint string) fault {
		return fault{id: id, title: title, light: true, short: bothEnds, full: allFour, run: func(l *lab) { killedAt(l, failpoint) }}
	}
	return []fault{
		at("F1", "killed before an accept commits", "before_accept_commit:4"),
		at("F2", "killed between commit and index", "after_accept_commit:4"),
		at("F3", "killed between index and answer", "after_enqueue:4"),
		at("F4", "killed after a claim", "after_claim:3"),
		at("F4", "killed after a lock", "after_lock:3"),
		at("F4", "killed after a stamp", "after_stamp:3"),
		at("F4", "killed before the send", "before_send:6"),
		{id: "F5", title: "killed while the receiver works", light: true, short: bothEnds, full: allFour, run: killedInFlight},
		at("F6", "killed after the answer", "after_send:6"),
		at("F6", "killed before a result commits", "before_result_commit:3"),
		at("F7", "killed between result and index", "after_result_commit:3"),
		at("F8", "killed after a settlement", "after_settle:3"),
		{id: "F9", title: "killed in the sweep", light: true, short: bothEnds, full: allFour, run: killedInSweep},
		{id: "F9", title: "killed in a rebuild", light: true, short: bothEnds, full: allFour, run: killedInRebuild},
	}
}

// killLoad is how many callbacks each of these labs accepts.
const killLoad = 60

// crashLike is the load of the kill labs: every third fails at its first arrival, every fourth has a lock.
func (l *lab) crashLike(delay string) func(int) submission {
	return func(i int) submission {
		kind := "plain"
		if i%3 == 0 {
			kind = "retry"
		}
		s := l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
		s["delay"] = delay
		if i%4 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%8)
		}
		return s
	}
}

// killedAt starts a process that kills itself, then another that goes on.
func killedAt(l *lab, failpoint string) {
	l.w.behave(func(h *hit) reply {
		answer := usual(h)
		answer.after = 20 * time.Millisecond
		return answer
	})
	p := l.serveUntil(failpoint)
	left := l.acceptAll(numbers(killLoad), l.crashLike("0s"))
	awaitDeath(l.T, p, failpoint, 2*time.Minute)
	t := l.toll()
	t.take(time.Now(), 0)
	l.goOn(left, t)
}

// goOn starts another process, hands over what was not answered, and comes to the verdict.
func (l *lab) goOn(left []int, t *toll) {
	l.Helper()
	l.struck()
	l.serve()
	// What was not answered is asked for again with the same key: it must not become a second callback.
	for range 3 {
		left = l.acceptAll(left, l.crashLike("0s"))
	}
	if len(left) > 0 {
		l.Errorf("%d of %d callbacks were not accepted after the restart", len(left), killLoad)
	}
	l.settle(3 * time.Minute)
	t.account()
	l.verdict(t.bounds(2 * time.Minute))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := readRows(ctx, l.database())
	if err != nil {
		l.Fatal(err)
	}
	if len(rows) != killLoad {
		l.Errorf("SQL has %d callbacks, want %d: an idempotency key was forgotten", len(rows), killLoad)
	}
}

// killedInFlight kills the process while receivers work on its requests.
func killedInFlight(l *lab) {
	l.w.behave(func(h *hit) reply {
		if h.nth == 1 {
			return reply{status: 200, after: time.Second} // it is dead by then
		}
		return usual(h)
	})
	p := l.serve()
	left := l.acceptAll(numbers(killLoad), l.crashLike("0s"))
	eventually(l, time.Minute, "ten requests are being answered", func() error {
		if n := l.w.now(); n < 10 {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
	p.kill()
	t := l.toll()
	t.take(time.Now(), 0)
	l.goOn(left, t)
}

// killedInSweep kills a process whose sweep has found what another killed process had claimed.
func killedInSweep(l *lab) {
	p := l.serveUntil("after_stamp:3")
	left := l.acceptAll(numbers(killLoad), l.crashLike("0s"))
	awaitDeath(l.T, p, "after_stamp", time.Minute)
	t := l.toll()
	t.take(time.Now(), 0)
	p = l.serveUntil("during_sweep:1")
	left = l.acceptAll(left, l.crashLike("0s"))
	awaitDeath(l.T, p, "during_sweep", 2*time.Minute)
	t.take(time.Now(), 0)
	l.goOn(left, t)
}

// killedInRebuild kills a process that rebuilds an index that was lost.
func killedInRebuild(l *lab) {
	p := l.serve()
	left := l.acceptAll(numbers(killLoad), l.crashLike("4s"))
	p.kill()
	t := l.toll()
	t.take(time.Now(), 0)
	if l.on.redis != "" {
		if err := l.on.eachRedis(l.Context(), func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }); err != nil {
			l.Fatal(err)
		}
	}
	p = l.serveUntil("during_rebuild:1")
	left = l.acceptAll(left, l.crashLike("0s"))
	awaitDeath(l.T, p, "during_rebuild", 2*time.Minute)
	t.take(time.Now(), 0)
	l.goOn(left, t)
}

// awaitDeath waits until the process has killed itself.
func awaitDeath(t *testing.T, p *process, failpoint string, limit time.Duration) {
	t.Helper()
	name, _, _ := strings.Cut(failpoint, ":")
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("the failpoint %s was not passed in %s", name, limit)
	}
	if code := p.cmd.ProcessState.ExitCode(); code != -1 {
		t.Fatalf("at %s it ended with code %d and not by a signal\n%s", name, code, p.logTail(3000))
	}
}
