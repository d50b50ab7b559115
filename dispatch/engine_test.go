package dispatch_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The whole default ladder, to the millisecond: ten attempts over 25 h 13 m 15 s, none early and none late. Outside the full
// size every wait is a 60th: a day of an idle engine takes five seconds, and a minute under the race detector.
func TestTheWholeLadder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(500, "no"))
		tiers, asked := schedule.Payment(), accept.Submission{}
		short := underRace || !testserver.Full()
		if short {
			for i := range tiers {
				tiers[i] /= 60
			}
			asked.PolicyGiven, asked.Policy = true, accept.PaymentPolicy()
			asked.Policy.Tiers = tiers
		}
		start := time.Now()
		c := b.accept(asked)
		done := b.await(c.ID, 26*time.Hour)
		if done.State != store.Dead || done.Reason != store.Exhausted || done.AttemptCount != 10 {
			t.Errorf("got %s/%s after %d attempts, want dead/exhausted after 10", done.State, done.Reason, done.AttemptCount)
		}
		hits := b.receiver.seen()
		if len(hits) != 10 {
			t.Fatalf("the receiver saw %d requests, want 10", len(hits))
		}
		due := start
		for i, h := range hits {
			if !h.at.Equal(due) {
				t.Errorf("attempt %d came %v after its due time", i+1, h.at.Sub(due))
			}
			if h.id != store.CallbackPrefix+c.ID || h.number != strconv.Itoa(i+1) {
				t.Errorf("attempt %d: webhook-id %s, webhook-attempt %s", i+1, h.id, h.number)
			}
			if i < 9 {
				due = due.Add(tiers[i])
			}
		}
		if total := hits[9].at.Sub(start); !short && total != 25*time.Hour+13*time.Minute+15*time.Second {
			t.Errorf("the ladder took %v", total)
		}
		for i, a := range b.attempts(c.ID) {
			if a.Number != i+1 || a.Class != store.ClassHTTP5xx || !a.Charged || a.Lateness != 0 {
				t.Errorf("attempt row %d: number %d, class %s, charged %v, lateness %v", i+1, a.Number, a.Class, a.Charged, a.Lateness)
			}
			if wantNext := i < 9; (a.NextDueAt != 0) != wantNext {
				t.Errorf("attempt row %d: next due %d", i+1, a.NextDueAt)
			}
		}
	})
}
