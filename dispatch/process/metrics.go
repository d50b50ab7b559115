package process

import "github.com/prometheus/client_golang/prometheus"

// Metrics creates the metrics of a part. Names are dispatcher_<noun>_<unit>; the values of a label are a
// fixed set. The zero value registers nothing.
type Metrics struct{ Registerer prometheus.Registerer }

// Counter returns a new counter.
func (m Metrics) Counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts{Name: "dispatcher_" + name, Help: help}))
}

// CounterVec returns a new counter with labels.
func (m Metrics) CounterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return register(m, prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: "dispatcher_" + name, Help: help}, labels))
}

// GaugeVec returns a new gauge with labels.
func (m Metrics) GaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "dispatcher_" + name, Help: help},
		labels))
}

// Histogram returns a new histogram of seconds. Its first bucket ends at half a millisecond.
func (m Metrics) Histogram(name, help string) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "dispatcher_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 14),
	}))
}

// Gauge registers a gauge that calls read at each scrape.
func (m Metrics) Gauge(name, help string, read func() float64) {
	register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatcher_" + name, Help: help}, read))
}

// Truth returns 1 for true and 0 for false.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// register adds c to the registry, if there is one. It panics if the registry has the name already. Each name
// occurs once in the code, so give each engine a registry of its own.
func register[C prometheus.Collector](m Metrics, c C) C {
	if m.Registerer != nil {
		m.Registerer.MustRegister(c)
	}
	return c
}
