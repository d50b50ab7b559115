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
			began := time.Now()
			tr := prepared(t, f.id, f.how, c)
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
			f.run(tr)
		})
	}
}

// runOn is a test of one trial beside the matrix, on each of the combinations.
func runOn(t *testing.T, title string, h how, on []harness.Combination, run func(*trial)) {
	t.Helper()
	harness.BlackBox(t)
	if !h.is(heavy) {
		t.Parallel()
	}
	for _, c := range on {
		t.Run(c.String(), func(t *testing.T) { run(prepared(t, title, h, c)) })
	}
}

// prepared is a trial on a combination. Unless it is heavy it waits for its place.
func prepared(t *testing.T, title string, h how, c harness.Combination) *trial {
	t.Helper()
	if !h.is(heavy) {
		mostlyWaits(t)
	}
	tr := newTrial(t, title)
	if h.is(quick) {
		tr.Times = harness.QuickTimes
	}
	if !h.is(apart) {
		tr.UseBackend(harness.NewBackend(t, c))
	}
	tr.Backend.Name = c.String()
	return tr
}

// unlimited is a heavy trial whose processes have as many connections to SQL as usual: it is alone on its server.
func unlimited(run func(*trial)) func(*trial) {
	return func(tr *trial) {
		tr.Args = nil
		run(tr)
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
