package process

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
)

// lapseAfter is how long a value of a Lapsing is exported after it was set.
const lapseAfter = time.Minute

// A Lapsing is a gauge of the whole installation. One process at a time measures it, and only that process
// exports it: a value that is not measured again lapses, so that no process exports old values while another
// one measures. Then the metric is absent.
type Lapsing struct {
	desc *prometheus.Desc
	// values are the values of the label. It is [""] without a label.
	values []string

	mu  sync.Mutex
	now map[string]float64
	at  time.Time
}

// Lapsing returns a new gauge with one label and its values. Without values, it has no label.
func (m Metrics) Lapsing(name, help, label string, values ...string) *Lapsing {
	labels := []string{label}
	if len(values) == 0 {
		labels, values = nil, []string{""}
	}
	return register(m, &Lapsing{
		desc:   prometheus.NewDesc(metric.Prefix+name, help, labels, nil),
		values: values,
	})
}

// Set sets the gauge for the next minute. Values that are left out are zero.
func (l *Lapsing) Set(now map[string]float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now, l.at = now, time.Now()
}

// SetOne is Set for a gauge without a label.
func (l *Lapsing) SetOne(v float64) { l.Set(map[string]float64{"": v}) }

// Clear makes the gauge absent.
func (l *Lapsing) Clear() { l.Set(nil) }

// Describe implements prometheus.Collector.
func (l *Lapsing) Describe(to chan<- *prometheus.Desc) { to <- l.desc }

// Collect implements prometheus.Collector.
func (l *Lapsing) Collect(to chan<- prometheus.Metric) {
	l.mu.Lock()
	now, at := l.now, l.at
	l.mu.Unlock()
	if now == nil || time.Since(at) > lapseAfter {
		return
	}
	for _, value := range l.values {
		var labels []string
		if value != "" {
			labels = []string{value}
		}
		to <- prometheus.MustNewConstMetric(l.desc, prometheus.GaugeValue, now[value], labels...)
	}
}
