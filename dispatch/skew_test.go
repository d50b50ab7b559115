package dispatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A process whose clock is ten minutes off sends and retries on time all the same: the index's clock is the one that counts.
// A process that finds the index empty fills it by the index's clock. Its own clock makes no callback late.
func TestAProcessWithAWrongClock(t *testing.T) {
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			path := databasePath(t)
			held := startFixture(t, path, always(200, ""), on(apart(by), true))
			time.Sleep(10 * time.Second)
			overdue := held.accept(accept.Submission{})
			held.stop()
			time.Sleep(time.Minute)
			start := time.Now()
			b := startFixture(t, path, inTurn(500, 200), on(apart(by), false))
			b.await(overdue.ID, 2*time.Minute)
			if took := b.receiver.seen()[0].at.Sub(start); took > 5*time.Second {
				t.Errorf("with a clock %s apart an overdue callback was sent %s after the start", by, took)
			}
			start = time.Now()
			c := b.accept(tiers(15 * time.Second))
			if late := time.UnixMilli(c.DueAt).Sub(start.Add(by)); late < 0 || late > time.Second {
				t.Errorf("with a clock %s apart it is due %s after now", by, late)
			}
			done := b.await(c.ID, time.Minute)
			hits := b.receiver.seen()[2:]
			if done.State != store.Succeeded || len(hits) != 2 {
				t.Fatalf("%s after %d attempts", done.State, len(hits))
			}
			first, wait := hits[0].at.Sub(start), hits[1].at.Sub(hits[0].at)
			if first > time.Second || wait < 15*time.Second || wait > 16*time.Second {
				t.Errorf("with a clock %s apart it was sent after %s, and again after %s", by, first, wait)
			}
		})
	}
}
