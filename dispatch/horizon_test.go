package dispatch_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// within shares an index and sets a horizon.
func within(index *memq.Index, horizon time.Duration) tweak {
	return func(o *options) {
		on(index)(o)
		o.Horizon = horizon
	}
}

// withHorizon returns a setup with a horizon, whose index other engines may share.
func withHorizon(horizon time.Duration, tweaks ...tweak) setup {
	return with(nil, append([]tweak{func(o *options) { within(o.index, horizon)(o) }}, tweaks...)...)
}

// awaitMark waits until the index is loaded as far ahead as the horizon.
func (b *fixture) awaitMark(horizon time.Duration) {
	b.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		m, err := b.index.Watermark(b.Context(), 0)
		if horizon == 0 && err == nil && m.At == schedule.Forever && m.Loaded == schedule.Forever {
			return
		}
		ahead := time.Duration(m.At-m.Now) * time.Millisecond
		if err == nil && m.At == m.Loaded && ahead <= horizon && ahead > horizon/2 {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("the watermark is %+v, %v; the horizon is %s", m, err, horizon)
		}
	}
}

// later accepts a callback that is due after d, and waits until the index has it. Otherwise the enqueue could
// follow a change of the due time and put the callback at its old time. Then a claim would correct it, and
// its place would mean nothing until then.
func (b *fixture) later(d time.Duration) store.Callback {
	b.Helper()
	c := b.accept(in(d))
	synctest.Wait()
	return c
}

// placed checks where a callback is in the index.
func (b *fixture) placed(what string, c store.Callback, want schedule.Place) {
	b.Helper()
	synctest.Wait()
	b.is(what, must(b.index.Lookup(b.Context(),
		[]schedule.Ref{{ID: c.ID, Lane: c.LaneID}}))[0].Place.String(), want.String())
}

// clean checks that SQL and the index agree, with that many rows beyond the horizon.
func (b *fixture) clean(beyond int) {
	b.Helper()
	d := b.drift()
	b.check(d.Clean() && d.Beyond == beyond, "verify: %+v; want it clean, and %d beyond the horizon", d,
		beyond)
}

// punctual checks that each callback succeeds as soon as it is due.
func (b *fixture) punctual(list ...store.Callback) {
	b.Helper()
	const most = 10 * time.Millisecond
	for _, c := range list {
		b.ends("succeeded", time.Until(time.UnixMilli(c.DueAt))+most, c.ID)
		attempts := b.attempts(c.ID)
		last := attempts[len(attempts)-1]
		between(b, "ms that it was sent after its due time", last.StartedAt-last.DueAt, 0,
			most.Milliseconds())
	}
}

