package index

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
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

func newMetrics(p process.Metrics) *metrics {
	m := new(metrics)
	m.enqueueDropped = p.Counter("enqueues_dropped_total",
		"Accepted callbacks whose enqueue was postponed because the index was too slow.")
	m.settlements = p.CounterVecOf("settlements_total",
		"Settlements by outcome and by the reply of the index.", []string{"outcome", "result"},
		settlementSeries())
	m.indexErrors = p.CounterVec("index_operation_failures_total",
		"Operations that failed because of the index, by operation.", "operation", operations...)
	m.healed = p.Counter("sweep_healed_total", "Overdue callbacks that the sweep returned to the index.")
	m.repaired = p.Counter("audit_repaired_total", "Records of the index that an audit repaired.")
	m.rebuilds = p.Counter("rebuilds_total", "Rebuilds of the index by this process.")
	m.rollbacks = p.Counter("index_rollbacks_total",
		"Rollbacks of a shard of the index to an older state.")
	m.sweeps = p.Counter("sweeps_total", "Sweeps of all overdue callbacks that this process finished.")
	m.catchUps = p.Counter("index_catchups_total",
		"Catch-ups of the index after it had not answered.")
	m.loaded = p.Counter("horizon_loaded_total",
		"Callbacks that this process loaded into the index when they came within the horizon.")
	m.adopted = p.Counter("claims_adopted_total",
		"Attempts in flight that a rebuild returned to the index.")
	m.clockJumps = p.Counter("clock_jumps_total",
		"Jumps of the index's clock by more than 5 s.")
	return m
}

func (m *metrics) settled(o schedule.Outcome, s schedule.Settled) {
	m.settlements.WithLabelValues(outcomeNames[o], settledNames[s]).Inc()
}

var (
	outcomeNames = [...]string{"", "ack", "reschedule", "divert", "bury"}
	settledNames = [...]string{"", "applied", "stale", "gone"}
)

// settlementSeries returns the pairs of outcome and result.
func settlementSeries() [][]string {
	var pairs [][]string
	for _, outcome := range outcomeNames[1:] {
		for _, result := range settledNames[1:] {
			pairs = append(pairs, []string{outcome, result})
		}
	}
	return pairs
}

// operations are the operations that Failed may name.
var operations = []string{
	"acquire", "audit", "cancel", "claim", "ensure", "extend", "loaded", "lookup", "move", "move_watermark",
	"release", "set_lanes", "settle", "watermark",
}

// watch adds gauges that are read at each scrape.
func (ix *Index) watch(p process.Metrics) {
	p.Gauge("enqueues_waiting", "Accepted callbacks that wait to be enqueued.", func() float64 {
		return float64(len(ix.added))
	})
	p.Gauge("sql_down", "1 while SQL does not commit.", func() float64 {
		return process.Truth(ix.health.sqlDown.Load() || ix.ping.down.Load())
	})
	p.Gauge("index_down", "1 while the index does not answer.", func() float64 {
		return process.Truth(ix.Failing())
	})
	p.Gauge("index_generation", "Generation of the index that this process works with.", func() float64 {
		return float64(ix.generation.get().Generation)
	})
	p.Gauge("horizon_seconds", "How far ahead this process loads callbacks into the index. 0: all of them.",
		func() float64 { return ix.o.Horizon.Seconds() })
	p.Gauge("horizon_lag_seconds", "Horizon minus the time that the index is loaded ahead; up to a "+
		"quarter of the horizon is normal. 0 without a horizon.", ix.loader.lag)
	p.Gauge("clock_offset_seconds", "The index's clock minus this process's clock.", func() float64 {
		return ix.clock.Offset().Seconds()
	})
}
