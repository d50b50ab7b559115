package smoke

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
		awaitAccepted(tr, 100)
		p.Kill()
		tr.MarkFault()
		left := tr.UncommittedClaims()
		left.Take(time.Now(), 0)
		tr.Serve()
		awaitAccepted(tr, tr.Count()+100)
		load.Finish()
		tr.Settle(2 * time.Minute)
		left.Account()
		tr.Verdict(left.Bounds(2 * time.Minute))
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
		awaitAccepted(tr, 100)
		empty := func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }
		if err := b.EachRedis(t.Context(), empty); err != nil {
			t.Fatal(err)
		}
		tr.MarkFault()
		awaitAccepted(tr, tr.Count()+100)
		load.Finish()
		tr.Settle(2 * time.Minute)
		// What was in flight when the index was lost may be adopted, and is never sent twice.
		tr.Verdict(judge.Bounds{Heal: 2 * time.Minute})
	})
}

// awaitAccepted waits until n callbacks have been accepted in all.
func awaitAccepted(tr *harness.Trial, n int) {
	tr.Helper()
	harness.Eventually(tr, time.Minute, "the load is handed over", func() error {
		if got := tr.Count(); got < n {
			return fmt.Errorf("%d of %d are accepted", got, n)
		}
		return nil
	})
}
