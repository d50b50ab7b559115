package main

import (
	"math"
	"slices"
)

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

// tooWide is the width of a middle half, as a share of its median, from which on a figure is marked as
// doubtful.
const tooWide = 0.10

// A spread is the median of one figure over the rounds, with its quartiles: the middle half lies between
// them.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	sorted := slices.Sorted(slices.Values(values))
	return spread{quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)}
}

func (s spread) doubtful() bool { return s.high-s.low > tooWide*math.Abs(s.median) }

// quantile interpolates between the two nearest of the sorted values; 0 if there are none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// confidence is the probability with which an interval holds the true value.
const confidence = 0.95

// leastPairs is the fewest differences for which signedRank has an interval of that confidence.
const leastPairs = 6

// signedRank estimates the centre of differences, and an interval that holds it, by Wilcoxon's signed-rank
// test: the median of the means of every two differences (Hodges-Lehmann), and the means whose rank the test
// still accepts. Like a sign test it tolerates outliers and assumes no normal distribution, but it needs
// about a third fewer pairs; the symmetry that it assumes holds because A and B take turns in going first.
// Fewer than leastPairs have no interval: it is infinite.
func signedRank(differences []float64) (centre, low, high float64) {
	n := len(differences)
	var means []float64
	for i, a := range differences {
		for _, b := range differences[i:] {
			means = append(means, (a+b)/2)
		}
	}
	slices.Sort(means)
	centre = quantile(means, 0.5)
	if n < leastPairs {
		return centre, math.Inf(-1), math.Inf(1)
	}
	cut := acceptedRank(n)
	return centre, means[cut], means[len(means)-1-cut]
}

// acceptedRank returns the greatest sum of positive ranks of n differences that the two-sided test rejects.
func acceptedRank(n int) int {
	// probability[s] is that of the sum s: each rank from 1 to n is in the sum or not, with the same
	// probability.
	probability := make([]float64, n*(n+1)/2+1)
	probability[0] = 1
	for rank := 1; rank <= n; rank++ {
		for s := len(probability) - 1; s >= 0; s-- {
			with := 0.0
			if s >= rank {
				with = probability[s-rank]
			}
			probability[s] = (probability[s] + with) / 2
		}
	}
	sum, total := -1, 0.0
	for total += probability[0]; total <= (1-confidence)/2; total += probability[sum+1] {
		sum++
	}
	return sum
}
