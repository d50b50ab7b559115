package store_test

import (
	"math"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestSpans(t *testing.T) {
	t.Parallel()
	const at = int64(1_790_000_123_456)
	for _, span := range store.Spans {
		begin := span.Begin(at)
		length := span.Milliseconds()
		contains := begin <= at && at < begin+length
		sameBegin := span.Begin(begin) == begin && span.Begin(begin+length-1) == begin
		if length != time.Duration(span).Milliseconds() || begin%length != 0 || !contains || !sameBegin {
			t.Errorf("span %s of %d begins at %d", time.Duration(span), at, begin)
		}
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for name, bounds := range map[string][]float64{
		"lateness": store.LatenessBounds[:], "took": store.TookBounds[:],
	} {
		for i := range bounds {
			if bounds[i] <= 0 || i > 0 && bounds[i] <= bounds[i-1] {
				t.Errorf("%s: bound %d is %g", name, i, bounds[i])
			}
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		counts store.TookHistogram
		want   map[float64]float64
	}{
		"first bucket": {
			store.TookHistogram{0: 10}, map[float64]float64{0: 0, 0.5: 2.5, 1: 5, -1: 0, 2: 5},
		},
		"later bucket": {
			store.TookHistogram{3: 4}, map[float64]float64{0: 25, 0.25: 31.25, 0.5: 37.5, 1: 50},
		},
		"two buckets": {
			store.TookHistogram{0: 5, 4: 5}, map[float64]float64{0.25: 2.5, 0.5: 5, 0.75: 75, 1: 100},
		},
		"above all bounds": {
			store.TookHistogram{11: 1}, map[float64]float64{0: 15_000, 0.5: 15_000, 1: 15_000},
		},
		"some above all bounds": {
			store.TookHistogram{0: 1, 11: 3}, map[float64]float64{0.25: 5, 0.26: 15_000},
		},
		"last bounded bucket": {store.TookHistogram{10: 2}, map[float64]float64{0.5: 10_000}},
	} {
		for q, want := range c.want {
			if got := c.counts.Quantile(q); math.Abs(got-want) > 1e-9 {
				t.Errorf("%s: quantile %g is %g, want %g", name, q, got, want)
			}
		}
	}
	var late store.LatenessHistogram
	var took store.TookHistogram
	if l, d := late.Quantile(0.5), took.Quantile(0.5); !math.IsNaN(l) || !math.IsNaN(d) {
		t.Errorf("quantiles of empty histograms: %g and %g", l, d)
	}
	late[1] = 2
	if got := late.Quantile(0.5); got != 3 {
		t.Errorf("lateness: %g", got)
	}
}

// FuzzQuantile checks that a larger q never gives a smaller quantile, and that no quantile lies above the
// bound of the highest bucket with a count.
func FuzzQuantile(f *testing.F) {
	f.Add([]byte{1, 2, 3}, 0.1, 0.9)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255}, 0.5, 0.99)
	f.Add([]byte{7}, math.NaN(), 0.5)
	f.Fuzz(func(t *testing.T, counts []byte, p, q float64) {
		var h store.LatenessHistogram
		all := 0
		for i, n := range counts[:min(len(counts), len(h))] {
			h[i] = int64(n)
			all += int(n)
		}
		if math.IsNaN(p) || math.IsNaN(q) {
			p, q = 0.5, 0.5
		}
		low, high := h.Quantile(min(p, q)), h.Quantile(max(p, q))
		if all == 0 {
			if !math.IsNaN(low) || !math.IsNaN(high) {
				t.Fatalf("quantiles of an empty histogram: %g, %g", low, high)
			}
			return
		}
		highest := 0.0
		for i := range h {
			if h[i] > 0 {
				highest = store.LatenessBounds[min(i, len(store.LatenessBounds)-1)]
			}
		}
		if !(0 <= low && low <= high && high <= highest) {
			t.Fatalf("%v: quantiles %g and %g are %g and %g", h, min(p, q), max(p, q), low, high)
		}
	})
}
