package store

import (
	"math"
	"sort"
	"time"
)

// A Span is the length of time that one Activity is about.
type Span time.Duration

// The spans: of a project, minutes are kept for three hours, quarters for three days and hours for 31 days;
// of its lanes, hours for two days.
const (
	Minute  = Span(time.Minute)
	Quarter = Span(15 * time.Minute)
	Hour    = Span(time.Hour)
)

// Spans lists every span.
var Spans = [...]Span{Minute, Quarter, Hour}

// Milliseconds is the span's length.
func (s Span) Milliseconds() int64 { return time.Duration(s).Milliseconds() }

// Begin returns when the span that at is in has begun: a multiple of the span's length.
func (s Span) Begin(at int64) int64 { return at - at%s.Milliseconds() }

// An Activity is what happened within one span, in a project or in one lane of it. It is for pictures and
// percentiles, not for books: what a dispatcher had counted and not yet written when it died is missing.
type Activity struct {
	Project string
	// LaneID is the lane's; zero: of all lanes of the project together.
	LaneID int64
	Span   Span
	// At is when the span began.
	At int64
	// Accepted counts callbacks. Succeeded, Failed and Unknown count attempts that ended so, Dead the
	// callbacks that became it.
	Accepted, Succeeded, Failed, Unknown, Dead int64
	// Lateness is of attempts that were made by schedule, Took of all that were made.
	Lateness LatenessHistogram
	Took     TookHistogram
}

// Add adds what another one counts.
func (a *Activity) Add(b *Activity) {
	a.Accepted += b.Accepted
	a.Succeeded += b.Succeeded
	a.Failed += b.Failed
	a.Unknown += b.Unknown
	a.Dead += b.Dead
	for i := range a.Lateness {
		a.Lateness[i] += b.Lateness[i]
	}
	for i := range a.Took {
		a.Took[i] += b.Took[i]
	}
}

// HistogramBuckets is how many buckets a histogram has. Bucket i counts what is at most bound i; the last
// one, what is above all bounds.
const HistogramBuckets = 12

// A LatenessHistogram counts how late attempts began, a TookHistogram how long they took.
type (
	LatenessHistogram [HistogramBuckets]int64
	TookHistogram     [HistogramBuckets]int64
)

// The upper bounds of the buckets, in milliseconds, the last one's left out.
var (
	LatenessBounds = [HistogramBuckets - 1]float64{1, 5, 10, 50, 100, 250, 1_000, 5_000, 30_000, 300_000,
		3_600_000}
	TookBounds = [HistogramBuckets - 1]float64{5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 15_000}
)

// Observe counts one.
func (h *LatenessHistogram) Observe(ms float64) { h[sort.SearchFloat64s(LatenessBounds[:], ms)]++ }

// Observe counts one.
func (h *TookHistogram) Observe(ms float64) { h[sort.SearchFloat64s(TookBounds[:], ms)]++ }

// Quantile estimates, in milliseconds, what the part q of all is at most, from 0 to 1; NaN where nothing was
// counted. Within a bucket it goes straight from bound to bound; above the last bound it is that bound.
func (h *LatenessHistogram) Quantile(q float64) float64 {
	return quantile((*[HistogramBuckets]int64)(h), &LatenessBounds, q)
}

// Quantile is as that of a LatenessHistogram.
func (h *TookHistogram) Quantile(q float64) float64 {
	return quantile((*[HistogramBuckets]int64)(h), &TookBounds, q)
}

func quantile(counts *[HistogramBuckets]int64, bounds *[HistogramBuckets - 1]float64, q float64) float64 {
	var all int64
	for _, n := range counts {
		all += n
	}
	if all <= 0 {
		return math.NaN()
	}
	rank := min(max(q, 0), 1) * float64(all)
	below, low := 0.0, 0.0
	for i, most := range bounds {
		n := float64(counts[i])
		if n > 0 && below+n >= rank {
			return low + (most-low)*max(rank-below, 0)/n
		}
		below, low = below+n, most
	}
	return bounds[len(bounds)-1]
}

// A Dispatcher is one running process, as it has last reported itself.
type Dispatcher struct {
	// Name is unlike that of any other start. Host is the machine's name.
	Name, Host, Version string
	// Roles are those that it has, with commas between them.
	Roles string
	// Workers is the most attempts that it has in flight, InFlight how many those were.
	Workers, InFlight int
	// Held: it was started with sending stopped. Draining: it is about to end.
	Held, Draining bool
	// ClockOffset is the index's clock less its own, in milliseconds.
	ClockOffset       int64
	StartedAt, SeenAt int64
}
