package dispatch_test

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// series returns the values of a metric with one label, or with none, by the value of the label.
func (b *fixture) series(name string) map[string]float64 {
	b.Helper()
	all := make(map[string]float64)
	for _, f := range must(b.metrics.Gather()) {
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
func (b *fixture) measures(name string, want map[string]float64) {
	b.Helper()
	got := b.series(name)
	b.check(len(got) > 0, "%s is absent", name)
	maps.DeleteFunc(got, func(_ string, v float64) bool { return v == 0 })
	maps.DeleteFunc(want, func(_ string, v float64) bool { return v == 0 })
	b.is(name, got, want)
}

// A process without a key that rows in SQL name shows it, and is degraded when an attempt needs that key.
func TestMissingMasterKeysAreMeasured(t *testing.T) {
	type values = map[string]float64
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		ep := b.endpoint(control.EndpointChange{Headers: new(credential("endpoint"))})
		later := in(time.Hour)
		later.Endpoint = store.EndpointPrefix + ep.ID
		b.accept(later)
		b = b.restart(nil, withKeys("b"))
		time.Sleep(time.Minute + time.Second)
		b.measures("degraded", values{})
		b.measures("key_ring_keys", values{"": 1})
		b.measures("key_ring_missing", values{"": 1})
		time.Sleep(2 * time.Hour)
		b.measures("degraded", values{"secrets": 1})
		b = b.restart(nil, withKeys("ba"))
		time.Sleep(time.Minute + time.Second)
		b.measures("key_ring_keys", values{"": 2})
		b.measures("key_ring_missing", values{})
		b.measures("degraded", values{})
	})
}

// The figures of a process follow its settings and the faults of the index.
func TestMetricsOfAProcess(t *testing.T) {
	type values = map[string]float64
	with(takes(time.Minute), workers(7)).run(t, func(b *fixture) {
		b.measures("slots", values{"": 7})
		b.measures("horizon_seconds", values{})
		b.accept(to("https://a.example/"))
		time.Sleep(time.Second)
		b.measures("slots_in_use", values{"": 1})
		b.set(fail(errBroken), "Claim", "Ensure", "Settle", "Stats", "Generation", "Lookup", "Extend")
		time.Sleep(time.Minute)
		b.measures("degraded", values{"redis": 1})
		b = b.restart(nil, sendingOff)
		time.Sleep(time.Minute)
		b.measures("degraded", values{"held": 1})
	})
}

// first is a process whose database and index others join.
func first(o *options) { o.Name, o.Embedded = "one", false }

// One process measures the installation, and only that one exports the figures. When it ends, another one
// takes over at its next turn. If it cannot renew its lease, its figures lapse, and another one takes over
// when the lease ends.
func TestOneProcessMeasures(t *testing.T) {
	const name = "overdue_callbacks"
	for how, least := range map[string]time.Duration{"ends": 0, "cannot reach SQL": 29 * time.Second} {
		t.Run(how, func(t *testing.T) {
			with(nil, first).run(t, func(b *fixture) {
				b.accept(in(time.Second))
				time.Sleep(10 * time.Second)
				other := b.join("two")
				time.Sleep(time.Minute)
				b.check(len(b.series(name)) == 2 && len(other.series(name)) == 0,
					"one exports %v, two %v", b.series(name), other.series(name))
				began := time.Now()
				switch how {
				case "ends":
					b.stopRun()
				default:
					b.set(fail(errDown), "TryLease")
				}
				for len(other.series(name)) == 0 {
					b.check(time.Since(began) < 61*time.Second, "the other process does not measure")
					time.Sleep(time.Second)
				}
				between(b, "until another process measures", time.Since(began), least, time.Minute)
				if how != "ends" {
					time.Sleep(16 * time.Second)
				}
				b.check(len(b.series(name)) == 0, "the process without the lease exports %v", b.series(name))
				// Its successor is the only one, also when the first one can reach SQL again.
				b.set(nil, "TryLease")
				time.Sleep(time.Minute)
				b.check(len(b.series(name)) == 0 && len(other.series(name)) == 2,
					"one exports %v, two %v", b.series(name), other.series(name))
			})
		})
	}
}

// Processes agree on their places, which share the rate of robots.
func TestPlacesOfProcesses(t *testing.T) {
	with(nil, first).run(t, func(b *fixture) {
		place := func(b *fixture, place, of int) {
			b.Helper()
			p, n, err := b.engine.ProcessPlace(b.Context())
			b.ok(err)
			b.check(p == place && n == of, "process %d of %d, want %d of %d", p, n, place, of)
		}
		place(b, 0, 1)
		time.Sleep(time.Second)
		other := b.join("two")
		time.Sleep(10 * time.Second)
		place(b, 0, 2)
		place(other, 1, 2)
		b.stopRun()
		place(other, 0, 1)
	})
}

// A process that starts while the index is down cannot count a lease, and measures all the same.
func TestProcessWithoutAnIndexMeasures(t *testing.T) {
	calls := []string{"Claim", "Ensure", "Settle", "Stats", "Generation", "Lookup", "Extend", "Clock", "Open",
		"LaneStates"}
	with(nil, first).run(t, func(b *fixture) {
		b.accept(in(time.Second))
		b = b.restart(nil, first, withEffect(fail(errBroken), calls...))
		b.accept(in(time.Second))
		time.Sleep(time.Minute)
		b.is("overdue", b.series("overdue_callbacks")["no"], 2.)
		b.set(nil, calls...)
		time.Sleep(time.Minute)
		b.measures("overdue_callbacks", map[string]float64{})
	})
}

