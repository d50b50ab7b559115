package memq

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const stepBack, gap = int64(schedule.StepBack / time.Millisecond), int64(schedule.ClockGap / time.Millisecond)

// number is an entry to test the heap with: it knows where it sits.
type number struct {
	at  int
	pos *int
}

var _ entry[number] = number{}

func (a number) before(b number) bool { return a.at < b.at }
func (a number) sit(i int)            { *a.pos = i }

func TestHeapKeepsItsOrderAndItsPlaces(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var h heap[number]
	for range 200_000 {
		switch n := rng.IntN(100); {
		case len(h) == 0 || n < 45:
			h.push(number{rng.IntN(1000), new(int)})
		case n < 65:
			i := rng.IntN(len(h))
			h.set(i, number{rng.IntN(1000), h[i].pos})
		case n < 80:
			i := rng.IntN(len(h))
			if want := h[i]; h.remove(i) != want {
				t.Fatalf("removing %d removed another", i)
			}
		default:
			least := slices.MinFunc(h, func(a, b number) int { return a.at - b.at })
			if got := h.remove(0); got.at != least.at {
				t.Fatalf("the head is %d, the least is %d", got.at, least.at)
			}
		}
		if len(h) > 60 {
			h = h[:0]
		}
		for i, e := range h {
			if *e.pos != i {
				t.Fatalf("the entry at %d says that it sits at %d", i, *e.pos)
			}
		}
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	ids := []string{
		"00000000000000000000000000", "00000000000000000000000001", "0000000000000000000000000Z", "00000000000000000000000010",
		"00000000000001000000000000", "0000000000000G000000000000", "0000000000001A000000000000", "01K0ABCDEFGHJKMNPQRSTVWXYZ",
		"7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
	}
	for i, id := range ids {
		k, ok := parseKey(id)
		if !ok {
			t.Fatalf("%s was refused", id)
		}
		for _, other := range ids[:i] {
			before, _ := parseKey(other)
			if before == k || (other < id) != (before.hi < k.hi || before.hi == k.hi && before.lo < k.lo) {
				t.Errorf("%s and %s: the keys %v and %v are not in their order", other, id, before, k)
			}
		}
	}
	for _, id := range []string{
		"", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0000000000000000000000000I", "0000000000000000000000000O",
		"000000000000U0000000000000", "0000000000000L000000000000", "01k0abcdefghjkmnpqrstvwxyz", "0000000000000000000000000\xff",
	} {
		if _, ok := parseKey(id); ok {
			t.Errorf("%q was taken", id)
		}
	}
}

// clocked returns an index and what sets its clock.
func clocked() (*Index, *atomic.Int64) {
	clock := new(atomic.Int64)
	clock.Store(1_800_000_000_000)
	return New(Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }}), clock
}

func id(n int) string { return fmt.Sprintf("01K%023d", n) }

func fill(t *testing.T, ix *Index, lane int64, from, n int, due int64) {
	t.Helper()
	items := make([]schedule.Item, n)
	for i := range items {
		items[i] = schedule.Item{ID: id(from + i), Lane: lane, Due: due}
	}
	if _, err := ix.Ensure(t.Context(), items); err != nil {
		t.Fatal(err)
	}
}

