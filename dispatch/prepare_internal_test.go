package dispatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// What SQL does not let be claimed is parked at the due time that SQL says, or dropped; what waits for
// its turn is diverted. All give back lock, slot and lane.
func TestRefuse(t *testing.T) {
	t.Parallel()
	index := new(askedIndex)
	e, leases := claimedBy(t, index, "parked", "dropped", "behind", "corrupt", "mine")
	byID := map[string]*schedule.Lease{}
	for i := range leases {
		byID[leases[i].ID] = &leases[i]
	}
	e.refuse(t.Context(), byID, []store.Refusal{
		{ID: "parked", Due: 77, Retry: true}, {ID: "dropped", Terminal: true}, {ID: "unknown"}, {ID: "behind",
			Behind: true, Due: 5},
		{ID: "corrupt", Terminal: true, Corrupt: true},
	})
	var got []string
	for _, s := range index.settled {
		due := fmt.Sprint(s.Due)
		if s.ID == "behind" {
			due = fmt.Sprint("soon ", within(s.Due, time.Second, 3*time.Second))
		}
		got = append(got, fmt.Sprint(s.ID, " ", s.Token, " ", s.Outcome == schedule.Reschedule, " ",
			s.Outcome == schedule.Ack, " ", s.Outcome == schedule.Divert, " ", due, " ", s.Retry))
	}
	want := []string{
		"parked token true false false 77 true", "dropped token false true false 0 false", "behind token false false true soon true false",
		"corrupt token false true false 0 false",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the index is told\n%v, want\n%v", got, want)
	}
	for _, why := range []string{"parked", "dropped", "behind", "corrupt"} {
		if n := testutil.ToFloat64(e.metrics.refused.WithLabelValues(why)); n != 1 {
			t.Errorf("%g are counted as %s", n, why)
		}
	}
	if len(index.released) != 4 || e.slots.inUse() != 1 || len(e.limits.shards[0].lanes) != 1 {
		t.Errorf("%d locks released, %d slots in use, %d lanes with leases", len(index.released),
			e.slots.inUse(), len(e.limits.shards[0].lanes))
	}
	e.refuse(t.Context(), byID, nil)
	if len(index.settled) != 4 {
		t.Error("the index is told of nothing")
	}
}

// Leases whose lock is another's are diverted by their own timers, and the others go on in their order.
// Where the index failed, the lock may have been taken all the same.
func TestLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		acquire []schedule.LockReply
		err     error
		kept    []string
		unsure  int
	}{
		{"all", []schedule.LockReply{{Acquired: true}, {Acquired: true}, {Acquired: true}}, nil,
			[]string{"a", "free", "b", "c"}, 0},
		{"one is another's", []schedule.LockReply{{Acquired: true}, {}, {Acquired: true}}, nil,
			[]string{"a", "free", "c"}, 0},
		{"some shards answer", []schedule.LockReply{{Acquired: true}, {}}, fmt.Errorf("away"),
			[]string{"a", "free"}, 2},
	} {
		index := &askedIndex{acquire: c.acquire, acquireErr: c.err}
		e, leases := claimedBy(t, index, "a", "free", "b", "c")
		leases[1].Lock = ""
		now := time.Now().UnixMilli()
		var kept []string
		for _, l := range e.lock(t.Context(), leases, now) {
			kept = append(kept, l.ID)
		}
		diverted := len(leases) - len(c.kept)
		told := append(index.settled, e.trouble.settlements...) // at once, or when the index answers again
		if fmt.Sprint(kept) != fmt.Sprint(c.kept) || len(told) != diverted || e.slots.inUse() != len(kept) ||
			len(e.limits.shards[0].lanes) != len(kept) {
			t.Errorf("%s: %v go on, %d are diverted, %d slots are in use", c.name, kept, len(told),
				e.slots.inUse())
		}
		for _, s := range told {
			if s.Outcome != schedule.Divert || s.Token != "token" || s.Due < now+1000 || s.Due > now+3000 {
				t.Errorf("%s: told %+v", c.name, s)
			}
		}
		if len(e.trouble.locks) != c.unsure || e.trouble.indexDown.Load() != (c.err != nil) {
			t.Errorf("%s: %d locks may have been taken, index down %t", c.name, len(e.trouble.locks),
				e.trouble.indexDown.Load())
		}
		if n := testutil.ToFloat64(e.metrics.diverted.WithLabelValues("lock_conflict")); int(n) != diverted {
			t.Errorf("%s: %g lock conflicts are counted", c.name, n)
		}
	}
}

