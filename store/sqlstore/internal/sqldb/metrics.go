package sqldb

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the writers count.
type metrics struct {
	// rows and seconds of each group, by kind: accept, stamp, result; all on SQLite.
	rows, seconds *prometheus.HistogramVec
	// retries are transactions tried again after a transient error; errors, groups and rows refused.
	retries, errors prometheus.Counter
}

// newMetrics registers the metrics; a second database of the same process adds to the first one's.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dispatcher_sql_group_rows",
			Help:    "Rows committed together, by kind of group.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1000},
		}, []string{"kind"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "dispatcher_sql_group_seconds",
			Help:    "Time from taking a group to its commit, retries included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		}, []string{"kind"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_sql_transaction_retries_total",
			Help: "Transactions tried again after a deadlock, a busy database or a lost connection.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "dispatcher_sql_group_errors_total",
			Help: "Groups that could not be committed, and rows that alone were refused.",
		}),
	}
	if r == nil {
		return m, nil
	}
	var errs [4]error
	m.rows, errs[0] = register(r, m.rows)
	m.seconds, errs[1] = register(r, m.seconds)
	m.retries, errs[2] = register(r, m.retries)
	m.errors, errs[3] = register(r, m.errors)
	return m, errors.Join(errs[:]...)
}

// register returns c, or the one that was registered before under its name.
func register[C prometheus.Collector](r prometheus.Registerer, c C) (C, error) {
	err := r.Register(c)
	if are, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if first, ok := are.ExistingCollector.(C); ok {
			return first, nil
		}
	}
	if err != nil {
		err = fmt.Errorf("register metrics: %w", err)
	}
	return c, err
}