// Only the process with the lease of a maintenance function exports when it last succeeded.
func TestSuccessOfMaintenanceIsMeasured(t *testing.T) {
	const name = "task_last_success_timestamp_seconds"
	with(nil, first).run(t, func(b *fixture) {
		time.Sleep(time.Second)
		other := b.join("two")
		time.Sleep(11 * time.Minute)
		// A function whose lease is no longer than its period may move between the processes.
		tasks := slices.AppendSeq(slices.Collect(maps.Keys(b.series(name))), maps.Keys(other.series(name)))
		slices.Sort(tasks)
		b.is("functions of both processes", tasks,
			[]string{"alerts", "audit", "chain", "failing", "fold", "purge", "reconcile", "rules",
				"sweep"})
		between(b, "age of the last sweep", float64(time.Now().Unix())-b.series(name)["sweep"], 0, 15)

		b.set(fail(errDown), "Overdue")
		failed := time.Now()
		time.Sleep(time.Minute)
		between(b, "the last sweep before it failed", float64(failed.Unix())-b.series(name)["sweep"], 0, 15)
		b.stopRun()
		time.Sleep(time.Minute + 31*time.Second)
		between(b, "age of the other's last sweep", float64(time.Now().Unix())-other.series(name)["sweep"], 0,
			15)
	})
}

// A walk over very many overdue callbacks takes several turns. Until it is complete, the figures are those of
// the last one, or what it has found if that is more.
func TestManyOverdueCallbacksAreCountedInTurns(t *testing.T) {
	type values = map[string]float64
	with(nil).run(t, func(b *fixture) {
		page := func(count int, age time.Duration, more bool) store.OverduePage {
			lane := store.OverdueLane{Count: count, OldestDue: soon(-age)}
			lane.ID = 1
			return store.OverduePage{Lanes: []store.OverdueLane{lane}, More: more}
		}
		turns := []struct {
			after    time.Duration
			page     store.OverduePage
			count    float64
			atLeast  float64
			position store.Cursor
		}{
			{3 * time.Second, page(10, time.Hour, true), 10, 3600, store.Cursor{}},
			{5 * time.Second, page(20, time.Minute, false), 30, 3600, store.Cursor{DueAt: 1}},
			{15 * time.Second, page(4, time.Second, true), 30, 1, store.Cursor{}},
			{5 * time.Second, page(3, time.Second, false), 7, 1, store.Cursor{DueAt: 3}},
		}
		turn := 0
		b.set(func(_ context.Context, c *call) error {
			b.is("position", c.args[0], any(turns[turn].position))
			p := turns[turn].page
			turn++
			p.End = store.Cursor{DueAt: int64(turn)}
			c.got = p
			return nil
		}, "OverdueLanes")
		for _, turn := range turns {
			time.Sleep(turn.after)
			b.measures("overdue_callbacks", values{"no": turn.count})
			between(b, "age", b.series("oldest_overdue_seconds")["no"], turn.atLeast, turn.atLeast+60)
		}
	})
}

// While a walk has found no callback of a kind, the oldest one is not older than the position of the walk: a
// callback that the last walk found there is gone.
func TestTheOldestOverdueFollowsTheWalk(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		free, held := store.OverdueLane{Count: 1}, store.OverdueLane{Count: 1, Wait: store.WaitsForOrder}
		free.OldestDue, held.OldestDue = soon(-time.Hour), soon(-2*time.Hour)
		pages := []store.OverduePage{
			{Lanes: []store.OverdueLane{held, free}},
			{Lanes: []store.OverdueLane{held}, More: true, End: store.Cursor{DueAt: soon(-30 * time.Minute)}},
			{Lanes: []store.OverdueLane{held}, End: store.Cursor{DueAt: soon(-time.Minute)}},
		}
		b.set(func(_ context.Context, c *call) error {
			c.got, pages = pages[0], pages[1:]
			return nil
		}, "OverdueLanes")
		for _, turn := range []struct{ after, free time.Duration }{
			{3 * time.Second, time.Hour}, {15 * time.Second, 30 * time.Minute}, {5 * time.Second, 0},
		} {
			time.Sleep(turn.after)
			ages := b.series("oldest_overdue_seconds")
			between(b, "age, held", ages["yes"], 7200, 7230)
			least := turn.free.Seconds()
			between(b, "age, free", ages["no"], least, least+min(least, 30))
		}
	})
}

// A scrape calls neither SQL nor the index, so it works while they hang.
func TestScrapesCallNothing(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		time.Sleep(20 * time.Second)
		for _, face := range []reflect.Type{
			reflect.TypeFor[dispatch.Store](), reflect.TypeFor[dispatch.Schedule](),
		} {
			for i := range face.NumMethod() {
				b.set(hang, face.Method(i).Name)
			}
		}
		began := time.Now()
		b.check(len(b.series("overdue_callbacks")) == 2 && time.Since(began) == 0, "a scrape took %s",
			time.Since(began))
	})
}
