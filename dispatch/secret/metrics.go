package secret

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
)

type metrics struct {
	unreadable prometheus.Counter
}

func newMetrics(p part.Metrics) *metrics {
	m := new(metrics)
	m.unreadable = p.Counter("unreadable_secrets_total",
		"Times that a stored secret or credential could not be decrypted with this process's master keys.")
	return m
}
