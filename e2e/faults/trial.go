package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A trial is a trial of one fault.
type trial struct{ *harness.Trial }

// newTrial prepares a trial without a backend.
func newTrial(t *testing.T, name string, full bool) *trial {
	return &trial{harness.NewTrial(t, name, full)}
}

// long is the value for the full size, or that for the short one.
func long[T any](tr *trial, full, short T) T {
	if tr.Full {
		return full
	}
	return short
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

// awaitEmptyIndex waits until Redis holds nothing any more: the verdict, which asks too, reads everything else each time.
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
