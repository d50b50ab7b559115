package attempt

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
	index := new(fakeIndex)
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
		"parked token true false false 77 true", "dropped token false true false 0 false",
		"behind token false false true soon true false",
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
		index := &fakeIndex{acquire: c.acquire, acquireErr: c.err}
		e, leases := claimedBy(t, index, "a", "free", "b", "c")
		leases[1].Lock = ""
		now := time.Now().UnixMilli()
		var kept []string
		for _, l := range e.lock(t.Context(), leases, now) {
			kept = append(kept, l.ID)
		}
		diverted := len(leases) - len(c.kept)
		failing := e.index.Failing()
		index.acquireErr = nil
		released := len(index.released)
		answersAgain(t, e)
		told, unsure := index.settled, len(index.released)-released
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
		if unsure != c.unsure || failing != (c.err != nil) {
			t.Errorf("%s: %d locks may have been taken, index down %t", c.name, unsure, failing)
		}
		if n := testutil.ToFloat64(e.metrics.diverted.WithLabelValues("lock_conflict")); int(n) != diverted {
			t.Errorf("%s: %g lock conflicts are counted", c.name, n)
		}
	}
}

// Leases that are handed back are due no earlier than after the delay, nor than they were.
func TestHandBack(t *testing.T) {
	t.Parallel()
	index := new(fakeIndex)
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
			t.Errorf("after %d diverts: %s to %s, want them within %s and %s", diverts, shortest, longest,
				least,
				most)
		}
	}
}

// By an index's clock that read so much when it was asked, a due time has surely come a part of a
// millisecond later; and nothing that was claimed is held for longer than the lookahead.
func TestDueFrom(t *testing.T) {
	t.Parallel()
	sent := time.Now()
	for _, c := range []struct {
		due  int64
		want time.Time
	}{
		{999, time.Time{}}, {1000, time.Time{}}, {1001, sent}, {1010, sent.Add(9 * time.Millisecond)},
		{1000 + claimLookahead.Milliseconds() + 500, sent.Add(claimLookahead - time.Millisecond)},
	} {
		if got := dueFrom(sent, 1000, c.due); !got.Equal(c.want) {
			t.Errorf("due at %d: %s after it was asked, want %s", c.due, got.Sub(sent), c.want.Sub(sent))
		}
	}
}
