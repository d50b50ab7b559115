package dispatch_test

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// When attempts are made: at their due times, by the clock that counts.

// The whole default ladder, to the millisecond: ten attempts over 25 h 13 m 15 s, none early and none late.
// Outside the full size every wait is a 60th: a day of an idle engine takes five seconds, and a minute under
// the race detector.
func TestTheWholeLadder(t *testing.T) {
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

// What a stamp takes is over when a callback is due: it is sent then, neither before nor after.
func TestStampsAreNotWaitedForWhenDue(t *testing.T) {
	with(inTurn(500, 500, 200), struck(slow(12*time.Millisecond), "Stamp")).run(t, func(b *fixture) {
		due := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		dueOf := func(i int) time.Time { return due.Add(time.Duration(i) * 3 * time.Millisecond) }
		var ids []string
		for i := range 20 {
			ids = append(ids, b.accept(at(dueOf(i))).ID)
		}
		for i, id := range ids {
			b.await(id, time.Hour)
			rows := b.attempts(id)
			b.is("attempts", len(rows), 3)
			b.is("due", rows[0].DueAt, dueOf(i).UnixMilli())
			for _, a := range rows {
				between(b, "ms from the due time to the attempt", a.StartedAt-a.DueAt, 0, 1)
			}
		}
		for i, h := range b.hits("")[:len(ids)] {
			b.check(!h.at.Before(dueOf(i)), "request %d came at %s, before %s", i, h.at, dueOf(i))
		}
	})
}

// When a callback is due is said by SQL: what the index thinks does not make it early.
func TestWhatTheIndexClaimsTooEarlyIsHeld(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		due := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		c := b.accept(at(due))
		synctest.Wait() // the index has it
		b.is("moved", must(b.index.Move(b.Context(), []schedule.Movement{{
			Ref: schedule.Ref{ID: c.ID, Lane: c.LaneID}, Due: due.Add(-20 * time.Millisecond).UnixMilli(),
		}})), []schedule.Moved{schedule.MovedIt})
		b.await(c.ID, time.Minute)
		between(b, "sent after its due time", b.hits("")[0].at.Sub(due), 0, time.Millisecond)
	})
}

// A lane of one at a time is not held up by what it has claimed before its due time.
func TestOneAtATimeKeepsToTheOrderOfDueTimes(t *testing.T) {
	with(takes(4*time.Millisecond), laneConcurrency(1)).run(t, func(b *fixture) {
		start := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		var ids, came []string
		for i := range 50 {
			ids = append(ids, b.accept(at(start.Add(time.Duration(i)*5*time.Millisecond))).ID)
		}
		b.ends("succeeded", time.Minute, ids...)
		hits := b.hits("")
		for _, h := range hits {
			came = append(came, h.id)
		}
		b.is("order", came, ids)
		between(b, "50 that were due within 250 ms, and take 4 ms each, took", hits[49].at.Sub(start), 0,
			400*time.Millisecond)
	})
}

// A process whose clock is ten minutes off sends and retries on time all the same: the index's clock is the
// one that counts. A process that finds the index empty fills it by the index's clock. Its own clock makes no
// callback late.
func TestAProcessWithAWrongClock(t *testing.T) {
	for _, by := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		t.Run(by.String(), func(t *testing.T) {
			apart := func(o *options) { // an index whose clock is ahead of this process's by so much
				on(memq.New(memq.Options{Now: func() time.Time { return time.Now().Add(by) }}))(o)
			}
			with(nil, apart, onHold).run(t, func(b *fixture) {
				time.Sleep(10 * time.Second)
				overdue := b.accept(accept.Submission{}).ID
				b.stop()
				time.Sleep(time.Minute)
				start := time.Now()
				b = b.restart(inTurn(500, 200), apart)
				b.await(overdue, 2*time.Minute)
				between(b, "an overdue callback was sent after the start", b.hits("")[0].at.Sub(start), 0,
					5*time.Second)
				start = time.Now()
				c := b.accept(tiers(15 * time.Second))
				between(b, "due after now", time.UnixMilli(c.DueAt).Sub(start.Add(by)), 0, time.Second)
				b.ends("succeeded", time.Minute, c.ID)
				b.sent(4, "in all")
				hits := b.hits("")[2:]
				between(b, "sent after", hits[0].at.Sub(start), 0, time.Second)
				between(b, "sent again after", hits[1].at.Sub(hits[0].at), 15*time.Second, 16*time.Second)
			})
		})
	}
}
