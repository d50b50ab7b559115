package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is what tests of indexes need that outlive an engine, or have a horizon.

// within is a shared index with a horizon.
func within(index *memq.Index, horizon time.Duration) tweak {
	return func(o *dispatch.Options) { o.Schedule, o.Alone, o.Horizon = index, false, horizon }
}

// newHorizonFixture starts an engine with a horizon on an index in memory.
// It waits until the watermark stands.
func newHorizonFixture(t *testing.T, horizon time.Duration, tweaks ...tweak) *fixture {
	t.Helper()
	index := memq.New(memq.Options{})
	b := newFixture(t, always(200, ""), append([]tweak{within(index, horizon)}, tweaks...)...)
	b.index = index
	b.awaitMark(horizon)
	return b
}

// awaitMark waits until the index is loaded as far ahead as the horizon says.
func (b *fixture) awaitMark(horizon time.Duration) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		m, err := b.index.Watermark(b.t.Context(), 0)
		if horizon == 0 && err == nil && m.At == schedule.Forever && m.Loaded == schedule.Forever {
			return
		}
		if ahead := time.Duration(m.At-m.Now) * time.Millisecond; err == nil && m.At == m.Loaded && ahead <= horizon && ahead > horizon/2 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the watermark is %+v, %v; the horizon is %s", m, err, horizon)
		}
	}
}

// later accepts a callback that is due after d, and returns when the index has been told of it: what is told later than a change of the due time
// puts it in at the old one, from which a claim sends it back, so that its place says nothing until then.
func (b *fixture) later(d time.Duration) store.Callback {
	b.t.Helper()
	c := b.accept(accept.Submission{Delay: &d})
	synctest.Wait()
	return c
}

// place is where the index has a callback.
func (b *fixture) place(c store.Callback) schedule.Place {
	b.t.Helper()
	synctest.Wait()
	positions, err := b.index.Lookup(b.t.Context(), []schedule.Ref{{ID: c.ID, Lane: c.LaneID}})
	if err != nil {
		b.t.Fatal(err)
	}
	return positions[0].Place
}

func (b *fixture) expect(what string, c store.Callback, want schedule.Place) {
	b.t.Helper()
	if got := b.place(c); got != want {
		b.t.Errorf("%s is %s, want %s", what, got, want)
	}
}

// clean expects that SQL and the index agree, so many rows beyond the horizon apart.
func (b *fixture) clean(beyond int) {
	b.t.Helper()
	if d, err := b.engine.Verify(b.t.Context()); err != nil || !d.Clean() || d.Beyond != beyond {
		b.t.Errorf("verify: %+v, %v; want it clean, and %d beyond the horizon", d, err, beyond)
	}
}

// punctual waits for the callbacks to succeed, each as soon as it is due.
func (b *fixture) punctual(within time.Duration, list ...store.Callback) {
	b.t.Helper()
	for _, c := range list {
		done := b.await(c.ID, time.Until(time.UnixMilli(c.DueAt))+within)
		attempts := b.attempts(c.ID)
		if done.State != store.Succeeded || len(attempts) == 0 {
			b.t.Errorf("%s after %d attempts", done.State, len(attempts))
			continue
		}
		last := attempts[len(attempts)-1]
		if late := time.Duration(last.StartedAt-last.DueAt) * time.Millisecond; late < 0 || late > within {
			b.t.Errorf("sent %s after its due time, at most %s is allowed", late, within)
		}
	}
}

// metricOf is the value of a counter or a gauge without labels.
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

// sharedIndex is an index that outlives an engine, with generation and items that its SQL never heard of.
func sharedIndex(t *testing.T, generation int64, ids ...string) *memq.Index {
	t.Helper()
	index := memq.New(memq.Options{})
	index.SetGeneration(generation)
	if err := index.Reset(t.Context(), 0, generation); err != nil {
		t.Fatal(err)
	}
	if err := index.Open(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	var items []schedule.Item
	for i, id := range ids {
		items = append(items, schedule.Item{ID: id, Lane: 1, Due: time.Now().Add(time.Duration(i) * time.Hour).UnixMilli()})
	}
	if _, err := index.Ensure(t.Context(), items); err != nil {
		t.Fatal(err)
	}
	return index
}

func on(index *memq.Index, hold bool) tweak {
	return func(o *dispatch.Options) { o.Schedule, o.Alone, o.Hold = index, false, hold }
}

var strangers = []string{"01JD7Q2Z3K4M5N6P7R8S9TABC0", "01JD7Q2Z3K4M5N6P7R8S9TABC1", "01JD7Q2Z3K4M5N6P7R8S9TABC2"}

func public(ids []string) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = store.CallbackPrefix + id
	}
	return out
}

// apart returns an index whose clock is ahead of this process's by so much.
func apart(by time.Duration) *memq.Index {
	return memq.New(memq.Options{Now: func() time.Time { return time.Now().Add(by) }})
}
