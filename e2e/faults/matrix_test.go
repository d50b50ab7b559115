package faults

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// The matrix of faults: every trial ends with the judge, and the table at the end has a line for each fault.
func TestFaults(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel() // its trials run beside other tests that mostly wait
	for _, f := range matrix() {
		if !f.is(heavy) {
			runFault(t, &f)
		}
	}
}

// The faults that load the machine, one after another.
func TestHeavyFaults(t *testing.T) {
	harness.BlackBox(t)
	for _, f := range matrix() {
		if f.is(heavy) {
			runFault(t, &f)
		}
	}
}

// runFault runs a fault on each of its combinations. A trial that comes to no verdict is a failed line of the
// table.
func runFault(t *testing.T, f *fault) {
	for _, c := range f.on {
		t.Run(f.id+"/"+strings.ReplaceAll(f.title, " ", "_")+"/"+c.String(), func(t *testing.T) {
			if !f.is(heavy) {
				mostlyWaits(t)
			}
			began := time.Now()
			tr := newTrial(t, f.id)
			t.Cleanup(func() { // the last one: a trial may fail after its verdict
				outcome, failures, remarks := tr.Result()
				if outcome == nil {
					t.Errorf("%s came to no verdict", f.id)
					outcome = &harness.TrialResult{Accepted: tr.Count()}
				}
				line := entered{fault: f, on: c.String(), TrialResult: *outcome, took: time.Since(began),
					failed: t.Failed()}
				faultTable.enter(line, failures, remarks)
			})
			if f.is(quick) {
				tr.Times = harness.QuickTimes
			}
			if !f.is(apart) {
				tr.UseBackend(harness.NewBackend(t, c))
			}
			tr.Backend.Name = c.String()
			f.run(tr)
		})
	}
}

func TestMain(m *testing.M) {
	// More than there are places: a test that holds one may have subtests, which must not wait for others'
	// places.
	if err := flag.Set("test.parallel", "64"); err != nil {
		panic(err)
	}
	harness.Main(m, faultTable.print)
}
