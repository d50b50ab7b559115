package faults

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// pauseFaults end, stop and confuse processes in other ways than a kill at a known line.
func pauseFaults() []fault {
	return []fault{
		// With the usual times: the trial that shows them.
		{id: "F12", title: "stopped in a transaction for longer than its lease", on: onlyPostgresRedis,
			run: stoppedPastLease},
		{id: "F14", title: "killed before its drain has ended", quick: true, on: harness.BothEnds,
			run: killedInDrain},
	}
}

// stoppedPastLease stops one of two dispatchers inside a transaction, for longer than its leases and its
// claims, and lets it go on: what it had claimed is the other's by then, and its results come too late.
func stoppedPastLease(tr *trial) {
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		answer := harness.Usual(h)
		if h.Nth == 1 {
			answer.After = 700 * time.Millisecond // many are in flight whenever it is stopped
		}
		return answer
	})
	tr.Serve()
	zombie := tr.Serve()
	ld := tr.Load(40, tr.Mixed)
	harness.Eventually(tr, time.Minute, "the process that will be stopped has attempts in flight", func() error {
		return atLeast(zombie, "dispatcher_attempts_in_flight", 5)
	})
	at := tr.stop(zombie)
	tr.Cleanup(func() { zombie.Cmd.Process.Signal(syscall.SIGCONT) }) // it may be dead by then
	tr.MarkFault()
	t := tr.UncommittedClaims()
	t.Take(at, 4*time.Second)
	timer := time.NewTimer(time.Until(at.Add(31 * time.Second)))
	defer timer.Stop()
	<-timer.C
	harness.Eventually(tr, 30*time.Second, "the other process has all that it had claimed", t.Over)
	stopped := time.Since(at)
	if err := zombie.Cmd.Process.Signal(syscall.SIGCONT); err != nil {
		tr.Fatal(err)
	}
	tr.MarkFault()
	harness.Eventually(tr, time.Minute, "a late result counts as stale", func() error {
		return atLeast(zombie, "dispatcher_results_stale_total", 1)
	})
	stale := tr.sum("dispatcher_results_stale_total")
	report := ld.Finish()
	tr.Settle(2 * time.Minute)
	tr.awaitEmptyIndex(harness.IndexSettles)
	// What it was about to write when it was stopped, it may write when it goes on.
	bounds := t.Bounds(time.Minute)
	bounds.AfterTerminal = t.Len()
	v := tr.Verdict(bounds)
	if v.Stale == 0 {
		tr.Errorf("no attempt is marked stale")
	}
	tr.Remark("stopped for %s; %s; %d duplicates, %v results stale; accepts p99 %s most %s; lateness p99 %s "+
		"most %s", stopped.Round(time.Second), t, v.Duplicates, stale,
		report.Took.P99.Round(time.Millisecond), report.Took.Most.Round(time.Millisecond), v.Lateness.P99,
		v.Lateness.Most)
}

// stop stops a process at a moment when PostgreSQL waits for it inside of a transaction.
func (tr *trial) stop(p *harness.Process) (at time.Time) {
	tr.Helper()
	signal := func(s syscall.Signal) {
		if err := p.Cmd.Process.Signal(s); err != nil {
			tr.Fatal(err)
		}
	}
	harness.Eventually(tr, time.Minute, "it is stopped inside a transaction", func() error {
		if err := atLeast(p, "dispatcher_attempts_in_flight", 5); err != nil {
			return err
		}
		at = time.Now()
		signal(syscall.SIGSTOP)
		// Twice: a transaction of the other process ends meanwhile.
		for range 2 {
			if tr.sqlCount(`SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'idle in transaction'
				AND state_change < clock_timestamp() - INTERVAL '50 milliseconds'`) > 0 {
				return nil
			}
			time.Sleep(60 * time.Millisecond) // what state_change is compared with
		}
		signal(syscall.SIGCONT)
		return fmt.Errorf("it was in none")
	})
	return at
}

// slowly is a callback whose receiver takes its time, in one of twenty lanes, so that many are in flight at
// once.
func (tr *trial) slowly(i int) harness.Submission {
	s := tr.Callback("long", fmt.Sprint("long-", i))
	s["policy"] = harness.Submission{"tiers": []string{"1s", "1s"}, "timeout": "8s"}
	s["lane"] = fmt.Sprint("lane-", i%20)
	return s
}

// slowLoad accepts callbacks whose receivers take so long, and returns when many are in flight.
func (tr *trial) slowLoad(took time.Duration) {
	tr.Helper()
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "long" {
			return harness.Reply{Status: 200, After: took}
		}
		return harness.Usual(h)
	})
	if left := tr.AcceptAll(harness.Numbers(120), tr.slowly); len(left) > 0 {
		tr.Fatalf("%d callbacks were not accepted", len(left))
	}
	harness.Eventually(tr, time.Minute, "receivers work on many at once", func() error {
		if n := tr.Recorder.InFlight(); n < 20 {
			return fmt.Errorf("on %d", n)
		}
		return nil
	})
}

// killedInDrain kills a process that is draining: what is still in flight is as after any kill.
func killedInDrain(tr *trial) {
	const took = 5 * time.Second
	p := tr.Serve()
	span := time.Duration(0)
	if tr.Backend.Redis != "" {
		tr.Serve()
		span = took + 2*time.Second
	}
	tr.slowLoad(took)
	p.Terminate()
	harness.Eventually(tr, 10*time.Second, "it drains", func() error {
		if status, body, err := p.Readyz(); err != nil || status != http.StatusServiceUnavailable {
			return errors.Join(err, fmt.Errorf("/readyz answers %d %s", status, body))
		}
		return nil
	})
	at := time.Now()
	p.Kill()
	tr.MarkFault()
	t := tr.UncommittedClaims()
	t.Take(at, span)
	if t.Len() == 0 {
		tr.Errorf("nothing was in flight: this shows nothing")
	}
	if tr.Backend.Redis == "" {
		tr.Serve()
	}
	tr.Settle(2 * time.Minute)
	t.Account()
	v := tr.Verdict(t.Bounds(90 * time.Second))
	tr.Remark("%s; %d duplicates", t, v.Duplicates)
}
