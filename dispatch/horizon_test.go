package dispatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What is due within the horizon is in the index, the rest is not; each comes in before it is due, and is sent on time.
func TestHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const horizon = 5 * time.Minute
		registry := prometheus.NewRegistry()
		b := newHorizonFixture(t, horizon, func(o *dispatch.Options) { o.Registerer = registry })
		var all []store.Callback
		for i := range 80 {
			// None is due at the watermark itself, which belongs to the index.
			all = append(all, b.later(time.Duration(i)*15*time.Second+7*time.Second))
		}
		for range 2 {
			b.expect("one that is due within the horizon", all[16], schedule.Delayed)
			b.expect("one that is due beyond the horizon", all[24], schedule.Absent)
			b.clean(60)
			time.Sleep(time.Second)
		}
		most := int64(0)
		for time.Now().Before(time.UnixMilli(all[79].DueAt)) {
			time.Sleep(10 * time.Second)
			s, err := b.index.Stats(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			most = max(most, s.Delayed+s.Ready+s.Leased)
			m, err := b.index.Watermark(t.Context(), 0)
			if err != nil || m.At-m.Now < (horizon*3/4).Milliseconds()-2000 || m.At-m.Now > horizon.Milliseconds() {
				t.Fatalf("the watermark is %+v, %v", m, err)
			}
		}
		if most > 22 {
			t.Errorf("the index held up to %d callbacks, of which 20 are due within the horizon", most)
		}
		b.punctual(10*time.Millisecond, all...)
		b.clean(0)
		if loaded, lag := metricOf(t, registry, "dispatcher_horizon_loaded_total"), metricOf(t, registry, "dispatcher_horizon_lag_seconds"); loaded != 60 || lag > 77 {
			t.Errorf("%g were loaded, the lag is %g s; want 60, and at most a quarter of the horizon", loaded, lag)
		}
	})
}

// Whatever is written between the steps of a load is in the index afterwards, on whichever side of the old watermark and of the
// new one it is due: the index took it in, or the loader has read it.
func TestWritesBetweenTheStepsOfALoad(t *testing.T) {
	t.Parallel()
	const horizon = 2 * schedule.AlwaysAhead // so that what is due soon anyway does not hide what falls between
	steps := map[string]string{"before the watermark moves": "MoveWatermark", "before SQL is read": "OpenUntil", "before it is noted": "Loaded"}
	for step, op := range steps {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := new(faults)
				b := newHorizonFixture(t, horizon, faultySQL(calls), faultyIndex(calls))
				moved := b.later(10 * time.Minute) // is rescheduled into the span that is being loaded
				sooner, gone := b.later(5*time.Minute), b.later(5*time.Minute)
				farther := b.later(2 * time.Minute) // is rescheduled out of what was loaded
				var all []store.Callback
				write := func() error {
					old, err := b.index.Watermark(t.Context(), 0)
					if err != nil {
						return err
					}
					for d := -2 * time.Second; d <= horizon/4+2*time.Second; d += time.Second {
						due := old.At + d.Milliseconds()
						all = append(all, b.accept(accept.Submission{DueAt: &due}))
					}
					for _, c := range []struct {
						id  string
						due int64
					}{{moved.ID, old.At + 1}, {sooner.ID, old.Now + 1000}, {farther.ID, old.At + 300_000}} {
						if _, err := b.engine.Reschedule(t.Context(), store.DefaultProject, c.id, &c.due, nil, store.Actor{}); err != nil {
							return err
						}
					}
					if _, err := b.engine.Cancel(t.Context(), store.DefaultProject, gone.ID, store.Actor{}); err != nil {
						return err
					}
					synctest.Wait() // until the index has been told
					return nil
				}
				done := make(chan error, 1)
				calls.times(1, func(_ context.Context, c *call) error {
					done <- write()
					return c.do()
				}, op)
				time.Sleep(horizon/4 + 5*time.Second)
				select {
				case err := <-done:
					if err != nil {
						t.Fatal(err)
					}
				default:
					t.Fatal("nothing was loaded")
				}
				d, err := b.engine.Verify(t.Context())
				if err != nil || !d.Clean() {
					t.Errorf("verify: %+v, %v", d, err)
				}
				b.punctual(10*time.Millisecond, append(all, b.get(moved.ID), b.get(sooner.ID), b.get(farther.ID))...)
			})
		})
	}
}

// A dry run counts what a rebuild would load, and a rebuild loads just that.
func TestRebuildWithAHorizon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newHorizonFixture(t, 5*time.Minute)
		for i := range 20 {
			b.later(time.Duration(i)*time.Minute + 30*time.Second)
		}
		for _, dry := range []bool{true, false} {
			r, err := b.engine.Rebuild(t.Context(), dry, store.Actor{Name: "test"})
			if err != nil || r.Open != 5 {
				t.Errorf("rebuild, dry %t: %+v, %v", dry, r, err)
			}
		}
		b.clean(15)
	})
}

// Each change of a due time across the watermark, both ways.
func TestDueTimesMoveAcrossTheHorizon(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newHorizonFixture(t, 5*time.Minute)
		by := store.Actor{Name: "test"}
		near, far := b.later(3*time.Minute), b.later(10*time.Minute)
		retried, canceled, elsewhere := b.later(10*time.Minute), b.later(10*time.Minute), b.later(10*time.Minute)
		reschedule := func(c store.Callback, d time.Duration) store.Callback {
			t.Helper()
			got, err := b.engine.Reschedule(t.Context(), store.DefaultProject, c.ID, nil, &d, by)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for range 2 {
			near = reschedule(near, 10*time.Minute)
			b.expect("one that was moved beyond", near, schedule.Absent)
			near = reschedule(near, 3*time.Minute)
			b.expect("one that was moved back", near, schedule.Delayed)
			far = reschedule(far, 20*time.Minute)
			b.expect("one that was moved beyond it", far, schedule.Absent)
		}
		far = reschedule(far, 4*time.Minute)
		b.expect("one that was moved within", far, schedule.Delayed)
		b.clean(3)
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, retried.ID, control.RetryRequest{}, by))
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, elsewhere.ID, control.RetryRequest{URL: "https://other.example/"}, by))
		if c, err := b.engine.Cancel(t.Context(), store.DefaultProject, canceled.ID, by); err != nil || c.Result != store.CancelDone {
			t.Fatalf("%+v, %v", c, err)
		}
		time.Sleep(100 * time.Millisecond)
		for _, id := range []string{retried.ID, elsewhere.ID} {
			if c := b.get(id); c.State != store.Succeeded {
				t.Errorf("an attempt that was asked for now: %s", c.State)
			}
		}
		b.punctual(10*time.Millisecond, near, far)
		time.Sleep(10 * time.Minute)
		b.clean(0)
		if n := len(b.receiver.seen()); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
}
