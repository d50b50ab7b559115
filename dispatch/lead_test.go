package dispatch_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What a stamp takes is over when a callback is due: it is sent then, neither before nor after.
func TestStampsAreNotWaitedForWhenDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := new(faults)
		sql.set(slow(12*time.Millisecond), "Stamp")
		b := newFixture(t, inTurn(500, 500, 200), faultySQL(sql))
		due := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		var ids []string
		for i := range 20 {
			ids = append(ids, b.accept(dueAt(due.Add(time.Duration(i)*3*time.Millisecond))).ID)
		}
		for i, id := range ids {
			b.await(id, time.Hour)
			rows := b.attempts(id)
			if len(rows) != 3 {
				t.Fatalf("%s has %d attempts, want 3", id, len(rows))
			}
			if want := due.Add(time.Duration(i) * 3 * time.Millisecond).UnixMilli(); rows[0].DueAt != want {
				t.Errorf("%s was due at %d, want %d", id, rows[0].DueAt, want)
			}
			for _, a := range rows {
				if late := a.StartedAt - a.DueAt; late < 0 || late > 1 {
					t.Errorf("attempt %d of %s began %d ms after its due time", a.Number, id, late)
				}
			}
		}
		hits := b.receiver.seen()
		for i := range ids {
			if at := due.Add(time.Duration(i) * 3 * time.Millisecond); hits[i].at.Before(at) {
				t.Errorf("request %d came at %s, before %s", i, hits[i].at, at)
			}
		}
	})
}

// When a callback is due is said by SQL: what the index thinks does not make it early.
func TestWhatTheIndexClaimsTooEarlyIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, always(200, ""))
		due := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		c := b.accept(dueAt(due))
		synctest.Wait() // the index has it
		moved, err := b.index.Move(t.Context(), []schedule.Movement{{
			Ref: schedule.Ref{ID: c.ID, Lane: c.LaneID}, Due: due.Add(-20 * time.Millisecond).UnixMilli(),
		}})
		if err != nil || moved[0] != schedule.MovedIt {
			t.Fatalf("moved %v: %v", moved, err)
		}
		b.await(c.ID, time.Minute)
		if at := b.receiver.seen()[0].at; at.Before(due) || at.After(due.Add(time.Millisecond)) {
			t.Errorf("sent at %s, want its due time %s", at, due)
		}
	})
}

// A lane of one at a time is not held up by what it has claimed before its due time.
func TestOneAtATimeKeepsToTheOrderOfDueTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, func(_ context.Context, _ hit, _ int) (*http.Response, error) {
			time.Sleep(4 * time.Millisecond)
			return answer(200, ""), nil
		}, func(o *dispatch.Options) { o.LaneConcurrency = 1 })
		start := time.Now().Add(10 * time.Second).Truncate(time.Millisecond)
		var ids []string
		for i := range 50 {
			ids = append(ids, b.accept(dueAt(start.Add(time.Duration(i)*5*time.Millisecond))).ID)
		}
		for _, id := range ids {
			b.await(id, time.Minute)
		}
		hits := b.receiver.seen()
		for i, h := range hits {
			if h.id != store.CallbackPrefix+ids[i] {
				t.Fatalf("request %d is of %s, want that of %s", i, h.id, ids[i])
			}
		}
		if took := hits[len(hits)-1].at.Sub(start); took > 400*time.Millisecond {
			t.Errorf("50 callbacks, due within 250 ms and 4 ms each, were sent within %s", took)
		}
	})
}
