package attempt

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A committed result becomes the settlement of its lease.
func TestSettlement(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		state         store.State
		charge, row   bool
		retry, forced bool // of the lease
		want          schedule.Settlement
	}{
		{name: "retried", state: store.Scheduled, want: schedule.Settlement{Outcome: schedule.Reschedule}},
		{name: "retried, counted", state: store.Scheduled, charge: true, row: true,
			want: schedule.Settlement{Outcome: schedule.Reschedule, Item: schedule.Item{Retry: true}}},
		{name: "retried, was a retry", state: store.Scheduled, retry: true,
			want: schedule.Settlement{Outcome: schedule.Reschedule, Item: schedule.Item{Retry: true}}},
		{name: "retried by hand, without an attempt", state: store.Scheduled, forced: true,
			want: schedule.Settlement{Outcome: schedule.Reschedule, Item: schedule.Item{Forced: true}}},
		{name: "retried by hand, with an attempt", state: store.Scheduled, forced: true, row: true,
			want: schedule.Settlement{Outcome: schedule.Reschedule}},
		{name: "dead", state: store.Dead, charge: true, row: true,
			want: schedule.Settlement{Outcome: schedule.Bury}},
		{name: "succeeded", state: store.Succeeded, charge: true, row: true,
			want: schedule.Settlement{Outcome: schedule.Ack}},
		{name: "canceled", state: store.Canceled, want: schedule.Settlement{Outcome: schedule.Ack}},
	} {
		b := &ended{signal: schedule.Unanswered, hold: 9, lease: &schedule.Lease{Token: "t"},
			result: store.Result{Charge: c.charge}}
		b.lease.Item = schedule.Item{ID: "x", Lane: 3, Due: 1, Retry: c.retry, Forced: c.forced}
		if c.row {
			b.result.Attempt = new(store.Attempt)
		}
		want := c.want
		want.ID, want.Lane, want.Due, want.Token, want.Signal, want.Won, want.HoldUntil = "x", 3, 1, "t",
			schedule.Unanswered, true, 9
		if c.state == store.Scheduled {
			want.Due = 5
		}
		if got := settlement(b, &store.Committed{Won: true, State: c.state, DueAt: 5}); got != want {
			t.Errorf("%s: %+v, want %+v", c.name, got, want)
		}
	}
}

// The index gets a settlement for results that won, and for those whose callback was ended by other means
// during the attempt. Results that SQL could not take now are tried again; results that it can never take are
// not.
func TestRecord(t *testing.T) {
	t.Parallel()
	rn := idleRunner(t, &pastAttempts{}, memq.New(memq.Options{}))
	s := newSettler(rn)
	batch := make([]*ended, 5)
	for i := range batch {
		batch[i] = new(ended)
		batch[i].lease = &schedule.Lease{Item: schedule.Item{ID: string(rune('a' + i)), Lane: 1}}
		batch[i].result.ID = batch[i].lease.ID
	}
	away := errors.Join(errors.New("no room"), store.ErrUnavailable)
	next := &store.OpenRow{ID: "next"}
	settlements, left, err := s.record(nil, batch, []store.Committed{
		{Won: true, State: store.Succeeded, Next: next},
		{State: store.Canceled},  // ended by other means
		{State: store.Scheduled}, // another claim has it
		{Err: errors.New("a row that cannot be written")},
		{Err: away},
	})
	if len(settlements) != 2 {
		t.Fatalf("the index got %+v", settlements)
	}
	if first, second := &settlements[0], &settlements[1]; first.ID != "a" || !first.Won ||
		second.ID != "b" || second.Won {
		t.Errorf("the index got %+v", settlements)
	}
	if len(left) != 1 || left[0].result.ID != "e" || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("%d are left, %v", len(left), err)
	}
	if batch[0].nextInOrder != next {
		t.Errorf("next is %+v", batch[0].nextInOrder)
	}
	won := []store.Committed{{Won: true, State: store.Succeeded, Next: next}}
	settlements, left, err = s.record(settlements, left, won)
	if len(settlements) != 3 || len(left) != 0 || err != nil || batch[4].nextInOrder != next {
		t.Errorf("tried again: the settlements are %+v, %d are left, %v, next is %+v",
			settlements, len(left), err, batch[4].nextInOrder)
	}
}

func TestDueSoon(t *testing.T) {
	t.Parallel()
	const now = 1000
	for _, c := range []struct {
		outcome schedule.Outcome
		due     int64
		want    bool
	}{
		{schedule.Reschedule, now + 20, true},
		{schedule.Reschedule, now + 21, false},
		{schedule.Divert, now, true},
		{schedule.Divert, now + 21, false},
		{schedule.Ack, now, false},
		{schedule.Bury, now, false},
	} {
		list := []schedule.Settlement{{Outcome: schedule.Ack},
			{Outcome: c.outcome, Item: schedule.Item{Due: c.due}}}
		if got := dueSoon(list, now); got != c.want {
			t.Errorf("outcome %v, due in %d ms: %t", c.outcome, c.due-now, got)
		}
	}
}

// A batch ends when it is full, at once with an urgent result, or settleWait after its first result. Further
// results that have gathered by then are part of it.
func TestGather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name   string
			queued int
			urgent bool
			want   int
			took   time.Duration
		}{
			{"one", 1, false, 1, settleWait},
			{"an urgent one", 1, true, 1, 0},
			{"one less than a batch", settleBatch - 1, false, settleBatch - 1, settleWait},
			{"a batch", settleBatch, false, settleBatch, 0},
			{"more than are committed together", maxCommit + 5, false, maxCommit, 0},
		} {
			s := newSettler(&Runner{slots: newSlots(1)})
			for range c.queued {
				s.results <- ended{urgent: c.urgent}
			}
			began := time.Now()
			if batch := s.gather(t.Context()); len(batch) != c.want || time.Since(began) != c.took {
				t.Errorf("%s: %d after %s, want %d after %s", c.name, len(batch), time.Since(began), c.want,
					c.took)
			}
		}
		s := newSettler(&Runner{slots: newSlots(1)})
		time.AfterFunc(settleWait/2, func() { s.results <- ended{} })
		s.results <- ended{}
		began := time.Now()
		if batch := s.gather(t.Context()); len(batch) != 2 || time.Since(began) != settleWait {
			t.Errorf("one that comes meanwhile: %d after %s", len(batch), time.Since(began))
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if batch := s.gather(over); len(batch) != 0 {
			t.Errorf("at the end: %d", len(batch))
		}
		s.results <- ended{}
		if batch := s.gather(over); len(batch) != 1 {
			t.Errorf("what is left at the end: %d", len(batch))
		}
	})
}

// A callback whose last wait was cut short by its expiry is due at the expiry. Claimed then, it ends and is
// not sent, even if this process's clock is a little behind the index's.
func TestDueAtItsExpiryIsExpired(t *testing.T) {
	rn := Runner{clock: new(clock.Clock)}
	at := time.Now().Add(5 * time.Millisecond).UnixMilli()
	cb := &store.Stamped{Callback: store.Callback{ID: "x", DueAt: at, ExpiresAt: at, ClaimsWithoutResult: 1}}
	got := rn.try(t.Context(), &ready{cb: cb, lease: &schedule.Lease{}, claimed: time.Now()}).result
	if got.State != store.Dead || got.Reason != store.Expired || got.Attempt != nil {
		t.Errorf("got %s/%s, attempt %v", got.State, got.Reason, got.Attempt)
	}
}
