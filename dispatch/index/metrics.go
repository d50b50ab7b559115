package index

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

type metrics struct {
	enqueueDropped prometheus.Counter
	settlements    *prometheus.CounterVec
	indexErrors    *prometheus.CounterVec
	healed         prometheus.Counter
	repaired       prometheus.Counter
	rebuilds       prometheus.Counter
	rollbacks      prometheus.Counter
	sweeps         prometheus.Counter
	catchUps       prometheus.Counter
	loaded         prometheus.Counter
	adopted        prometheus.Counter
	clockJumps     prometheus.Counter
}

func newMetrics(p part.Metrics) *metrics {
	m := new(metrics)
	m.enqueueDropped = p.Counter("enqueues_dropped_total",
		"Accepted callbacks left to the sweep because the index was too slow.")
	m.settlements = p.CounterVec("settlements_total", "Settlements by outcome and what the index said.",
		"outcome", "result")
	m.indexErrors = p.CounterVec("index_failures_total",
		"Operations of the index that failed, as the engine met them.", "operation")
	m.healed = p.Counter("sweep_healed_total", "Overdue callbacks that the sweep gave back to the index.")
	m.repaired = p.Counter("audit_repaired_total", "Records of the index that an audit mended.")
	m.rebuilds = p.Counter("rebuilds_total", "Rebuilds of the index by this process.")
	m.rollbacks = p.Counter("index_rollbacks_total",
		"Times that a shard of the index was found in an older state than it had been in.")
	m.sweeps = p.Counter("sweeps_total", "Sweeps that ran to their end in this process.")
	m.catchUps = p.Counter("index_catchups_total",
		"Times that the index was told, once it answered again, what it had missed.")
	m.loaded = p.Counter("horizon_loaded_total",
		"Callbacks that this process gave to the index when they came within the horizon.")
	m.adopted = p.Counter("claims_adopted_total",
		"Attempts in flight that a rebuild put back into the index.")
	m.clockJumps = p.Counter("clock_jumps_total",
		"Times that the index's clock differed by more than 5 s from what this process expected.")
	return m
}

func (m *metrics) settled(o schedule.Outcome, s schedule.Settled) {
	m.settlements.WithLabelValues(outcomeNames[o], settledNames[s]).Inc()
}

var (
	outcomeNames = [...]string{"", "ack", "reschedule", "divert", "bury"}
	settledNames = [...]string{"", "applied", "stale", "gone"}
)

// watch adds gauges that are read when they are scraped.
func (ix *Index) watch(p part.Metrics) {
	p.Gauge("enqueues_waiting", "Accepted callbacks that the index was not told of yet.", func() float64 {
		return float64(len(ix.added))
	})
	p.Gauge("sql_down", "1 while SQL does not commit.", func() float64 {
		return part.Truth(ix.health.sqlDown.Load())
	})
	p.Gauge("index_down", "1 while the index does not answer.", func() float64 {
		return part.Truth(ix.Failing())
	})
	p.Gauge("index_generation", "Generation of the index that this process works with.", func() float64 {
		return float64(ix.generation.get().Generation)
	})
	p.Gauge("horizon_lag_seconds", "By how much less than the horizon the index is loaded ahead; a quarter "+
		"of the horizon is usual. 0 without one.", ix.loader.lag)
	p.Gauge("clock_offset_seconds", "The index's clock less this process's.", func() float64 {
		return ix.clock.Offset().Seconds()
	})
}
