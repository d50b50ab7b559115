package attempt

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// A limitEngine is one process with one lane of an index on memq, as runClaims, launch and settler drive
// laneLimits.
type limitEngine struct {
	*testing.T
	ix      *memq.Index
	w       *laneLimits
	running map[string]ready
}

func newLimitEngine(t *testing.T) *limitEngine {
	ix := memq.New(memq.Options{})
	ctx := context.Background()
	ix.SetGeneration(1)
	items := make([]schedule.Item, 60)
	for i := range items {
		items[i] = schedule.Item{ID: fmt.Sprintf("01K%023d", i), Lane: 1, Due: 1}
	}
	err := errors.Join(ix.Reset(ctx, 0, 1), ix.Open(ctx, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ix.Ensure(ctx, items); err != nil {
		t.Fatal(err)
	}
	h := &limitEngine{T: t, ix: ix, w: newLaneLimits(ix.ShardOf, 1), running: map[string]ready{}}
	// The lane answers: one is claimed, attempted and settled.
	c := h.claim("warm", 1)
	h.w.endClaim(0, c.Leases, false)
	for i := range c.Leases {
		r := h.launch(&c.Leases[i])
		out := h.end(r)
		h.settle(out)
	}
	return h
}

// claim is Engine.claim.
func (h *limitEngine) claim(token string, most int) schedule.Claimed {
	h.Helper()
	ended, prefetch := h.w.beginClaim(0)
	c, err := h.ix.Claim(context.Background(), 0, schedule.ClaimRequest{
		Owner: "one", Token: token, Max: most, MaxUncertain: most, MaxTimingOut: most, Lease: time.Hour, LaneLimit: sideLimit,
		Ended: ended, Prefetch: prefetch,
	})
	if err != nil {
		h.Fatal(err)
	}
	h.Logf("claim %s names %v, prefetch %v: %d leases", token, ended, prefetch, len(c.Leases))
	return c
}

func (h *limitEngine) claimed(c schedule.Claimed, most int) []ready {
	_, back := h.w.endClaim(0, c.Leases, len(c.Leases) < most)
	if len(back) > 0 {
		h.Fatal("put back")
	}
	var all []ready
	for i := range c.Leases {
		all = append(all, h.launch(&c.Leases[i]))
	}
	return all
}

func (h *limitEngine) launch(l *schedule.Lease) ready {
	r := ready{l: l}
	if h.w.start(&r, true) == begins {
		h.running[l.ID] = r
	}
	return r
}

func (h *limitEngine) end(r ready) ended {
	out := ended{lease: r.l, signal: schedule.Answered}
	delete(h.running, r.l.ID)
	if next, _, _ := h.w.end(&out, time.Millisecond); next != nil {
		h.running[next.l.ID] = *next
	}
	return out
}

func (h *limitEngine) settle(batch ...ended) {
	s := settlementsOf(batch)
	h.w.addSuccessors(s)
	for i := range s {
		h.Logf("settle %s, next %v", s[i].ID, s[i].Next)
	}
	if _, err := h.ix.Settle(context.Background(), s); err != nil {
		h.Fatal(err)
	}
	h.w.resultsKnown(batch)
}

func (h *limitEngine) check(when string) {
	h.Helper()
	states, err := h.ix.LaneStates(context.Background(), []int64{1})
	if err != nil {
		h.Fatal(err)
	}
	h.Logf("%s: %d on the wire, %d count", when, len(h.running), states[0].InFlight)
	if len(h.running) > states[0].InFlight {
		h.Errorf("%s: %d are on the wire, and %d count", when, len(h.running), states[0].InFlight)
	}
}

// fill has counted attempts on the wire and some prefetched ones that wait. It returns those with a place.
func (h *limitEngine) fill() (placed []ready) {
	c := h.claim("fill", sideLimit)
	placed = h.claimed(c, sideLimit)
	if len(h.running) != sideLimit {
		h.Fatalf("%d run", len(h.running))
	}
	// One ends, so that the lane's time is known, and its place is taken.
	c = h.claim("ahead", 8)
	h.claimed(c, 8)
	if n := h.w.shards[0].lanes[1]; len(n.waiting) == 0 {
		out := h.end(placed[0])
		c = h.claim("ahead2", 8)
		h.claimed(c, 8)
		h.settle(out)
		placed = placed[1:]
		n = h.w.shards[0].lanes[1]
		if len(n.waiting) == 0 {
			h.Fatalf("nothing waits: %+v", n)
		}
	}
	h.check("filled")
	return placed
}

// A claim whose reply is lost is repeated with its token. The index gives the batch again, and counts by what
// the repetition names, which has ended since.
func TestARepeatedClaimNamesWhatEndedSince(t *testing.T) {
	h := newLimitEngine(t)
	placed := h.fill()
	h.claim("lost", 2) // executed; its reply is lost
	h.w.failClaim(0)
	out := h.end(placed[0]) // one that waits has its place
	h.check("one has ended")
	c := h.claim("lost", 2) // runClaims: the token is new only after an answer
	h.claimed(c, 2)
	h.check("claim repeated")
	h.settle(out)
	h.check("settled")
}

// After one commit that failed the leases mostly live: the settlements say who has the places of those that
// have ended.
func TestAResetWhileLeasesLive(t *testing.T) {
	h := newLimitEngine(t)
	placed := h.fill()
	outs := []ended{h.end(placed[0]), h.end(placed[1])}
	h.check("two have ended")
	h.w.reset() // settler.commit after SQL was away for 250 ms
	h.settle(outs...)
	h.check("settled after reset")
}

// clearSuspect hands a copy of its lease back when its stamp fails.
func TestADropOfACopy(t *testing.T) {
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	ahead := c.claim(0, 1)
	c.end(running[0], answered)
	suspects := []schedule.Lease{*ahead[0].l}
	if c.w.start(&ready{l: &suspects[0]}, false) != begins {
		t.Fatal("it does not begin")
	}
	handedBack := []schedule.Lease{suspects[0]} // stampFailed(ctx, err, s, []schedule.Lease{*l})
	c.w.drop(&handedBack[0])
	if n := c.w.shards[0].lanes[1]; len(n.uncounted) != 0 || n.free() != 1 {
		t.Errorf("%d do not count, %d places are free; want 0 and 1", len(n.uncounted), n.free())
	}
}

// A lease that is handed back is dropped after the index has settled it: by then the same callback may be
// leased again.
func TestADropComesAfterALaterLease(t *testing.T) {
	c := newLaneCourse(t)
	c.start(c.claim(4, 0), begins)
	old := c.claim(1, 0)[0] // its stamp fails, and the index is told; the reply takes longer than handBackDelay
	c.w.beginClaim(0)
	l := schedule.Lease{Item: old.l.Item, Token: "later", Ahead: true, Full: true}
	c.w.endClaim(0, []schedule.Lease{l}, false)
	c.w.drop(old.l)
	if got := c.w.start(&ready{l: &l}, true); got != waits {
		t.Errorf("a prefetched lease, with no place free: %v, want %v (waits)", got, waits)
	}
}

// The successor of a lease that is never settled, for its result lost the fence, is not that of a later lease
// of the same callback, which may be in another lane: the index would refuse the whole call.
func TestASuccessorIsOfItsLeaseAlone(t *testing.T) {
	h := newLimitEngine(t)
	placed := h.fill()
	lost := h.end(placed[0]) // its result loses: it was edited meanwhile
	h.claim("fails", 2)
	h.w.failClaim(0)
	later := schedule.Lease{Item: lost.lease.Item, Token: "later"}
	later.Lane = 2 // the edit moved it to another destination
	s := settlementsOf([]ended{{lease: &later}})
	h.w.addSuccessors(s)
	if _, err := h.ix.Settle(context.Background(), s); err != nil {
		t.Errorf("settle: %v", err)
	}
}

// What waits is put back when no attempt and no claim is left, though a place be free: that happens in a
// drain, if a result has lost the fence, so that no settlement comes.
func TestNothingWaitsForEver(t *testing.T) {
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	ahead := c.start(c.claim(0, 2), waits)
	c.w.beginClaim(0) // the last claim is under way; the drain begins
	next, _, _ := c.end(running[0], answered)
	if next == nil || next.l != ahead[0].l {
		t.Fatal("the first does not begin")
	}
	var back []ready
	var batch []ended
	for _, r := range append(running[1:], *next) { // interrupted
		_, b, _ := c.end(r, ended{})
		back = append(back, b...)
		batch = append(batch, ended{lease: r.l})
	}
	c.w.addSuccessors(settlementsOf(batch)) // all but that of running[0], whose result loses: no settlement
	back = append(back, c.w.resultsKnown(append(batch, ended{lease: running[0].l, signal: schedule.Answered}))...)
	_, b := c.w.endClaim(0, nil, true)
	back = append(back, b...)
	n := c.w.shards[0].lanes[1]
	if len(back) == 0 {
		t.Errorf("%d wait, %d have a place, %d are free, none is under way, and nothing is put back", len(n.waiting), n.placed(), n.free())
	}
}

// A damaged record may be claimed of a shard that is not its lane's.
func TestALeaseOfAnotherShard(t *testing.T) {
	w := newLaneLimits(func(lane int64) int { return int(lane % 2) }, 2)
	w.beginClaim(0)
	l := schedule.Lease{Item: schedule.Item{ID: "x", Lane: 1}}
	w.endClaim(0, []schedule.Lease{l}, true)
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("panic: %v", p)
		}
	}()
	w.start(&ready{l: &l}, true)
}

// What a claim brings of a lane that is stopped is put back, so it names nothing of that.
func TestAStoppedLaneNamesNothing(t *testing.T) {
	c := newLaneCourse(t)
	running := c.start(c.claim(8, 0), begins)
	c.end(running[0], ended{signal: schedule.TimedOut})
	for _, r := range running[1:6] {
		c.end(r, answered)
	}
	if got := c.named(); got != "" {
		t.Errorf("a claim makes room in a lane that is stopped: it names%s", got)
	}
}
