package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/judge"
)

// lockFaults take the holder of a lock key away, and have attempts that are longer than a lease.
func lockFaults() []fault {
	return []fault{
		{id: "F32", title: "holder of a lock killed", light: true, short: bothEnds, full: allFour, run: lockHolderKilled},
		{id: "F33", title: "attempts longer than a lease", full: []combination{full, embedded}, run: longerThanALease},
	}
}

// lockTTL is how long a lock outlives its holder: a lease, with a timeout of 10 seconds.
const lockTTL = 30 * time.Second

// lockHolderKilled kills a process while its receiver works on the attempt that holds a lock, with others waiting for it.
func lockHolderKilled(l *lab) {
	const waiters = 10
	l.w.behave(func(h *hit) reply {
		if h.kind() == "holder" && h.nth == 1 {
			return reply{status: 200, after: 9 * time.Second} // it is dead by then
		}
		return usual(h)
	})
	locked := func(kind string) func(int) submission {
		return func(i int) submission {
			s := l.callback(kind, fmt.Sprintf("%s-%d", kind, i))
			s["policy"] = submission{"tiers": []string{"500ms", "1s"}, "timeout": "10s"}
			s["lock_key"], s["lane"] = "order-1", fmt.Sprint("lane-", i)
			return s
		}
	}
	p := l.serve()
	left := l.acceptAll(numbers(1), locked("holder"))
	eventually(l, 30*time.Second, "the holder is being attempted", func() error {
		if l.w.now() == 0 {
			return fmt.Errorf("nothing has arrived")
		}
		return nil
	})
	if l.on.redis != "" {
		l.serve()
	}
	left = append(left, l.acceptAll(numbers(waiters), locked("waiter"))...)
	left = append(left, l.acceptAll(numbers(20), l.crashLike("0s"))...)
	at := time.Now()
	p.kill()
	l.struck()
	t := l.toll()
	if l.on.redis == "" {
		t.take(at, 0)
		l.serve()
	} else {
		t.take(at, 3*time.Second) // what the other has in flight is answered in less
	}
	if len(left) > 0 {
		l.Errorf("%d callbacks were not accepted", len(left))
	}
	l.settle(2 * time.Minute)
	t.account()
	l.verdict(t.bounds(90 * time.Second))
	first, last := l.firstAndLast("waiter", at)
	// Whoever is due again then, by the holder's own lease or by a waiter's timer, goes first; each wakes the next.
	if limit := lockTTL + 15*time.Second; first == 0 || first > limit || last > limit {
		l.Errorf("the waiters were sent %s to %s after the holder's death, want %s at most", first, last, limit)
	}
	l.remark("%d waiters were sent %s to %s after the death of the holder", waiters, first.Round(time.Millisecond), last.Round(time.Millisecond))
}

// firstAndLast are when callbacks of a kind arrived, counted from a moment; what came before it does not count.
func (l *lab) firstAndLast(kind string, from time.Time) (first, last time.Duration) {
	l.Helper()
	e, err := l.evidence()
	if err != nil {
		l.Fatal(err)
	}
	of := map[string]bool{}
	for i := range e.Rows {
		of[e.Rows[i].ID] = strings.HasPrefix(e.Rows[i].Ref, kind)
	}
	var when []time.Duration
	for i := range e.Arrivals {
		if a := &e.Arrivals[i]; of[a.ID] && a.At.After(from) {
			when = append(when, a.At.Sub(from))
		}
	}
	if len(when) == 0 {
		return 0, 0
	}
	return slices.Min(when), slices.Max(when)
}

// longerThanALease has receivers that take longer than a claim's lease, with a timeout that allows it: lease and lock are
// extended before the dial, so that nobody else begins meanwhile.
func longerThanALease(l *lab) {
	const took = 45 * time.Second
	l.w.behave(func(h *hit) reply {
		if h.kind() == "long" {
			return reply{status: 200, after: took}
		}
		return usual(h)
	})
	l.serve()
	if l.on.redis != "" {
		l.serve()
	}
	// Ten alone, and five pairs with one lock each: the second of a pair waits for the first.
	if left := l.acceptAll(numbers(20), func(i int) submission {
		s := l.slowly(i)
		s["policy"] = submission{"tiers": []string{"1s"}, "timeout": "60s"}
		if i >= 10 {
			s["lock_key"] = fmt.Sprint("pair-", i%5)
		}
		return s
	}); len(left) > 0 {
		l.Fatalf("%d callbacks were not accepted", len(left))
	}
	l.settle(3 * time.Minute)
	reaped := l.sum("dispatcher_leases_reaped_total")
	l.verdict(judge.Bounds{})
	if reaped > 0 {
		l.Errorf("%v leases ran out", reaped)
	}
	l.remark("receivers took %s, the lease is 30s: no lease ran out, nothing overlapped", took)
}
