package faults

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// stoppedPastLease stops one of two dispatchers inside a transaction, for longer than its leases and claims,
// and then continues it. The other process has taken over its claims by then, so its results come too late.
func stoppedPastLease(tr *trial) {
	tr.Receiver.Answer(func(a *harness.Arrival) harness.Reply {
		answer := harness.Usual(a)
		if a.Nth == 1 {
			answer.After = 700 * time.Millisecond // many are in flight whenever it is stopped
		}
		return answer
	})
	tr.Serve()
	zombie := tr.Serve()
	ld := tr.Load(40, tr.Mixed)
	zombie.AwaitMetric(time.Minute, "dispatcher_attempts_in_flight", 5)
	at := tr.stop(zombie)
	tr.Cleanup(func() { zombie.Cmd.Process.Signal(syscall.SIGCONT) }) // it may be dead by then
	tr.Take(at, 4*time.Second)
	time.Sleep(time.Until(at.Add(31 * time.Second))) // the fault lasts for a fixed time
	tr.Eventually(30*time.Second, "the other process has taken over all its claims", tr.TakenUp)
	stopped := time.Since(at)
	tr.Check(zombie.Cmd.Process.Signal(syscall.SIGCONT))
	tr.MarkFault()
	zombie.AwaitMetric(time.Minute, "dispatcher_results_stale_total", 1)
	stale := tr.sum("dispatcher_results_stale_total")
	report := ld.Finish()
	tr.Settle(2 * time.Minute)
	tr.awaitEmptyIndex()
	// When the process continues it may still do the write it was about to do.
	v := tr.Verdict(tr.Hit(judge.Bounds{Heal: time.Minute, AfterTerminal: tr.Claims.Len()}))
	if v.Stale == 0 {
		tr.Errorf("no attempt is marked stale")
	}
	tr.Remark("stopped for %s; %s; %d duplicates, %v results stale; accepts %s; lateness %s",
		stopped, &tr.Claims, v.Duplicates, stale, report.Took, v.Lateness)
}

// stop stops a process while PostgreSQL waits for it inside a transaction.
func (tr *trial) stop(p *harness.Process) (at time.Time) {
	tr.Helper()
	tr.Eventually(time.Minute, "the process is stopped inside a transaction", func() error {
		p.AwaitMetric(time.Minute, "dispatcher_attempts_in_flight", 5)
		at = time.Now()
		tr.Check(p.Cmd.Process.Signal(syscall.SIGSTOP))
		// Check twice: a transaction of the other process ends meanwhile.
		for range 2 {
			if tr.sqlCount(`SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'idle in transaction'
				AND state_change < clock_timestamp() - INTERVAL '50 milliseconds'`) > 0 {
				return nil
			}
			time.Sleep(60 * time.Millisecond) // longer than the interval of the query
		}
		tr.Check(p.Cmd.Process.Signal(syscall.SIGCONT))
		return errors.New("it was in no transaction")
	})
	return at
}

// heldFor is the timeout of the callback that has the lock. The lock outlives a dead holder until the timeout
// and the margin are over.
const (
	heldFor = 5 * time.Second
	lockTTL = heldFor + harness.QuickMargin
)

// lockHolderKilled kills a process while its receiver works on the attempt that has a lock. Others wait for
// the lock.
func lockHolderKilled(tr *trial) {
	const waiters = 10
	// The process is dead before this response.
	tr.Receiver.AnswerFirst("holder", harness.Reply{After: heldFor - time.Second})
	locked := func(kind string) func(int) harness.Submission {
		return func(i int) harness.Submission {
			s := tr.Numbered(kind)(i)
			s["policy"] = harness.Tiers(heldFor.String(), "500ms", "1s")
			s["lock_key"], s["lane"] = "order-1", fmt.Sprint("lane-", i)
			return s
		}
	}
	p := tr.Serve()
	tr.AcceptEach(1, locked("holder"))
	tr.AtLeast(30*time.Second, "the holder is being attempted", 1, tr.Receiver.InFlight)
	if tr.Shared() {
		tr.Serve()
	}
	tr.AcceptEach(waiters, locked("waiter"))
	tr.AcceptEach(20, tr.crashLike("0s"))
	at := time.Now()
	tr.KillOne(p, 3*time.Second) // the other process commits its attempts in less
	tr.Conclude(2*time.Minute, 90*time.Second)
	first, last := tr.firstAndLast(at)
	// The first waiter is due again when the holder's lease expires or its own timer ends. Each waiter wakes
	// the next.
	if limit := lockTTL + 15*time.Second; first == 0 || first > limit || last > limit+30*time.Second {
		tr.Errorf("the waiters were sent %s to %s after the holder's death, want %s at most", first, last,
			limit)
	}
	tr.Remark("%d waiters were sent %s to %s after the death of the holder", waiters,
		first, last)
}

// firstAndLast returns when the first and the last waiter arrived, as times since from. It ignores earlier
// arrivals.
func (tr *trial) firstAndLast(from time.Time) (first, last time.Duration) {
	var when []time.Duration
	for _, a := range tr.Receiver.All() {
		if a.Kind() == "waiter" && a.At.After(from) {
			when = append(when, a.At.Sub(from))
		}
	}
	if len(when) == 0 {
		return 0, 0
	}
	return slices.Min(when), slices.Max(when)
}

// longerThanALease has receivers that take longer than a claim's lease, with a timeout that allows it. The
// dispatcher extends lease and lock before the dial, so no other attempt starts meanwhile.
func longerThanALease(tr *trial) {
	const took = harness.QuickLease + 4*time.Second
	tr.Receiver.AnswerKind("long", harness.Reply{After: took})
	tr.ServeAll()
	// Ten callbacks without a lock, and five pairs with one lock key each: the second of a pair waits for the
	// first.
	tr.AcceptEach(20, func(i int) harness.Submission {
		s := tr.longKind(i)
		s["policy"] = harness.Tiers((2 * took).String(), "1s")
		if i >= 10 {
			s["lock_key"] = fmt.Sprint("pair-", i%5)
		}
		return s
	})
	tr.Settle(3 * time.Minute)
	reaped := tr.sum("dispatcher_leases_reaped_total")
	tr.Verdict(judge.Bounds{})
	if reaped > 0 {
		tr.Errorf("%v leases expired", reaped)
	}
	tr.Remark("receivers took %s, the lease is %s: no lease expired, nothing overlapped", took,
		harness.QuickLease)
}
