package store

import (
	"math"
	"sort"
	"time"
)

// A Span is the length of the time that one Activity covers.
type Span time.Duration

// The spans. A project has all three: minutes are kept for 3 hours, quarters for 3 days, hours for 31 days. A
// lane has hours only, kept for 2 days.
const (
	Minute  = Span(time.Minute)
	Quarter = Span(15 * time.Minute)
	Hour    = Span(time.Hour)
)

// Spans lists every span.
var Spans = [...]Span{Minute, Quarter, Hour}

// Milliseconds returns the span's length.
func (s Span) Milliseconds() int64 { return time.Duration(s).Milliseconds() }

// Begin returns the start of the span that contains at, a multiple of the span's length. Both are Unix
// milliseconds.
func (s Span) Begin(at int64) int64 { return at - at%s.Milliseconds() }

// An Activity counts what happened in a project, or in one of its lanes, within one span. It serves charts
// and percentiles, not reconciliation: counts that a dispatcher had not written when it died are missing.
type Activity struct {
	Project string
	// LaneID is the lane. Zero stands for all lanes of the project together.
	LaneID int64
	Span   Span
	// At is the start of the span.
	At int64
	// Accepted counts accepted callbacks, Dead those that became dead, Unresolved the polls among the dead
	// (expired ones may be missing). Succeeded, Failed and Unknown count attempts by outcome. Dead messages
	// of alerts count for their lane only.
	Accepted, Succeeded, Failed, Unknown, Dead, Unresolved int64
	// Lateness covers the attempts with trigger BySchedule. Took covers all attempts.
	Lateness LatenessHistogram
	Took     TookHistogram
}

// Add adds the counts of b to a.
func (a *Activity) Add(b *Activity) {
	a.Accepted += b.Accepted
	a.Succeeded += b.Succeeded
	a.Failed += b.Failed
	a.Unknown += b.Unknown
	a.Dead += b.Dead
	a.Unresolved += b.Unresolved
	for i := range a.Lateness {
		a.Lateness[i] += b.Lateness[i]
	}
	for i := range a.Took {
		a.Took[i] += b.Took[i]
	}
}

// HistogramBuckets is the number of buckets of a histogram. Bucket i counts the values from above bound i-1
// up to bound i. The last bucket counts the values above all bounds.
const HistogramBuckets = 12

// A LatenessHistogram counts attempts by lateness (start minus due time), a TookHistogram by duration.
type (
	LatenessHistogram [HistogramBuckets]int64
	TookHistogram     [HistogramBuckets]int64
)

// The upper bounds of all buckets but the last, in milliseconds.
var (
	LatenessBounds = [HistogramBuckets - 1]float64{1, 5, 10, 50, 100, 250, 1_000, 5_000, 30_000, 300_000,
		3_600_000}
	TookBounds = [HistogramBuckets - 1]float64{5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 15_000}
)

// Observe counts one attempt with a lateness of ms milliseconds.
func (h *LatenessHistogram) Observe(ms float64) { h[sort.SearchFloat64s(LatenessBounds[:], ms)]++ }

// Observe counts one attempt with a duration of ms milliseconds.
func (h *TookHistogram) Observe(ms float64) { h[sort.SearchFloat64s(TookBounds[:], ms)]++ }

// Quantile estimates the q-quantile in milliseconds. q is clamped to 0 to 1. The estimate is linear within a
// bucket, and the last bound for values above all bounds. An empty histogram gives NaN.
func (h *LatenessHistogram) Quantile(q float64) float64 {
	return quantile((*[HistogramBuckets]int64)(h), &LatenessBounds, q)
}

// Quantile estimates the q-quantile, as LatenessHistogram.Quantile does.
func (h *TookHistogram) Quantile(q float64) float64 {
	return quantile((*[HistogramBuckets]int64)(h), &TookBounds, q)
}

func quantile(counts *[HistogramBuckets]int64, bounds *[HistogramBuckets - 1]float64, q float64) float64 {
	var total int64
	for _, n := range counts {
		total += n
	}
	if total <= 0 {
		return math.NaN()
	}
	rank := min(max(q, 0), 1) * float64(total)
	below, lower := 0.0, 0.0
	for i, upper := range bounds {
		n := float64(counts[i])
		if n > 0 && below+n >= rank {
			return lower + (upper-lower)*max(rank-below, 0)/n
		}
		below, lower = below+n, upper
	}
	return bounds[len(bounds)-1]
}

// A Dispatcher is one dispatcher process, as its last heartbeat reported it.
type Dispatcher struct {
	// Name is unique to this start of the process. Host is the machine's name.
	Name, Host, Version string
	// Roles are the roles of the process, separated by commas.
	Roles string
	// Workers is the limit of attempts in flight. InFlight is their number at the heartbeat.
	Workers, InFlight int
	// SendingOff: the process was started with sending off. Draining: it is shutting down.
	SendingOff, Draining bool
	// ClockOffset is the index's clock minus the process's clock, in milliseconds.
	ClockOffset int64
	// SeenAt is the time of the last heartbeat.
	StartedAt, SeenAt int64
}
