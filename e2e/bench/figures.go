package main

import "slices"

// The figures of a measurement, by name. CPU time and memory also have one for each role: name, colon, role.
const (
	rate     = "rate"   // callbacks a second
	cpuTime  = "cpu"    // CPU seconds of the system's processes for 1,000 callbacks
	memory   = "memory" // bytes
	p50      = "p50"    // ms, as those below
	p99      = "p99"
	largest  = "most"
	answered = "after the answer: " // before p50 and p99: not from the request, but from its answer
)

type figures map[string]float64

// putQuantiles adds the median and the 99th percentile of values, each name with the prefix.
func (f figures) putQuantiles(prefix string, values []float64) {
	sorted := slices.Sorted(slices.Values(values))
	f[prefix+p50], f[prefix+p99] = quantile(sorted, 0.50), quantile(sorted, 0.99)
}

// putCPU adds what the counted roles used between two readings, for 1,000 of n callbacks.
func (r *run) putCPU(name string, from, to map[string]float64, n int) {
	r.figures[name] = 0
	for _, role := range r.system.counted {
		used := (to[role] - from[role]) * 1000 / float64(n)
		r.figures[name] += used
		r.figures[name+":"+role] = used
	}
}
