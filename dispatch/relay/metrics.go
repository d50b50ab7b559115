package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
)

// The results of rows.
const (
	resultAccepted = "accepted"
	resultReplayed = "replayed"
	resultRefused  = "refused"
)

// metrics are by source. Their series are bounded by the number of sources.
type metrics struct {
	rows   *prometheus.CounterVec
	late   *prometheus.CounterVec
	errors *prometheus.CounterVec
}

func newMetrics(p process.Metrics, sources []SourceConfig) *metrics {
	names := make([]string, len(sources))
	var results, sides [][]string
	for i, c := range sources {
		names[i] = c.Label()
		for _, result := range []string{resultAccepted, resultReplayed, resultRefused} {
			results = append(results, []string{c.Label(), result})
		}
		for _, side := range []string{sideSource, sideDispatcher} {
			sides = append(sides, []string{c.Label(), side})
		}
	}
	return &metrics{
		rows: p.CounterVecOf("relay_rows_total", "Rows of outbox tables, by source and result: accepted, "+
			"replayed (it had been accepted before) or refused.", []string{"source", "result"}, results),
		late: p.CounterVec("relay_late_rows_total",
			"Rows that were committed long after their INSERT, found by a scan that reached back.", "source",
			names...),
		errors: p.CounterVecOf("relay_errors_total", "Failed calls of the relay, by source and side: the "+
			"source's database or the dispatcher.", []string{"source", "side"}, sides),
	}
}

// watch adds gauges that are read at each scrape. In a process that does not have to read the source they are
// zero: its values are old.
func watch(p process.Metrics, readers []*reader) {
	gauges := func(name, help string, read func(s *state) float64) {
		sources := make(map[string]func() float64, len(readers))
		for _, r := range readers {
			sources[r.c.Label()] = func() float64 {
				return r.state.read(func(s *state) float64 {
					return process.Truth(s.leader || !s.unreachable.IsZero()) * read(s)
				})
			}
		}
		p.Gauges(name, help, "source", sources)
	}
	gauges("relay_lag_seconds", "Age of the oldest row that waits in an outbox table, by source. It grows "+
		"while the table cannot be read.",
		func(s *state) float64 { return s.lag(time.Now()).Seconds() })
	gauges("relay_rows_waiting", "Rows that wait in an outbox table, by source, counted to 10,001.",
		func(s *state) float64 { return float64(s.waiting) })
	gauges("relay_refused_rows", "Rows in the table of refused rows, by source, counted to 10,001.",
		func(s *state) float64 { return float64(s.refusedRows) })
	gauges("relay_leader", "1 if this process reads the source, by source.",
		func(s *state) float64 { return process.Truth(s.leader) })
}