func take(t *testing.T, ix *Index, token string, most int) schedule.Claimed {
	t.Helper()
	c, err := ix.Claim(t.Context(), 0, schedule.ClaimRequest{
		Owner: "owner", Token: token, Max: most, MaxUncertain: most, MaxTimingOut: most, Lease: time.Minute, LaneLimit: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// goTo takes the clock to a time as it goes for an index in use: never far between two calls.
func goTo(t *testing.T, ix *Index, clock *atomic.Int64, at int64) {
	t.Helper()
	for clock.Load() < at {
		clock.Store(min(clock.Load()+gap, at))
		if _, err := ix.Stats(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatIsAJump: exactly at the limits the clock stands still, or time has passed; beyond them it has
// jumped.
func TestWhatIsAJump(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		by, now, left int64 // left of a lease of a minute
	}{
		{-stepBack, 0, 60_000}, {-stepBack - 1, -stepBack - 1, 60_000}, {-3600_000, -3600_000, 60_000},
		{gap, gap, 60_000 - gap}, {gap + 1, gap + 1, 60_000}, {3600_000, 3600_000, 60_000},
	} {
		ix, clock := clocked()
		start := clock.Load()
		fill(t, ix, 1, 0, 2, start)
		first := take(t, ix, "a", 1)
		clock.Add(c.by)
		again := take(t, ix, "a", 1)
		if again.Now != start+c.now || len(again.Leases) != 1 || again.Leases[0].Until-again.Now != c.left {
			t.Errorf("%d ms later by the clock it is %d, with %v; want %d later, and %d ms left", c.by, again.Now, again.Leases, c.now, c.left)
		}
		if len(first.Leases) != 1 || again.Leases[0].ID != first.Leases[0].ID {
			t.Errorf("the repeated claim has %v, the first had %v", again.Leases, first.Leases)
		}
	}
}

// TestTimesAreExact: to the millisecond, nothing is early and nothing is late.
func TestTimesAreExact(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	start := clock.Load()
	fill(t, ix, 1, 0, 1, start+1000)
	expect := func(at int64, leases, reaped int) {
		t.Helper()
		goTo(t, ix, clock, at)
		c := take(t, ix, fmt.Sprint("t", at), 1)
		if len(c.Leases) != leases || c.Reaped != reaped {
			t.Errorf("at %d ms: claimed %d and reaped %d, want %d and %d", at-start, len(c.Leases), c.Reaped, leases, reaped)
		}
	}
	expect(start+999, 0, 0)
	expect(start+1000, 1, 0)
	expect(start+60_999, 0, 0)
	end := start + 61_000
	goTo(t, ix, clock, end)
	c := take(t, ix, "end", 1)
	if c.Reaped != 1 {
		t.Fatalf("reaped %d at the lease's end", c.Reaped)
	}
	if len(c.Leases) == 0 {
		expect(c.Next-1, 0, 0)
		expect(c.Next, 1, 0)
	}
	fill(t, ix, 2, 1, 1, 0)
	set(t, ix, schedule.LaneSetting{Lane: 2, PausedUntil: end + 5000, Version: 1})
	expect(end+4999, 0, 0)
	expect(end+5000, 1, 0)
}

func TestRaisedLaneLimitCountsAtOnce(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	fill(t, ix, 1, 0, 10, clock.Load())
	for limit, want := range []int{1: 1, 2: 1, 3: 1, 4: 1, 5: 0} {
		if limit == 0 {
			continue
		}
		c, err := ix.Claim(t.Context(), 0, schedule.ClaimRequest{
			Owner: "owner", Token: fmt.Sprint(limit), Max: 9, MaxUncertain: 9, Lease: time.Minute, LaneLimit: limit,
		})
		if err != nil || len(c.Leases) != want {
			t.Errorf("with a limit of %d another %d were leased, %v; want %d", limit, len(c.Leases), err, want)
		}
	}
}

func TestZeroOptionsUseTheWallClock(t *testing.T) {
	t.Parallel()
	ix := New(Options{})
	before := time.Now().UnixMilli()
	c := take(t, ix, "a", 1)
	if after := time.Now().UnixMilli(); c.Now < before || c.Now > after {
		t.Errorf("now is %d, not between %d and %d", c.Now, before, after)
	}
}

// TestAuditRepairs damages one thing at a time. Afterwards every item must still be there, be in one place and
// be claimable, and lanes must count their leases.
func TestAuditRepairs(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(ix *Index, it *item){
		"an item that says it is elsewhere":   func(_ *Index, it *item) { it.place = it.place%3 + 1 },
		"an item that says it is absent":      func(_ *Index, it *item) { it.place = uint8(schedule.Absent) },
		"an item that sits at another place":  func(_ *Index, it *item) { it.pos = 77_777 },
		"an item that lost its place":         func(ix *Index, it *item) { h, _ := ix.heapOf(it); h.remove(int(it.pos)) },
		"an item that is not found by its id": func(ix *Index, it *item) { delete(ix.items, it.key) },
		"a lease that does not count, and lost its place": func(ix *Index, it *item) {
			ix.setCounted(&schedule.LeaseRef{Ref: schedule.Ref{ID: it.id}, Token: it.token}, false)
			h, _ := ix.heapOf(it)
			h.remove(int(it.pos))
		},
		"a lane that counts too many leases":    func(_ *Index, it *item) { it.lane.inflight += 3 },
		"a lane that counts less than no lease": func(_ *Index, it *item) { it.lane.inflight = -9 },
	} {
		for _, place := range []schedule.Place{schedule.Delayed, schedule.Ready, schedule.Leased} {
			t.Run(name+" when "+place.String(), func(t *testing.T) {
				t.Parallel()
				ix, clock := clocked()
				fill(t, ix, 1, 0, 300, clock.Load())
				take(t, ix, "a", 8)
				fill(t, ix, 1, 300, 50, clock.Load()+1000)
				i := slices.IndexFunc(ix.shelf.slots, func(it *item) bool { return it.is(place) })
				damage(ix, ix.shelf.slots[i])
				if auditAll(t, ix) == 0 {
					t.Fatalf("the audit repaired nothing")
				}
				if n := auditAll(t, ix); n != 0 {
					t.Fatalf("a second audit repaired %d more", n)
				}
				clock.Add(3600_000)
				drainAll(t, ix, clock, 350)
			})
		}
	}
}

func auditAll(t *testing.T, ix *Index) (repaired int) {
	t.Helper()
	for cursor := ""; ; {
		page, err := ix.Audit(t.Context(), 0, cursor)
		if err != nil {
			t.Fatal(err)
		}
		repaired += page.Repaired
		if cursor = page.Next; cursor == "" {
			return repaired
		}
	}
}

// drainAll claims and acknowledges until nothing is left, and expects each of n items once.
func drainAll(t *testing.T, ix *Index, clock *atomic.Int64, n int) {
	t.Helper()
	seen := make(map[string]bool)
	for round := 0; len(seen) < n; round++ {
		c := take(t, ix, fmt.Sprint("drain-", round), 256)
		if len(c.Leases) == 0 {
			if c.Next == 0 {
				t.Fatalf("%d of %d items came", len(seen), n)
			}
			goTo(t, ix, clock, c.Next)
			continue
		}
		var settlements []schedule.Settlement
		for _, l := range c.Leases {
			if seen[l.ID] {
				t.Fatalf("%s came twice", l.ID)
			}
			seen[l.ID] = true
			settlements = append(settlements, schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack})
		}
		if _, err := ix.Settle(t.Context(), settlements); err != nil {
			t.Fatal(err)
		}
	}
	if len(ix.items)+len(ix.delay)+len(ix.leases)+ix.ready != 0 {
		t.Fatalf("%d records are left", len(ix.items))
	}
	for number, l := range ix.lanes {
		if l.inflight != 0 {
			t.Errorf("lane %d counts %d leases, and has none", number, l.inflight)
		}
	}
}

// TestNothingIsKept: what is done with leaves only its lane, and that for a day.
func TestNothingIsKept(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	for lane := range int64(50) {
		fill(t, ix, lane+1, int(lane)*200, 200, 0)
	}
	drainAll(t, ix, clock, 10_000)
	if len(ix.shelf.free) != len(ix.shelf.slots) {
		t.Errorf("%d of %d slots are free", len(ix.shelf.free), len(ix.shelf.slots))
	}
	auditAll(t, ix)
	if len(ix.lanes) != 50 {
		t.Errorf("%d lanes are known right after, want 50", len(ix.lanes))
	}
	goTo(t, ix, clock, clock.Load()+24*3600_000)
	auditAll(t, ix)
	if len(ix.lanes) != 0 {
		t.Errorf("%d lanes are known a day after", len(ix.lanes))
	}
	fill(t, ix, 1, 0, 10, 0)
	drainAll(t, ix, clock, 10)
}

func TestLocksAreForgotten(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	acquire := func(lock string, n int) {
		t.Helper()
		_, err := ix.Acquire(t.Context(), []schedule.LockRequest{
			{Lock: lock, ID: id(n), Lane: 1, Token: "t", Until: clock.Load() + 1000},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for n := range 50 {
		acquire(fmt.Sprint("alone-", n), n)
		acquire("shared", n)
	}
	if stats, err := ix.Stats(t.Context(), 0); err != nil || stats.Locks != 51 || stats.Waiters != 49 {
		t.Fatalf("%d locks and %d waiters, %v; want 51 and 49", stats.Locks, stats.Waiters, err)
	}
	clock.Add(1000)
	take(t, ix, "a", 1)
	if stats, err := ix.Stats(t.Context(), 0); err != nil || len(ix.locks) != 1 || stats.Waiters != 49 {
		t.Errorf("%d locks and %d waiters after their end, %v; want those of the shared one", len(ix.locks), stats.Waiters, err)
	}
	goTo(t, ix, clock, clock.Load()+waiterRest)
	take(t, ix, "b", 1)
	if len(ix.locks) != 0 || len(ix.endings) != 0 {
		t.Errorf("%d locks, %d endings a day after", len(ix.locks), len(ix.endings))
	}
}

func TestSilentOwnersAreForgotten(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	for n := range schedule.MaxOwners + 50 {
		clock.Add(1)
		_, err := ix.Claim(t.Context(), 0, schedule.ClaimRequest{Owner: fmt.Sprint(n), Token: "t", Lease: time.Minute, LaneLimit: 1})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(ix.claims) != schedule.MaxOwners || ix.claims["0"] != nil || ix.claims[fmt.Sprint(schedule.MaxOwners)] == nil {
		t.Errorf("%d owners are known, want the last %d", len(ix.claims), schedule.MaxOwners)
	}
}

// TestHintsOnlyForWhatIsEarlier: with the clock still, exactly what the last reply did not foretell is
// hinted.
func TestHintsOnlyForWhatIsEarlier(t *testing.T) {
	t.Parallel()
	ix, clock := clocked()
	hinted := func() bool {
		select {
		case <-ix.Hints():
			return true
		default:
			return false
		}
	}
	at := func(seconds int64) int64 { return clock.Load() + seconds*1000 }
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"a first head", func() { fill(t, ix, 1, 0, 1, at(100)) }, true},
		{"a later one", func() { fill(t, ix, 1, 1, 1, at(200)) }, false},
		{"an earlier one", func() { fill(t, ix, 1, 2, 1, at(50)) }, true},
		{"one after a claim that announced 50", func() { take(t, ix, "a", 8); fill(t, ix, 1, 3, 1, at(60)) }, false},
		{"one before that", func() { fill(t, ix, 1, 4, 1, at(40)) }, true},
		{"the same again", func() { fill(t, ix, 1, 4, 1, at(40)) }, false},
		{"a pause", func() { set(t, ix, schedule.LaneSetting{Lane: 1, PausedUntil: at(500), Version: 1}) }, false},
		{"the pause's end with nothing ready", func() { set(t, ix, schedule.LaneSetting{Lane: 1, Version: 2}) }, false},
		{"a full lane", func() { fill(t, ix, 2, 10, 6, at(0)); hinted(); take(t, ix, "b", 100) }, false},
		{"room in it", func() { settle(t, ix, id(10), 2, "b") }, true},
		{"more room", func() { take(t, ix, "c", 0); settle(t, ix, id(11), 2, "b") }, false},
	} {
		step.do()
		if got := hinted(); got != step.want {
			t.Errorf("%s: hinted %t, want %t", step.what, got, step.want)
		}
	}
}

func set(t *testing.T, ix *Index, s schedule.LaneSetting) {
	t.Helper()
	if err := ix.SetLanes(t.Context(), []schedule.LaneSetting{s}); err != nil {
		t.Fatal(err)
	}
}

func settle(t *testing.T, ix *Index, id string, lane int64, token string) {
	t.Helper()
	replies, err := ix.Settle(t.Context(), []schedule.Settlement{
		{Item: schedule.Item{ID: id, Lane: lane}, Token: token, Outcome: schedule.Ack},
	})
	if err != nil || replies[0] != schedule.Applied {
		t.Fatalf("settling %s: %v, %v", id, replies, err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(Options{}).Run(ctx) }()
	select {
	case err := <-done:
		t.Fatalf("run returned %v before its context ended", err)
	default:
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("run returned %v", err)
	}
}
