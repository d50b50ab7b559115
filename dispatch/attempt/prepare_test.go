package attempt

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A refused lease is parked at the due time that SQL says, dropped, or diverted if an earlier callback comes
// first. Each gives back its lock, its slot and its place in the lane.
func TestRefuse(t *testing.T) {
	t.Parallel()
	index := new(fakeIndex)
	rn, leases := runnerWithClaims(t, index, "parked", "dropped", "behind", "corrupt", "mine")
	byID := map[string]*schedule.Lease{}
	for i := range leases {
		byID[leases[i].ID] = &leases[i]
	}
	rn.refuse(t.Context(), byID, []store.Refusal{
		{ID: "parked", Due: 77, Retry: true},
		{ID: "dropped", Terminal: true},
		{ID: "unknown"},
		{ID: "behind", Behind: true, Due: 5},
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
		"parked token true false false 77 true",
		"dropped token false true false 0 false",
		"behind token false false true soon true false",
		"corrupt token false true false 0 false",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the index got\n%v, want\n%v", got, want)
	}
	for _, why := range []string{"parked", "dropped", "behind", "corrupt"} {
		if n := testutil.ToFloat64(rn.metrics.refused.WithLabelValues(why)); n != 1 {
			t.Errorf("%g are counted as %s", n, why)
		}
	}
	if len(index.released) != 4 || rn.slots.inUse() != 1 || len(rn.limits.shards[0].lanes) != 1 {
		t.Errorf("%d locks released, %d slots in use, %d lanes with leases", len(index.released),
			rn.slots.inUse(), len(rn.limits.shards[0].lanes))
	}
	rn.refuse(t.Context(), byID, nil)
	if len(index.settled) != 4 {
		t.Error("the index got settlements without a refusal")
	}
}

// Leases whose lock has another holder are diverted by their own timers. The others go on in their order. If
// the index failed, the lock may have been taken.
func TestLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		acquire   []schedule.LockReply
		err       error
		kept      []string
		uncertain int
	}{
		{"all", []schedule.LockReply{{Acquired: true}, {Acquired: true}, {Acquired: true}}, nil,
			[]string{"a", "free", "b", "c"}, 0},
		{"one is another's", []schedule.LockReply{{Acquired: true}, {}, {Acquired: true}}, nil,
			[]string{"a", "free", "c"}, 0},
		{"some shards answer", []schedule.LockReply{{Acquired: true}, {}}, fmt.Errorf("away"),
			[]string{"a", "free"}, 2},
	} {
		index := &fakeIndex{acquire: c.acquire, acquireErr: c.err}
		rn, leases := runnerWithClaims(t, index, "a", "free", "b", "c")
		leases[1].Lock = ""
		now := time.Now().UnixMilli()
		var kept []string
		for _, l := range rn.lock(t.Context(), leases, now) {
			kept = append(kept, l.ID)
		}
		diverted := len(leases) - len(c.kept)
		failing := rn.index.Failing()
		index.acquireErr = nil
		released := len(index.released)
		awaitCatchUp(t, rn)
		settled, uncertain := index.settled, len(index.released)-released
		if fmt.Sprint(kept) != fmt.Sprint(c.kept) || len(settled) != diverted ||
			rn.slots.inUse() != len(kept) || len(rn.limits.shards[0].lanes) != len(kept) {
			t.Errorf("%s: %v go on, %d are diverted, %d slots are in use", c.name, kept, len(settled),
				rn.slots.inUse())
		}
		for _, s := range settled {
			if s.Outcome != schedule.Divert || s.Token != "token" || s.Due < now+1000 || s.Due > now+3000 {
				t.Errorf("%s: the index got %+v", c.name, s)
			}
		}
		if uncertain != c.uncertain || failing != (c.err != nil) {
			t.Errorf("%s: %d locks may have been taken, index down %t", c.name, uncertain, failing)
		}
		if n := testutil.ToFloat64(rn.metrics.diverted.WithLabelValues("lock_conflict")); int(n) != diverted {
			t.Errorf("%s: %g lock conflicts are counted", c.name, n)
		}
	}
}

// A lease that is handed back is due after the delay, but not before its own due time.
func TestHandBack(t *testing.T) {
	t.Parallel()
	index := new(fakeIndex)
	rn, leases := runnerWithClaims(t, index, "due", "later")
	later := time.Now().Add(time.Hour).UnixMilli()
	leases[1].Due = later
	rn.handBack(t.Context(), leases, 10*time.Second)
	if len(index.settled) != 2 || !within(index.settled[0].Due, 10*time.Second, 10*time.Second) ||
		index.settled[1].Due != later {
		t.Fatalf("the index got %+v", index.settled)
	}
	for i, s := range index.settled {
		if s.Outcome != schedule.Divert || s.ID != leases[i].ID || s.Token != "token" {
			t.Errorf("the index got %+v", s)
		}
	}
	if len(index.released) != 2 || rn.slots.inUse() != 0 || len(rn.limits.shards[0].lanes) != 0 {
		t.Errorf("%d locks released, %d slots in use, %d lanes with leases", len(index.released),
			rn.slots.inUse(), len(rn.limits.shards[0].lanes))
	}
}

// A waiter's timer is one to three seconds at first, doubles each time, and is at most half a minute.
func TestConflictDelay(t *testing.T) {
	t.Parallel()
	for diverts, most := range map[int]time.Duration{
		0:  3 * time.Second,
		1:  6 * time.Second,
		2:  12 * time.Second,
		5:  30 * time.Second,
		40: 30 * time.Second,
	} {
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
			t.Errorf("after %d diverts: %s to %s, want them within %s and %s",
				diverts, shortest, longest, least, most)
		}
	}
}

// The index's clock is read in whole milliseconds, so a due time may come up to 1 ms sooner than the
// difference says. No claimed callback waits longer than the lookahead.
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
