package dispatch_test

import (
	"maps"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registered registers the engine's metrics.
func registered(r *prometheus.Registry) tweak { return func(o *options) { o.Registerer = r } }

// series returns the values of a metric with one label, or with none, by the value of the label.
func (b *fixture) series(r *prometheus.Registry, name string) map[string]float64 {
	b.Helper()
	all := make(map[string]float64)
	for _, f := range must(r.Gather()) {
		if f.GetName() != "dispatcher_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if l := m.GetLabel(); len(l) > 0 {
				label = l[0].GetValue()
			}
			all[label] = m.GetGauge().GetValue()
		}
	}
	return all
}

// measures checks the values of a metric. Series that want leaves out must be zero.
func (b *fixture) measures(r *prometheus.Registry, name string, want map[string]float64) {
	b.Helper()
	got := b.series(r, name)
	b.check(len(got) > 0, "%s is absent", name)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	maps.DeleteFunc(want, func(_ string, v float64) bool { return v == 0 })
	b.is(name, got, want)
}

// A process without a key that rows in SQL name shows it, and is degraded when an attempt needs that key.
func TestMissingMasterKeysAreMeasured(t *testing.T) {
	type values = map[string]float64
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		b.sealEverything()
		lacking, complete := prometheus.NewRegistry(), prometheus.NewRegistry()
		b = b.restart(nil, withKeys("b"), registered(lacking))
		time.Sleep(time.Minute + time.Second)
		b.measures(lacking, "degraded", values{})
		b.measures(lacking, "key_ring_keys", values{"": 1})
		b.measures(lacking, "key_ring_missing", values{"": 1})
		time.Sleep(2 * time.Hour)
		b.measures(lacking, "degraded", values{"secrets": 1})
		b = b.restart(nil, withKeys("ba"), registered(complete))
		time.Sleep(time.Minute + time.Second)
		b.measures(complete, "key_ring_keys", values{"": 2})
		b.measures(complete, "key_ring_missing", values{})
		b.measures(complete, "degraded", values{})
	})
}

// The figures of a process follow its settings and the faults of the index.
func TestMetricsOfAProcess(t *testing.T) {
	type values = map[string]float64
	sends, rests := prometheus.NewRegistry(), prometheus.NewRegistry()
	with(takes(time.Minute), workers(7), registered(sends)).run(t, func(b *fixture) {
		b.measures(sends, "slots", values{"": 7})
		b.measures(sends, "horizon_seconds", values{})
		b.accept(to("https://a.example/"))
		time.Sleep(time.Second)
		b.measures(sends, "slots_in_use", values{"": 1})
		b.set(fail(errBroken), "Claim", "Ensure", "Settle", "Stats", "Generation", "Lookup", "Extend")
		time.Sleep(time.Minute)
		b.measures(sends, "degraded", values{"redis": 1})
		b = b.restart(nil, sendingOff, registered(rests))
		time.Sleep(time.Minute)
		b.measures(rests, "degraded", values{"held": 1})
	})
}
