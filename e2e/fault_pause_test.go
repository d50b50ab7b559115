package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// pauseFaults end, stop and confuse processes in other ways than a kill at a known line.
func pauseFaults() []fault {
	return slices.Concat(randomFaults(), []fault{
		{id: "F12", title: "stopped for longer than its lease", full: []combination{full}, run: func(l *lab) { stoppedPastLease(l, false) }},
		{id: "F12", title: "stopped inside a transaction", short: []combination{full}, full: []combination{full}, run: func(l *lab) { stoppedPastLease(l, true) }},
		{id: "F13", title: "drained while receivers work", light: true, short: bothEnds, full: allFour, run: drained},
		{id: "F14", title: "killed before its drain has ended", light: true, short: bothEnds, full: allFour, run: killedInDrain},
		{id: "F15", title: "two processes configured alike", short: []combination{full}, full: []combination{sqliteRedis, full}, run: configuredAlike},
	}, poisonFaults(), lockFaults(), raceFaults(), bulkFaults(), retentionFaults())
}

// stoppedPastLease stops one of two dispatchers for longer than its leases and its claims, inside a transaction or wherever it
// is, and lets it go on: what it had claimed is the other's by then, and its results come too late.
func stoppedPastLease(l *lab, inTransaction bool) {
	// The claim in SQL lives for the timeout of two seconds and 15, the lease 30.
	span := long(l, 60*time.Second, 31*time.Second)
	l.w.behave(func(h *hit) reply {
		answer := usual(h)
		if h.nth == 1 {
			answer.after = 700 * time.Millisecond // many are in flight whenever it is stopped
		}
		return answer
	})
	l.serve()
	zombie := l.serve()
	ld := l.load(40, l.mixed)
	eventually(l, time.Minute, "the process that will be stopped has attempts in flight", func() error {
		return atLeast(zombie, "dispatcher_attempts_in_flight", 5)
	})
	at := l.stop(zombie, inTransaction)
	l.Cleanup(func() { zombie.cmd.Process.Signal(syscall.SIGCONT) }) // it may be dead by then
	l.struck()
	t := l.toll()
	t.take(at, 5*time.Second)
	timer := time.NewTimer(time.Until(at.Add(span)))
	defer timer.Stop()
	<-timer.C
	eventually(l, 30*time.Second, "the other process has all that it had claimed", t.over)
	stopped := time.Since(at)
	if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		l.Fatal(err)
	}
	l.struck()
	eventually(l, time.Minute, "a late result counts as stale", func() error {
		return atLeast(zombie, "dispatcher_results_stale_total", 1)
	})
	stale := l.sum("dispatcher_results_stale_total")
	report := ld.finish()
	l.settle(2 * time.Minute)
	l.awaitEmptyIndex(indexPatience)
	// What it was about to write when it was stopped, it may write when it goes on.
	bounds := t.bounds(time.Minute)
	bounds.AfterTerminal = len(t.claims)
	v := l.verdict(bounds)
	if v.Stale == 0 {
		l.Errorf("no attempt is marked stale")
	}
	l.remark("stopped for %s; %s; %d duplicates, %v results stale; accepts p99 %s most %s; lateness p99 %s most %s", stopped.Round(time.Second), t, v.Duplicates, stale,
		report.took.P99.Round(time.Millisecond), report.took.Most.Round(time.Millisecond), v.Lateness.P99, v.Lateness.Most)
}

// stop stops a process as it is, or at a moment when PostgreSQL waits for it inside of a transaction.
func (l *lab) stop(p *process, inTransaction bool) (at time.Time) {
	l.Helper()
	signal := func(s syscall.Signal) {
		if err := p.cmd.Process.Signal(s); err != nil {
			l.Fatal(err)
		}
	}
	stopped := func() error {
		if err := atLeast(p, "dispatcher_attempts_in_flight", 5); err != nil {
			return err
		}
		at = time.Now()
		signal(syscall.SIGSTOP)
		if !inTransaction {
			return nil
		}
		var held int
		// Twice: a transaction of the other process ends meanwhile.
		for range 2 {
			if err := l.database().QueryRowContext(l.Context(), `SELECT count(*) FROM pg_stat_activity
				WHERE datname = current_database() AND state = 'idle in transaction' AND state_change < clock_timestamp() - INTERVAL '50 milliseconds'`).Scan(&held); err != nil {
				return err
			}
			if held > 0 {
				return nil
			}
			time.Sleep(60 * time.Millisecond) // what state_change is compared with
		}
		signal(syscall.SIGCONT)
		return fmt.Errorf("it was in none")
	}
	eventually(l, time.Minute, "it is stopped inside a transaction", stopped)
	return at
}

// slowly is a callback whose receiver takes its time, in one of twenty lanes, so that many are in flight at once.
func (l *lab) slowly(i int) submission {
	s := l.callback("long", fmt.Sprint("long-", i))
	s["policy"] = submission{"tiers": []string{"1s", "1s"}, "timeout": "15s"}
	s["lane"] = fmt.Sprint("lane-", i%20)
	return s
}

