package control

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
)

type metrics struct {
	purged         *prometheus.CounterVec
	overdue        *prometheus.GaugeVec
	firings        *prometheus.CounterVec
	firingLateness prometheus.Histogram
}

func newMetrics(p part.Metrics) *metrics {
	return &metrics{
		purged: p.CounterVec("purged_total", "What retention removed.", "what"),
		overdue: p.GaugeVec("retention_overdue_seconds",
			"For how long the oldest row that retention should have removed has outstayed it. 0: none has.",
			"what"),
		firings: p.CounterVec("schedule_firings_total",
			"Due times of schedules that this process was first with, by what became of them.", "result"),
		firingLateness: p.Histogram("schedule_lateness_seconds",
			"When a schedule's callback was made, after its due time."),
	}
}
