package faults

import (
	"testing"

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