// slowLoad accepts callbacks whose receivers take so long, and returns when many are in flight.
func (l *lab) slowLoad(took time.Duration) {
	l.Helper()
	l.w.behave(func(h *hit) reply {
		if h.kind() == "long" {
			return reply{status: 200, after: took}
		}
		return usual(h)
	})
	if left := l.acceptAll(numbers(120), l.slowly); len(left) > 0 {
		l.Fatalf("%d callbacks were not accepted", len(left))
	}
	eventually(l, time.Minute, "receivers work on many at once", func() error {
		if n := l.w.now(); n < 20 {
			return fmt.Errorf("on %d", n)
		}
		return nil
	})
}

// drained ends a process in order while receivers take seconds for what it has in flight.
func drained(l *lab) {
	took := long(l, 10*time.Second, 3*time.Second)
	p := l.serve("--drain-timeout", "20s")
	if l.on.redis != "" {
		l.serve()
	}
	l.slowLoad(took)
	claims := watchClaims(p)
	l.struck()
	p.terminate()
	began := time.Now()
	if code := p.exitCode(30 * time.Second); code != 0 {
		l.Errorf("exit code %d, want 0\n%s", code, p.logTail(2000))
	}
	ended := time.Since(began)
	if after := claims(); after > 0 {
		l.Errorf("it claimed %v callbacks more while it drained", after)
	}
	if l.on.redis == "" {
		l.serve()
	}
	l.settle(time.Minute)
	reaped := l.sum("dispatcher_leases_reaped_total")
	v := l.verdict(judge.Bounds{Heal: time.Minute})
	if reaped > 0 || v.Uncertain > 0 {
		l.Errorf("%v leases ran out and %d attempts have an unknown outcome after an orderly end; want none", reaped, v.Uncertain)
	}
	l.remark("receivers took %s; exit 0 after %s; no lease ran out, no attempt unknown", took, ended.Round(100*time.Millisecond))
}

// watchClaims follows a process from before its SIGTERM to its end; what it returns says by how many its leases grew from a
// second after its readiness ended.
func watchClaims(p *process) func() float64 {
	var group sync.WaitGroup
	var grown float64
	group.Go(func() {
		var draining time.Time
		first := -1.0
		for !p.ended() {
			if status, _, err := p.readyz(); err == nil && status == http.StatusServiceUnavailable && draining.IsZero() {
				draining = time.Now()
			}
			if leases, err := p.metric("dispatcher_leases_total"); err == nil && !draining.IsZero() && time.Since(draining) > time.Second {
				if first < 0 {
					first = leases
				}
				grown = leases - first
			}
			pause()
		}
	})
	return func() float64 {
		group.Wait()
		return grown
	}
}

// killedInDrain kills a process that is draining: what is still in flight is as after any kill.
func killedInDrain(l *lab) {
	took := long(l, 10*time.Second, 6*time.Second)
	p := l.serve()
	span := time.Duration(0)
	if l.on.redis != "" {
		l.serve()
		span = took + 3*time.Second
	}
	l.slowLoad(took)
	p.terminate()
	eventually(l, 10*time.Second, "it drains", func() error {
		if status, body, err := p.readyz(); err != nil || status != http.StatusServiceUnavailable {
			return errors.Join(err, fmt.Errorf("/readyz answers %d %s", status, body))
		}
		return nil
	})
	at := time.Now()
	p.kill()
	l.struck()
	t := l.toll()
	t.take(at, span)
	if len(t.claims) == 0 {
		l.Errorf("nothing was in flight: this shows nothing")
	}
	if l.on.redis == "" {
		l.serve()
	}
	l.settle(2 * time.Minute)
	t.account()
	v := l.verdict(t.bounds(90 * time.Second))
	l.remark("%s; %d duplicates", t, v.Duplicates)
}

// configuredAlike runs two processes that nothing but their addresses tells apart, with attempts that are longer than a
// claim's round trip, and locks.
func configuredAlike(l *lab) {
	l.serve()
	l.serve()
	ld := l.load(60, func(i int) submission {
		s := l.callback("slow", fmt.Sprint("slow-", i))
		s["lane"] = fmt.Sprint("lane-", i%20)
		if i%2 == 0 {
			s["lock_key"] = fmt.Sprint("lock-", i%40)
		}
		return s
	})
	ctx, cancel := context.WithTimeout(context.Background(), long(l, 30*time.Second, 8*time.Second))
	defer cancel()
	<-ctx.Done()
	ld.finish()
	l.settle(time.Minute)
	shares := make([]float64, 0, 2)
	for _, p := range l.alive() {
		n, err := p.metric("dispatcher_attempts_total", `class="ok"`)
		if err != nil || n == 0 {
			l.Errorf("one of them sent nothing: %v %v", n, err)
		}
		shares = append(shares, n)
	}
	l.verdict(judge.Bounds{})
	l.remark("they sent %v of the callbacks, and no two at once of one callback or one lock", shares)
}
