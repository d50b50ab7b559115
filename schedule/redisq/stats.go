package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// counterNames are the counters of a shard in the order of the script's reply.
var counterNames = []string{"claimed", "acked", "rescheduled", "diverted", "buried", "reaped", "stale"}

// Stats returns the shard's sizes. Locks includes expired ones until an audit removes them.
func (ix *Index) Stats(ctx context.Context, shard int) (s schedule.Stats, err error) {
	err = ix.run(ctx, "stats", shard, nil, func(r *reply) {
		s = schedule.Stats{
			Tick:    r.tick(),
			Delayed: r.int(), Ready: r.int(), Leased: r.int(),
			RunnableLanes: r.int(), BlockedLanes: r.int(), OpenBreakers: r.int(),
			Locks: r.int(), Waiters: r.int(), Quarantined: r.int(),
			HeadDue:  r.int(),
			Counters: make(map[string]int64, len(counterNames)),
		}
		for _, name := range counterNames {
			s.Counters[name] = r.int()
		}
	})
	return s, err
}

// metrics are those of the calls to Redis and of its servers.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	unsafe  prometheus.Gauge
	evicted prometheus.Counter
	lost    prometheus.Counter
}

// newMetrics registers the metrics. A process has one index.
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
			Help: "1 while a Redis server of the index is unsafe: a start would refuse it, for example " +
				"because it may evict keys.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_index_evicted_keys_total",
			Help: "Keys that the Redis servers of the index evicted while this process watched them; " +
				"keys of other programs count too.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_index_parts_gone_total",
			Help: "Times that this process found keys of the index missing and had the shard rebuilt.",
		}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.seconds, m.errors, m.unsafe, m.evicted, m.lost} {
		if err := r.Register(c); err != nil {
			return m, fmt.Errorf("register metrics of the index: %w", err)
		}
	}
	return m, nil
}

func (m metrics) observe(operation string, took time.Duration, err error) {
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}
