package redisq

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the calls to Redis, and of its servers.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	unsafe  prometheus.Gauge
	evicted prometheus.Counter
	lost    prometheus.Counter
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
		unsafe: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "dispatcher_index_unsafe",
			Help: "1 while a Redis server of the index is one that the start would refuse, as it does where maxmemory-policy is not noeviction.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_index_evicted_keys_total",
			Help: "Keys that the Redis servers of the index evicted while this process watched them, whosever they were.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_index_parts_gone_total",
			Help: "Times that this process found a part of the index gone and had the shard rebuilt.",
		}),
	}
	if r == nil {
		return m, nil
	}
	var err error
	if m.seconds, err = register(r, m.seconds); err != nil {
		return metrics{}, err
	}
	if m.errors, err = register(r, m.errors); err != nil {
		return metrics{}, err
	}
	if m.unsafe, err = register(r, m.unsafe); err != nil {
		return metrics{}, err
	}
	if m.evicted, err = register(r, m.evicted); err != nil {
		return metrics{}, err
	}
	m.lost, err = register(r, m.lost)
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
