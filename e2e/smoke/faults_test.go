package smoke

import (
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

// A dispatcher that is killed under load loses nothing, and sends again only what it had in flight.
func TestKilledUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, harness.BothEnds, func(t *testing.T, b harness.Backend) {
		tr := harness.NewTrial(t, "killed under load")
		tr.UseBackend(b)
		// One process runs at a time and commits its results before it claims again: it loses no claim in a
		// stall.
		tr.Times = harness.QuickTimes
		p := tr.Serve()
		load := tr.Load(40, tr.Mixed)
		awaitAccepted(tr)
		tr.Kill(p, 0)
		tr.Serve()
		awaitAccepted(tr)
		load.Finish()
		tr.Conclude(2*time.Minute, 2*time.Minute)
	})
}

// Redis that is emptied under load is rebuilt without a restart, and nothing is lost or sent twice.
func TestRedisIsEmptiedUnderLoad(t *testing.T) {
	harness.BlackBox(t)
	harness.OnEach(t, []harness.Combination{harness.PostgresRedis}, func(t *testing.T, b harness.Backend) {
		tr := harness.NewTrial(t, "emptied under load")
		tr.UseBackend(b)
		tr.Serve()
		load := tr.Load(40, tr.Mixed)
		awaitAccepted(tr)
		tr.Flush()
		tr.MarkFault()
		awaitAccepted(tr)
		load.Finish()
		tr.Settle(2 * time.Minute)
		// What was in flight when the index was lost may be adopted, and is never sent twice.
		tr.Verdict(judge.Bounds{Heal: 2 * time.Minute})
	})
}

// awaitAccepted waits until a hundred callbacks more have been accepted.
func awaitAccepted(tr *harness.Trial) {
	tr.Helper()
	harness.AtLeast(tr, time.Minute, "the load is handed over", tr.Count()+100, tr.Count)
}
