package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// lockFaults take the holder of a lock key away, and have attempts that are longer than a lease.
func lockFaults() []fault {
	return []fault{
		{id: "F32", title: "holder of a lock killed", quick: true, on: harness.BothEnds, run: lockHolderKilled},
		{id: "F33", title: "attempts longer than a lease", quick: true, on: harness.BothEnds,
			run: longerThanALease},
	}
}

// heldFor is the timeout of what has the lock. A lock outlives its holder until the timeout and the margin
// are over.
const (
	heldFor = 5 * time.Second
	lockTTL = heldFor + harness.QuickMargin
)

// lockHolderKilled kills a process while its receiver works on the attempt that holds a lock, with others
// waiting for it.
func lockHolderKilled(tr *trial) {
	const waiters = 10
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "holder" && h.Nth == 1 {
			return harness.Reply{Status: 200, After: heldFor - time.Second} // it is dead by then
		}
		return harness.Usual(h)
	})
	locked := func(kind string) func(int) harness.Submission {
		return func(i int) harness.Submission {
			s := tr.Callback(kind, fmt.Sprintf("%s-%d", kind, i))
			s["policy"] = harness.Submission{"tiers": []string{"500ms", "1s"}, "timeout": heldFor.String()}
			s["lock_key"], s["lane"] = "order-1", fmt.Sprint("lane-", i)
			return s
		}
	}
	p := tr.Serve()
	left := tr.AcceptAll(harness.Numbers(1), locked("holder"))
	harness.Eventually(tr, 30*time.Second, "the holder is being attempted", func() error {
		if tr.Recorder.InFlight() == 0 {
			return fmt.Errorf("nothing has arrived")
		}
		return nil
	})
	if tr.Backend.Redis != "" {
		tr.Serve()
	}
	left = append(left, tr.AcceptAll(harness.Numbers(waiters), locked("waiter"))...)
	left = append(left, tr.AcceptAll(harness.Numbers(20), tr.crashLike("0s"))...)
	at := time.Now()
	p.Kill()
	tr.MarkFault()
	t := tr.UncommittedClaims()
	if tr.Backend.Redis == "" {
		t.Take(at, 0)
		tr.Serve()
	} else {
		t.Take(at, 3*time.Second) // what the other has in flight is answered in less
	}
	if len(left) > 0 {
		tr.Errorf("%d callbacks were not accepted", len(left))
	}
	tr.Settle(2 * time.Minute)
	t.Account()
	tr.Verdict(t.Bounds(90 * time.Second))
	first, last := tr.firstAndLast("waiter", at)
	// The first is due again by the holder's own lease or by a waiter's timer. Each wakes the next.
	if limit := lockTTL + 15*time.Second; first == 0 || first > limit || last > limit+30*time.Second {
		tr.Errorf("the waiters were sent %s to %s after the holder's death, want %s at most", first, last, limit)
	}
	tr.Remark("%d waiters were sent %s to %s after the death of the holder", waiters,
		first.Round(time.Millisecond), last.Round(time.Millisecond))
}

// firstAndLast are when callbacks of a kind arrived, counted from a moment; what came before it does not
// count.
func (tr *trial) firstAndLast(kind string, from time.Time) (first, last time.Duration) {
	tr.Helper()
	e, err := tr.Evidence()
	if err != nil {
		tr.Fatal(err)
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

// longerThanALease has receivers that take longer than a claim's lease, with a timeout that allows it: lease
// and lock are extended before the dial, so that no other attempt begins meanwhile.
func longerThanALease(tr *trial) {
	const took = harness.QuickLease + 4*time.Second
	tr.Recorder.SetScript(func(h *harness.Request) harness.Reply {
		if h.Kind() == "long" {
			return harness.Reply{Status: 200, After: took}
		}
		return harness.Usual(h)
	})
	tr.Serve()
	if tr.Backend.Redis != "" {
		tr.Serve()
	}
	// Ten alone, and five pairs with one lock each: the second of a pair waits for the first.
	if left := tr.AcceptAll(harness.Numbers(20), func(i int) harness.Submission {
		s := tr.slowly(i)
		s["policy"] = harness.Submission{"tiers": []string{"1s"}, "timeout": (2 * took).String()}
		if i >= 10 {
			s["lock_key"] = fmt.Sprint("pair-", i%5)
		}
		return s
	}); len(left) > 0 {
		tr.Fatalf("%d callbacks were not accepted", len(left))
	}
	tr.Settle(3 * time.Minute)
	reaped := tr.sum("dispatcher_leases_reaped_total")
	tr.Verdict(judge.Bounds{})
	if reaped > 0 {
		tr.Errorf("%v leases ran out", reaped)
	}
	tr.Remark("receivers took %s, the lease is %s: no lease ran out, nothing overlapped", took,
		harness.QuickLease)
}
