package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// metrics are those of retention and of the scheduler.
type metrics struct {
	// purged counts what the purge removes, by kind.
	purged *prometheus.CounterVec
	// overdue is set by MeasureOverdue in every process, also to zero.
	overdue *prometheus.GaugeVec
	// runs counts due times of schedules by result: fired, skipped or failed.
	runs        *prometheus.CounterVec
	runLateness prometheus.Histogram
}

// The results of a schedule's due time.
const (
	runFired   = "fired"
	runSkipped = "skipped"
	runFailed  = "failed"
)

// newMetrics registers the metrics. It is called once for each registry.
func newMetrics(p process.Metrics) *metrics {
	return &metrics{
		purged: p.CounterVec("purged_total", "Rows that retention removed, by kind.", "kind", purgedKinds...),
		overdue: p.GaugeVec("retention_overdue_seconds",
			"How long retention has been late to remove the oldest row, by kind. 0: nothing is overdue.",
			"kind", overdueKinds...),
		runs: p.CounterVec("schedule_firings_total",
			"Due times of schedules that this process handled, by result.", "result",
			runFired, runSkipped, runFailed),
		runLateness: p.Histogram("schedule_lateness_seconds",
			"Delay between a schedule's due time and the creation of its callback."),
	}
}
