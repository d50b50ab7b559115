package redisq

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the calls to Redis.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

// newMetrics registers the metrics, or takes those that another index of this process has registered.
func newMetrics(r prometheus.Registerer) (metrics, error) {
	m := metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dispatcher_index_call_seconds",
			Help:    "How long calls to the index on Redis took, by operation.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5},
		}, []string{"op"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "dispatcher_index_errors_total",
			Help: "Calls to the index on Redis that failed, by operation.",
		}, []string{"op"}),
	}
	if r == nil {
		return m, nil
	}
	var err error
	if m.seconds, err = register(r, m.seconds); err != nil {
		return metrics{}, err
	}
	m.errors, err = register(r, m.errors)
	return m, err
}

func register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if there, ok := already.ExistingCollector.(C); ok {
			return there, nil
		}
	}
	if err != nil {
		return c, fmt.Errorf("register metrics of the index: %w", err)
	}
	return c, nil
}

func (m metrics) observe(operation string, took time.Duration, err error) {
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}
