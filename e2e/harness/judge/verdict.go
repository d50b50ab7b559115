// Package judge decides whether a run with faults kept the guarantees. Its evidence comes from four
// independent sides: the 2xx responses to clients, the requests at receivers, SQL, and the index. Its verdict
// names each broken invariant and the ids of the callbacks that broke it.
//
// The invariants are numbered as docs/guide/guarantees.md lists them:
//
//	I1  no loss: every accepted callback is in SQL and terminal, as expected; one that succeeded arrived
//	I2  no phantom: all arrivals are in SQL, with the accepted bytes; no order was accepted twice
//	I3  bounded duplicates: sends that no charged attempt accounts for, for each callback and in all
//	I4  never early, by the times in SQL and by the receiver's clock
//	I5  no overlap of two sends of one callback, nor of two callbacks with one lock key
//	I6  every send has an attempt in SQL, and every attempt with a response was sent
//	I7  no send after the callback became terminal
//	I8  conservation: the index has each open callback once, and nothing else
//	I9  liveness: after the last fault the backlog drained in bounded time
//
// The package uses only the standard library, so that it cannot repeat a mistake of the program's packages.
// ReadRows and ReadAttempts read the evidence in SQL, and the caller gathers the rest. It has no state.
package judge

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Violation is one callback, or one fact, that broke an invariant.
type Violation struct {
	Invariant string // I1 to I9
	ID, Ref   string // empty: not about one callback
	Detail    string
}

// Verdict is the result of Judge.
type Verdict struct {
	Accepted int
	// Lost is the number of accepted callbacks that broke I1.
	Lost int
	// Sends and Duplicates count arrivals. A duplicate is a send that no charged attempt accounts for.
	Sends, Duplicates int
	// WorstDuplicates is the highest number of duplicates of one callback.
	WorstDuplicates int
	// Overlaps and LockOverlaps count all overlaps, allowed or not.
	Overlaps, LockOverlaps int
	// Uncertain counts attempts with outcome unknown. Stale counts those that lost their claim.
	Uncertain, Stale int
	// Lateness is the time from due to start of the attempts in SQL.
	Lateness   Quantiles
	Violations []Violation
}

// Quantiles of durations, by nearest rank.
type Quantiles struct{ P50, P99, Most time.Duration }

func (q Quantiles) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, most %s", round(q.P50), round(q.P99), round(q.Most))
}

// Quantile returns the q-quantile of the durations, by nearest rank; zero without durations.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// QuantilesOf returns zeros without durations.
func QuantilesOf(ds []time.Duration) Quantiles {
	return Quantiles{P50: Quantile(ds, 0.5), P99: Quantile(ds, 0.99), Most: Quantile(ds, 1)}
}

// OK reports whether no invariant is broken.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// namedEach is how many violations of one invariant are printed. A broken run has thousands.
const namedEach = 10

// String returns one line of figures, and then each broken invariant with its callbacks.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "accepted %d, lost %d, sends %d, duplicates %d (most of one callback: %d), overlaps %d, "+
		"on one lock %d, unknown %d, stale %d, lateness %s",
		v.Accepted, v.Lost, v.Sends, v.Duplicates, v.WorstDuplicates, v.Overlaps, v.LockOverlaps, v.Uncertain,
		v.Stale, v.Lateness)
	by := map[string][]Violation{}
	for _, x := range v.Violations {
		by[x.Invariant] = append(by[x.Invariant], x)
	}
	for _, invariant := range slices.Sorted(maps.Keys(by)) {
		fmt.Fprintf(&b, "\n%s broken %d times:", invariant, len(by[invariant]))
		for i, x := range by[invariant] {
			if i == namedEach {
				fmt.Fprintf(&b, "\n  and %d more", len(by[invariant])-namedEach)
				break
			}
			fmt.Fprintf(&b, "\n  %s", x.Detail)
			if x.ID != "" {
				fmt.Fprintf(&b, " [%s %s]", x.ID, x.Ref)
			}
		}
	}
	return b.String()
}
