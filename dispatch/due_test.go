package dispatch_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Attempts are made at their due times by the index's clock.

// TestWholeLadder makes the ten attempts of the default policy over 25 h 13 m 15 s. Each must start at its
// due time, to the millisecond. Without the full size every wait is a 60th: a day of an idle engine takes
// five seconds, and a minute under the race detector.
func TestWholeLadder(t *testing.T) {
	with(always(500, "no")).run(t, func(b *fixture) {
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
		id := b.accept(asked).ID
		b.ends("dead exhausted 10", 26*time.Hour, id)
		b.sent(10, "in all")
		due, rows := start, b.attempts(id)
		for i, h := range b.hits("") {
			a := rows[i]
			b.is("when it came after its due time", h.at.Sub(due), time.Duration(0))
			b.is("what came", []string{h.id, h.number}, []string{id, strconv.Itoa(i + 1)})
			b.is("next due, but for the last one", a.NextDueAt != 0, i < 9)
			b.check(a.Number == i+1 && a.Class == store.ClassHTTP5xx && a.Charged && a.Lateness == 0,
				"attempt %d: %+v", i+1, a)
			if i < 9 {
				due = due.Add(tiers[i])
			}
		}
		if !short {
			b.is("the ladder took", due.Sub(start), 25*time.Hour+13*time.Minute+15*time.Second)
		}
	})
}
