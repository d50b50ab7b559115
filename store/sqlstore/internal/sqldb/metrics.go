package sqldb

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/seed-ff5a32d8/dispatcher/internal/metric"
)

// metrics are the metrics of the writers.
type metrics struct {
	// rows and seconds are the sizes and durations of groups, by kind: accept, stamp, result. On SQLite the
	// kind is "all".
	rows, seconds *prometheus.HistogramVec
	// retries counts transactions that were tried again after a transient error. errors counts groups and
	// rows that were refused.
	retries, errors prometheus.Counter
}

// newMetrics registers the metrics. A second database in the same process shares those of the first.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		rows: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metric.Prefix + "sql_group_rows",
			Help:    "Rows in one group commit, by kind of group; all on SQLite.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 1000},
		}, []string{"kind"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    metric.Prefix + "sql_group_duration_seconds",
			Help:    "Duration of a group commit, including retries, by kind of group; all on SQLite.",
			Buckets: metric.Durations(),
		}, []string{"kind"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metric.Prefix + "sql_transaction_retries_total",
			Help: "Transactions retried after a deadlock, a busy database or a lost connection.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: metric.Prefix + "sql_group_errors_total",
			Help: "Groups that could not be committed, and single rows that were refused.",
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

// exportPools registers the statistics of the pools of connections, go_sql_…, by the name of each pool.
func (db *DB) exportPools(r prometheus.Registerer) error {
	pools := map[string]*sql.DB{"readers": db.Reads}
	if !db.Embedded() {
		pools = map[string]*sql.DB{"writers": db.Groups, "shared": db.Pool}
	}
	for name, pool := range pools {
		if r == nil {
			continue
		}
		if _, err := register(r, collectors.NewDBStatsCollector(pool, name)); err != nil {
			return err
		}
	}
	return nil
}

// register registers c. If a collector with the same name is registered, it returns that one.
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