// metricOf returns the value of a counter or a gauge without labels.
func metricOf(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue() + f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

// Callbacks that are due within the horizon are in the index, the others are not. Each is loaded before it is
// due and sent on time.
func TestHorizon(t *testing.T) {
	const horizon = 5 * time.Minute
	registry := prometheus.NewRegistry()
	withHorizon(horizon, func(o *options) { o.Registerer = registry }).run(t, func(b *fixture) {
		b.awaitMark(horizon)
		var all []store.Callback
		for i := range 80 {
			// No due time equals the watermark, which would be in the index.
			all = append(all, b.later(time.Duration(i)*15*time.Second+7*time.Second))
		}
		for range 2 {
			b.placed("due within the horizon", all[16], schedule.Delayed)
			b.placed("due beyond the horizon", all[24], schedule.Absent)
			b.clean(60)
			time.Sleep(time.Second)
		}
		for time.Now().Before(time.UnixMilli(all[79].DueAt)) {
			time.Sleep(10 * time.Second)
			s := must(b.index.Stats(b.Context(), 0))
			between(b, "held by the index, of which 20 are due within the horizon",
				s.Delayed+s.Ready+s.Leased, 0, 22)
			m := must(b.index.Watermark(b.Context(), 0))
			between(b, "watermark", m.At-m.Now, (horizon*3/4).Milliseconds()-2000, horizon.Milliseconds())
		}
		b.punctual(all...)
		b.clean(0)
		b.is("loaded", metricOf(t, registry, "dispatcher_horizon_loaded_total"), 60.0)
		between(b, "lag in seconds", metricOf(t, registry, "dispatcher_horizon_lag_seconds"), 0, 77)
	})
}

// A callback that is written between the steps of a load is in the index afterwards, on whichever side of the
// old and the new watermark it is due: either the enqueue added it, or the loader read it.
func TestWritesBetweenTheStepsOfALoad(t *testing.T) {
	// Long enough that a callback which the load missed is not due before the check.
	const horizon = 2 * schedule.MinHorizon
	// The steps: move the watermark, read SQL, record the load.
	for _, step := range []string{"MoveWatermark", "OpenUntil", "Loaded"} {
		t.Run(step, func(t *testing.T) {
			withHorizon(horizon).run(t, func(b *fixture) {
				b.awaitMark(horizon)
				moved := b.later(10 * time.Minute) // rescheduled into the span that is being loaded
				sooner, gone := b.later(5*time.Minute), b.later(5*time.Minute)
				farther := b.later(2 * time.Minute) // rescheduled out of the loaded span
				var all []store.Callback
				var old schedule.Watermark
				wrote := make(chan struct{})
				b.times(1, before(func() {
					old = must(b.index.Watermark(b.Context(), 0))
					for d := -2 * time.Second; d <= horizon/4+2*time.Second; d += time.Second {
						all = append(all, b.accept(accept.Submission{DueAt: new(old.At + d.Milliseconds())}))
					}
					for c, due := range map[string]int64{moved.ID: old.At + 1, sooner.ID: old.Now + 1000,
						farther.ID: old.At + 300_000} {
						must(b.engine.Reschedule(b.Context(), project, c, &due, nil, operator))
					}
					b.cancel(gone.ID)
					synctest.Wait() // until the index is updated
					close(wrote)
				}), step)
				time.Sleep(horizon/4 + 5*time.Second)
				select {
				case <-wrote:
				default:
					t.Fatal("nothing was loaded")
				}
				b.check(b.drift().Clean(), "verify: %+v", b.drift())
				b.punctual(append(all, b.get(moved.ID), b.get(sooner.ID), b.get(farther.ID))...)
			})
		})
	}
}

// The index's clock is set forward by more than the horizon: what is due by it is sent at once. It is set
// back: nothing is early.
func TestClockJumpsAcrossTheHorizon(t *testing.T) {
	const horizon = 2 * time.Minute
	var skew atomic.Int64
	withHorizon(horizon, func(o *options) {
		o.index = memq.New(memq.Options{Now: func() time.Time {
			return time.Now().Add(time.Duration(skew.Load()))
		}})
	}).run(t, func(b *fixture) {
		b.awaitMark(horizon)
		early, late := b.later(8*time.Minute), b.later(14*time.Minute)
		skew.Store(int64(10 * time.Minute))
		time.Sleep(3 * time.Second)
		b.checkState(b.get(early.ID), "succeeded") // it was due two minutes ago by the index's clock
		b.awaitMark(horizon)
		skew.Store(0)
		time.Sleep(3 * time.Second)
		b.awaitMark(horizon)
		b.placed("due in 14 m", late, schedule.Absent)
		time.Sleep(13 * time.Minute)
		b.checkState(b.get(late.ID), "scheduled")
		b.punctual(late)
	})
}

func TestHorizonIsRefused(t *testing.T) {
	t.Parallel()
	for _, o := range []dispatch.Options{{Horizon: time.Hour, Embedded: true}, {Horizon: -time.Hour},
		{Horizon: 1}} {
		o.Store, o.Schedule = &calledStore{}, memq.New(memq.Options{})
		o.Sender, o.Keyring = &outbound.Client{}, new(secret.Keyring)
		if _, err := dispatch.New(o); err == nil || !strings.Contains(err.Error(), "horizon") {
			t.Errorf("a horizon of %s, embedded %t: %v", o.Horizon, o.Embedded, err)
		}
	}
}
