package part

import "github.com/prometheus/client_golang/prometheus"

// Metrics makes a part's metrics. Names are dispatcher_<noun>_<unit>; labels are closed sets. The zero value
// registers them nowhere.
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

// Histogram returns a new histogram of seconds, from half a millisecond on.
func (m Metrics) Histogram(name, help string) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "dispatcher_" + name, Help: help, Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 14),
	}))
}

// Gauge adds a gauge that is read when it is scraped.
func (m Metrics) Gauge(name, help string, read func() float64) {
	register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "dispatcher_" + name, Help: help}, read))
}

// Truth is 1 for true.
func Truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// register registers c if there is a registerer. A name that is taken is a mistake of the wiring: two engines
// on one registry.
func register[C prometheus.Collector](m Metrics, c C) C {
	if m.Registerer != nil {
		m.Registerer.MustRegister(c)
	}
	return c
}
