package redisq

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
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

// OpenBreakers returns up to limit lanes of the shard whose breaker is open, those that opened first.
func (ix *Index) OpenBreakers(ctx context.Context, shard, limit int) (lanes []int64, err error) {
	err = ix.run(ctx, "breakers", shard, []any{max(limit, 1)}, func(r *reply) {
		for r.tick(); r.more(); {
			if lane, rest, ok := decodeLane(r.text()); ok && rest == "" { // an audit removes the others
				lanes = append(lanes, lane)
			}
		}
	})
	return lanes, err
}

// metrics are those of the calls to Redis and of its servers.
type metrics struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	unsafe  prometheus.Gauge
	evicted prometheus.Counter
	lost    prometheus.Counter
}

// newMetrics registers the metrics, with the series of every operation. A process has one index.
func newMetrics(r prometheus.Registerer, scripts map[string]*script) (metrics, error) {
	m := metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metric.Prefix + "index_call_duration_seconds",
			Help:    "Duration of a call to the index on Redis, by operation.",
			Buckets: metric.Durations(),
		}, []string{"operation"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metric.Prefix + "index_call_errors_total",
			Help: "Calls to the index on Redis that failed, by operation.",
		}, []string{"operation"}),
		unsafe: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metric.Prefix + "index_unsafe",
			Help: "1 while a Redis server of the index is unsafe: a start would refuse it, for example " +
				"because it may evict keys.",
		}),
		evicted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metric.Prefix + "index_evicted_keys_total",
			Help: "Keys that the Redis servers of the index evicted while this process watched them; " +
				"keys of other programs count too.",
		}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metric.Prefix + "index_parts_gone_total",
			Help: "Times that this process found keys of the index missing and had the shard rebuilt.",
		}),
	}
	for operation := range scripts {
		m.seconds.WithLabelValues(operation)
		m.errors.WithLabelValues(operation)
	}
	return m, registerAll(r, m.seconds, m.errors, m.unsafe, m.evicted, m.lost)
}

// registerAll registers collectors; a nil registerer: none.
func registerAll(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	if r == nil {
		return nil
	}
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics of the index: %w", err)
		}
	}
	return nil
}

// newPoolGauges returns the gauges of the connections to Redis. The client counts them, so a scrape calls no
// server.
func newPoolGauges(client redis.UniversalClient) []prometheus.Collector {
	gauge := func(state string, read func(*redis.PoolStats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        metric.Prefix + "redis_connections",
			Help:        "Connections to the Redis servers of the index, by state: in_use and idle.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return read(client.PoolStats()) })
	}
	return []prometheus.Collector{
		gauge("in_use", func(s *redis.PoolStats) float64 {
			return max(0, float64(s.TotalConns)-float64(s.IdleConns))
		}),
		gauge("idle", func(s *redis.PoolStats) float64 { return float64(s.IdleConns) }),
	}
}

func (m metrics) observe(operation string, took time.Duration, err error) {
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		m.errors.WithLabelValues(operation).Inc()
	}
}
