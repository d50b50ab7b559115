// Package metric has what the metrics of all packages share. It imports nothing, so that every package can
// import it.
package metric

// Prefix begins the names of the program's own metrics.
const Prefix = "dispatcher_"

// Durations returns the upper edges of the buckets of every histogram of seconds. One list serves all, so
// that histograms can be compared and summed. 10 ms, 250 ms and 1 s are the goals of SPEC.md: an edge at
// each makes the share of requests within a goal exact.
func Durations() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
}
