// Package judge decides whether what a run of faults left behind keeps the guarantees. It is given evidence
// from four sides that do not know of each other: what clients were answered 2xx for, what receivers wrote
// down, what SQL holds, and what the index holds. It answers with a verdict that names each invariant that
// broke and the ids that broke it.
//
// The invariants are numbered as docs/guide/guarantees.md lists them:
//
//	I1  no loss: every accepted callback is in SQL and terminal, as expected; one that succeeded arrived
//	I2  no phantom: whatever arrived is in SQL, and its bytes are the accepted ones; no order was taken twice
//	I3  bounded duplicates: sends that no charged attempt accounts for, each callback's and in all
//	I4  never early, by what SQL wrote and by the receiver's clock
//	I5  no overlap of two sends of one callback, nor of two callbacks with one lock key
//	I6  every send has an attempt in SQL, and every attempt with an answer was sent
//	I7  nothing is sent after the callback became terminal
//	I8  conservation: the index holds the open callbacks, each once, and nothing else
//	I9  liveness: after the last fault the backlog drained in bounded time
//
// It uses the standard library alone and knows nothing of the program's packages, so that it cannot share
// their mistakes. ReadRows and ReadAttempts read the evidence of SQL; the other sides are gathered by the
// caller. It keeps no state.
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
	ID, Ref   string // empty: it is about the whole
	Detail    string
}

// A Verdict is what the judge found.
type Verdict struct {
	Accepted int
	// Lost is how many accepted callbacks broke I1.
	Lost int
	// Sends and Duplicates count arrivals; a duplicate is a send that no charged attempt accounts for.
	Sends, Duplicates int
	// WorstDuplicates is the most that one callback had.
	WorstDuplicates int
	// Overlaps and LockOverlaps are how many were seen, allowed or not.
	Overlaps, LockOverlaps int
	// Uncertain are attempts with outcome unknown, Stale those that lost their claim.
	Uncertain, Stale int
	// Lateness is due to start of the attempts that SQL recorded.
	Lateness   Quantiles
	Violations []Violation
}

// Quantiles of durations, by nearest rank.
type Quantiles struct{ P50, P99, Most time.Duration }

func (q Quantiles) String() string {
	round := func(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
	return fmt.Sprintf("p50 %s, p99 %s, most %s", round(q.P50), round(q.P99), round(q.Most))
}

// Quantile returns the q-th part of the durations, by nearest rank; zero of none.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(ds))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// QuantilesOf are zero of nothing.
func QuantilesOf(ds []time.Duration) Quantiles {
	return Quantiles{P50: Quantile(ds, 0.5), P99: Quantile(ds, 0.99), Most: Quantile(ds, 1)}
}

// OK says whether nothing was broken.
func (v *Verdict) OK() bool { return len(v.Violations) == 0 }

// namedEach is how many violations of one invariant are printed; a broken run has thousands.
const namedEach = 10

// String is one line of figures, then each invariant that broke with the ids that broke it.
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
