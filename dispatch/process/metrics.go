package process

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
)

// Metrics creates the metrics of a part. Names are dispatcher_<noun>_<unit>. The values of a label are a
// closed set, and all its series exist from the start: a series that appeared with its first event would hide
// that event from increase(). The zero value registers nothing.
type Metrics struct{ Registerer prometheus.Registerer }

// Counter returns a new counter.
func (m Metrics) Counter(name, help string) prometheus.Counter {
	return register(m, prometheus.NewCounter(prometheus.CounterOpts{Name: metric.Prefix + name, Help: help}))
}

// CounterVec returns a new counter with one label, and creates the series of every value.
func (m Metrics) CounterVec(name, help, label string, values ...string) *prometheus.CounterVec {
	pairs := make([][]string, len(values))
	for i, v := range values {
		pairs[i] = []string{v}
	}
	return m.CounterVecOf(name, help, []string{label}, pairs)
}

// CounterVecOf returns a new counter with labels, and creates the given series: one value for each label.
func (m Metrics) CounterVecOf(
	name, help string, labels []string, series [][]string,
) *prometheus.CounterVec {
	c := register(m, prometheus.NewCounterVec(
		prometheus.CounterOpts{Name: metric.Prefix + name, Help: help}, labels))
	for _, values := range series {
		c.WithLabelValues(values...)
	}
	return c
}

// GaugeVec returns a new gauge with one label, and creates the series of every value.
func (m Metrics) GaugeVec(name, help, label string, values ...string) *prometheus.GaugeVec {
	g := register(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metric.Prefix + name, Help: help},
		[]string{label}))
	for _, v := range values {
		g.WithLabelValues(v)
	}
	return g
}

// Histogram returns a new histogram of seconds.
func (m Metrics) Histogram(name, help string) prometheus.Histogram {
	return register(m, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: metric.Prefix + name, Help: help, Buckets: metric.Durations(),
	}))
}

// Gauge registers a gauge that calls read at each scrape.
func (m Metrics) Gauge(name, help string, read func() float64) {
	register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: metric.Prefix + name, Help: help}, read))
}

// Gauges registers a gauge with one label. It calls the function of each value at each scrape.
func (m Metrics) Gauges(name, help, label string, read map[string]func() float64) {
	for value, f := range read {
		register(m, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: metric.Prefix + name, Help: help, ConstLabels: prometheus.Labels{label: value},
		}, f))
	}
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
