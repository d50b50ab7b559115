package faults

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// The whole matrix of faults: every trial ends with the judge, and the table at the end has a line for each fault.
func TestFaults(t *testing.T) {
	harness.BlackBox(t)
	full := testserver.Full()
	began := time.Now()
	t.Cleanup(func() { faultTable.took = time.Since(began) })
	places := semaphore.NewWeighted(2 * trialsAtOnce)
	for _, heavy := range []bool{false, true} {
		name := "together"
		if heavy {
			name = "alone"
		}
		t.Run(name, func(t *testing.T) {
			for _, f := range matrix() {
				combinations := f.short
				if full {
					combinations = f.full
				}
				if f.heavy != heavy || len(combinations) == 0 {
					continue
				}
				for _, c := range combinations {
					t.Run(f.id+"/"+strings.ReplaceAll(f.title, " ", "_")+"/"+c.String(), func(t *testing.T) {
						if !heavy {
							t.Parallel()
						}
						if err := places.Acquire(t.Context(), f.share()); err != nil {
							t.Fatal(err)
						}
						defer places.Release(f.share())
						runFault(t, &f, c, full)
					})
				}
			}
		})
	}
}

// runFault runs one trial. A trial that comes to no verdict is a failed line of the table.
func runFault(t *testing.T, f *fault, c harness.Combination, full bool) {
	tr := newTrial(t, f.id, full)
	t.Cleanup(func() { // the last one: a trial may fail after its verdict
		outcome, failures, remarks := tr.Result()
		if outcome == nil {
			t.Errorf("%s came to no verdict", f.id)
			outcome = &harness.TrialResult{Accepted: tr.Count()}
		}
		faultTable.enter(entered{fault: f, on: c.String(), TrialResult: *outcome, failed: t.Failed()}, failures, remarks)
	})
	if !f.apart {
		tr.UseBackend(harness.NewBackend(t, c))
	}
	tr.Backend.Name = c.String()
	f.run(tr)
}

func TestMain(m *testing.M) { harness.Main(m, faultTable.print) }
