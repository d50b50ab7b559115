package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The figures of one round of one system, by name. Where one is made of parts, a part's name is that of the whole, a colon
// and the process. Rates are per second, CPU is in seconds per 1,000 callbacks, memory in bytes, times are in ms.
const (
	delivered  = "delivered"
	deliverCPU = "deliver cpu"
	memory     = "memory"

	filled         = "filled" // a queue, by its own client
	batchAccepted  = "batch accepted"
	batchCPU       = "batch cpu"
	singleAccepted = "single accepted"
	singleCPU      = "single cpu"

	// Quantiles are named by what they are of and p50 or p99.
	lowLatency  = "latency at 500/s"
	halfLatency = "latency at half"
	lateness    = "lateness"
	p50         = " p50"
	p99         = " p99"
	afterAnswer = " after 202" // counted from the answer instead of the request
	loopRate    = " rate"      // that the loop reached
	largest     = " max"
	earlyOnes   = " early" // how many
)

// figures are what one round has measured of one system; what it has not is missing.
type figures map[string]float64

// A spread is one figure over the rounds.
type spread struct {
	median, least, most float64
	rounds              int
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	middle := v[len(v)/2]
	if len(v)%2 == 0 {
		middle = (v[len(v)/2-1] + middle) / 2
	}
	return spread{median: middle, least: v[0], most: v[len(v)-1], rounds: len(v)}
}

// quantile is the value that the share q of the sorted ones does not exceed.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := int(q*float64(len(sorted)) + 0.999999)
	return sorted[min(max(i, 1), len(sorted))-1]
}

// A row names one system at one concurrency.
type row struct {
	system      string
	concurrency int
}

// A book holds the figures of all rounds.
type book map[row][]figures

// of returns one figure over the rounds; a spread of no rounds was not measured.
func (b book) of(r row, name string) spread {
	var all []float64
	for _, f := range b[r] {
		if v, measured := f[name]; measured {
			all = append(all, v)
		}
	}
	return spreadOf(all)
}

// putQuantiles adds the median and the 99th percentile.
func (f figures) putQuantiles(name string, values []float64) {
	sorted := slices.Sorted(slices.Values(values))
	f[name+p50], f[name+p99] = quantile(sorted, 0.50), quantile(sorted, 0.99)
}

// putCPU adds what was used between two readings for n callbacks: by process, and the sum of those that count.
func (f figures) putCPU(name string, from, to map[string]float64, n int, counted []string) {
	f[name] = 0
	for role, seconds := range to {
		used := (seconds - from[role]) * 1000 / float64(n)
		switch {
		case slices.Contains(counted, role):
			f[name] += used
			f[name+":"+role] = used
		case role == roleReceiver:
			f[name+":"+role] = used
		}
	}
}

// String lists the figures for the log.
func (f figures) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f)) {
		fmt.Fprintf(&b, "\n    %-28s %.4g", name, f[name])
	}
	return b.String()
}