// Whose turn it is after a release is asked for until one can be moved: those that are gone are
// forgotten, those that are held are passed over.
func TestUnlock(t *testing.T) {
	t.Parallel()
	index := &askedIndex{
		waiters: []schedule.Waiter{{ID: "gone", Lane: 1}, {ID: "held", Lane: 1}, {ID: "next", Lane: 1},
			{ID: "after", Lane: 1}},
		moves: []schedule.Moved{schedule.MovedGone, schedule.MovedHeld, schedule.MovedIt},
	}
	e, leases := claimedBy(t, index, "a")
	if !e.unlock(t.Context(), &leases[0]) || len(index.released) != 3 || len(index.moved) != 3 {
		t.Fatalf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	last := index.released[2]
	if last.Lock != "lock-a" || last.ID != "a" || last.Token != "token" ||
		fmt.Sprint(last.Gone, last.Skip) != "[gone] [held]" {
		t.Errorf("the last release is %+v", last)
	}
	if m := index.moved[2]; m.ID != "next" || m.Lane != 1 || !within(m.Due, 0, 0) {
		t.Errorf("moved %+v", m)
	}

	index = new(askedIndex) // no waiter
	e, leases = claimedBy(t, index, "a", "b")
	if !e.unlock(t.Context(), &leases[0]) || len(index.released) != 1 || len(index.moved) != 0 {
		t.Errorf("%d releases, %d moves", len(index.released), len(index.moved))
	}
	leases[0].Lock = ""
	if !e.unlock(t.Context(), &leases[0]) || len(index.released) != 1 {
		t.Error("what has no lock is released")
	}
	leases[0].Lock = "lock-a"
	index.err = fmt.Errorf("away")
	before := index.releases
	e.unlock(t.Context(), &schedule.Lease{}, &leases[0], &leases[1])
	if n := index.releases - before; n != 1 || len(e.trouble.locks) != 2 {
		t.Errorf("an index that does not answer is asked %d times; %d locks are remembered",
			n, len(e.trouble.locks))
	}
	e.unlock(t.Context(), &leases[0]) // as when many are put back one after the other
	if n := index.releases - before; n != 1 || len(e.trouble.locks) != 3 {
		t.Errorf("an index that is known not to answer: asked %d times in all; %d locks are remembered",
			n, len(e.trouble.locks))
	}
}

// Leases that are handed back are due no earlier than after the delay, nor than they were.
func TestHandBack(t *testing.T) {
	t.Parallel()
	index := new(askedIndex)
	e, leases := claimedBy(t, index, "due", "later")
	later := time.Now().Add(time.Hour).UnixMilli()
	leases[1].Due = later
	e.handBack(t.Context(), leases, 10*time.Second)
	if len(index.settled) != 2 || !within(index.settled[0].Due, 10*time.Second, 10*time.Second) ||
		index.settled[1].Due != later {
		t.Fatalf("told %+v", index.settled)
	}
	for i, s := range index.settled {
		if s.Outcome != schedule.Divert || s.ID != leases[i].ID || s.Token != "token" {
			t.Errorf("told %+v", s)
		}
	}
	if len(index.released) != 2 || e.slots.inUse() != 0 || len(e.limits.shards[0].lanes) != 0 {
		t.Errorf("%d locks released, %d slots in use, %d lanes with leases", len(index.released),
			e.slots.inUse(), len(e.limits.shards[0].lanes))
	}
}

// What the index did not hear of is remembered, and with it what it should hold: what goes on, not what
// has ended.
func TestSettleIndexRemembers(t *testing.T) {
	t.Parallel()
	list := []schedule.Settlement{
		{Item: schedule.Item{ID: "a"}, Outcome: schedule.Reschedule}, {Item: schedule.Item{ID: "b"},
			Outcome: schedule.Divert},
		{Item: schedule.Item{ID: "c"}, Outcome: schedule.Ack}, {Item: schedule.Item{ID: "d"},
			Outcome: schedule.Bury},
	}
	index := &askedIndex{err: fmt.Errorf("away")}
	e, _ := claimedBy(t, index)
	for asked := range 2 { // the second time the index is known to be silent, and is not asked
		if e.settleIndex(t.Context(), list) {
			t.Error("it was heard")
		}
		n := asked + 1
		if len(index.settled) != len(list) || len(e.trouble.settlements) != n*len(list) ||
			len(e.trouble.items) != n*2 {
			t.Errorf("%d told, %d remembered, %d to be ensured", len(index.settled), len(e.trouble.settlements),
				len(e.trouble.items))
		}
	}
	index = new(askedIndex)
	e, _ = claimedBy(t, index)
	many := make([]schedule.Settlement, schedule.MaxBatch+1)
	if !e.settleIndex(t.Context(), many) || len(index.settled) != len(many) ||
		len(e.trouble.settlements) != 0 {
		t.Errorf("%d of %d told", len(index.settled), len(many))
	}
	index.err = fmt.Errorf("away")
	if e.settleIndex(t.Context(), many) {
		t.Error("it was heard")
	}
}

// A waiter's own timer: one to three seconds at first, twice as long each time, half a minute at most.
func TestConflictDelay(t *testing.T) {
	t.Parallel()
	for diverts, most := range map[int]time.Duration{0: 3 * time.Second, 1: 6 * time.Second,
		2: 12 * time.Second, 5: 30 * time.Second, 40: 30 * time.Second} {
		least := min(most/3, 30*time.Second)
		if diverts >= 5 {
			least = most
		}
		shortest, longest := time.Hour, time.Duration(0)
		for range 200 {
			d := conflictDelay(diverts)
			shortest, longest = min(shortest, d), max(longest, d)
		}
		if shortest < least || longest > most || diverts < 5 && longest-shortest < most/3 {
			t.Errorf("after %d diverts: %s to %s, want them within %s and %s", diverts, shortest, longest, least,
				most)
		}
	}
}

// By an index's clock that read so much when it was asked, a due time has surely come a part of a
// millisecond later; and nothing that was claimed is held for longer than the lead.
func TestDueFrom(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	for _, c := range []struct {
		due  int64
		want time.Time
	}{
		{999, time.Time{}}, {1000, time.Time{}}, {1001, sent}, {1010, sent.Add(9 * time.Millisecond)},
		{1000 + claimLead.Milliseconds() + 500, sent.Add(claimLead - time.Millisecond)},
	} {
		if got := dueFrom(sent, 1000, c.due); !got.Equal(c.want) {
			t.Errorf("due at %d: %s after it was asked, want %s", c.due, got.Sub(sent), c.want.Sub(sent))
		}
	}
}
