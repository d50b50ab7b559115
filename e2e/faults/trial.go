package faults

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// A trial is one run of the program under a fault.
type trial struct{ *harness.Trial }

// newTrial prepares a trial without a backend.
func newTrial(t *testing.T, name string) *trial {
	return &trial{harness.NewTrial(t, name)}
}

// quickTimes let the work of a dead process be taken up after seconds instead of half a minute. The lease is
// longer than the timeout of Trial.Callback and the margin together, as with the usual times: so no attempt
// needs an extension.
const (
	quickTimes  = "lease=12s,margin=9s,sweep=2s,slack=2s,leader=4s"
	quickLease  = 12 * time.Second
	quickMargin = 9 * time.Second
)

// sized is the value for the size of the run: see package testserver.
func sized[T any](small, full, long T) T {
	switch {
	case testserver.Long():
		return long
	case testserver.Full():
		return full
	}
	return small
}

// atOnce bounds the tests and trials that run at the same time. They wait most of the time.
const atOnce = 8

var places = semaphore.NewWeighted(atOnce)

// mostlyWaits has a test run beside others that do nothing most of the time.
func mostlyWaits(t *testing.T) {
	t.Helper()
	harness.BlackBox(t)
	t.Parallel()
	if err := places.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { places.Release(1) })
}

// atLeast says whether a metric of a process has come to a value.
func atLeast(p *harness.Process, name string, want float64) error {
	got, err := p.Metric(name)
	if err == nil && got < want {
		err = fmt.Errorf("%s is %v, want %v", name, got, want)
	}
	return err
}

// sum adds up a metric over all processes that live.
func (tr *trial) sum(name string, parts ...string) float64 {
	tr.Helper()
	sum := 0.0
	for _, p := range tr.Alive() {
		v, err := p.Metric(name, parts...)
		if err != nil {
			tr.Fatal(err)
		}
		sum += v
	}
	return sum
}

// awaitEmptyIndex waits until Redis holds nothing any more: the verdict, which asks too, reads everything
// else each time.
func (tr *trial) awaitEmptyIndex(limit time.Duration) {
	tr.Helper()
	if tr.Backend.Redis == "" {
		return
	}
	harness.Eventually(tr, limit, "the index is empty", func() error {
		items, err := tr.Backend.ReadIndex(tr.Context())
		if err == nil && len(items) > 0 {
			err = fmt.Errorf("it holds %d", len(items))
		}
		return err
	})
}
