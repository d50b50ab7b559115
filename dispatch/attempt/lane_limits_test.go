package attempt

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A laneCourse takes the limits of one lane through claims, attempts and results that a test ends when it
// likes.
type laneCourse struct {
	t *testing.T
	w *laneLimits
	n int
}

func newLaneCourse(t *testing.T) *laneCourse {
	return &laneCourse{t: t, w: newLaneLimits(func(int64) int { return 0 }, 1)}
}

// claim ends a claim that brings so many leases that count, and so many that were prefetched, of a lane that
// is full.
func (c *laneCourse) claim(counted, ahead int) []ready {
	sent := time.Now()
	c.w.beginClaim(0)
	leases := make([]schedule.Lease, counted+ahead)
	for i := range leases {
		c.n++
		leases[i] = schedule.Lease{Item: schedule.Item{ID: fmt.Sprint(c.n), Lane: 1}, Ahead: i >= counted, Full: true}
	}
	c.w.endClaim(0, leases, false)
	stamped := make([]ready, len(leases))
	for i := range leases {
		stamped[i] = ready{l: &leases[i], claimed: sent}
	}
	return stamped
}

// start has stamped ones begin, each of which must become that.
func (c *laneCourse) start(stamped []ready, want turn) []ready {
	c.t.Helper()
	for i := range stamped {
		if got := c.w.start(&stamped[i], true); got != want {
			c.t.Fatalf("%s of %d that were stamped: %v, want %v", stamped[i].l.ID, len(stamped), got, want)
		}
	}
	return stamped
}

// end ends an attempt like that, and returns what begins in its place, what is put back and which shard is to
// claim.
func (c *laneCourse) end(r ready, out ended) (*ready, []ready, int) {
	out.lease = r.l
	return c.w.end(&out, time.Millisecond)
}

var answered = ended{signal: schedule.Answered}

// named are the leases that the next claim names; each with its successor, if it has one.
func (c *laneCourse) named() (text string) {
	named, _ := c.w.beginClaim(0)
	for _, e := range named {
		text += " " + e.ID
		if e.Next.ID != "" {
			text += "→" + e.Next.ID
		}
	}
	return text
}

// Only an answer without a hold frees a place before its result is settled. Of a lane that is stopped nothing
// is named: what that brought would go back.
func TestWhatDoesNotAnswerKeepsItsPlace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, named string
		out         ended
	}{
		{"no answer", " 2", ended{signal: schedule.Unanswered}},
		{"not attempted", " 2", ended{}},
		{"a time-out", "", ended{signal: schedule.TimedOut}},
		{"a hold", "", ended{signal: schedule.Answered, hold: 1}},
	} {
		c := newLaneCourse(t)
		running := c.start(c.claim(4, 0), begins)
		c.end(running[0], test.out)
		c.end(running[1], answered)
		if got := c.named(); got != test.named {
			t.Errorf("%s: the claim names%s, want%s", test.name, got, test.named)
		}
	}
}

// Where nothing more is ready nothing is named, and nothing is ever put back.
func TestATrickleNamesNothing(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	c.w.beginClaim(0)
	l := schedule.Lease{Item: schedule.Item{ID: "x", Lane: 1}}
	c.w.endClaim(0, []schedule.Lease{l}, true)
	r := ready{l: &l}
	c.start([]ready{r}, begins)
	if next, back, claim := c.end(r, answered); next != nil || len(back) != 0 || claim != -1 || c.named() != "" {
		t.Errorf("next %v, put back %v, claim %d", next, back, claim)
	}
	c.w.endClaim(0, nil, true)
	if len(c.w.shards[0].lanes) != 0 {
		t.Error("the lane is remembered")
	}
}

// What was prefetched begins in the places of those that end. A claim names those, and who has their places.
func TestPrefetchedBeginInThePlacesOfOthers(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	ahead := c.claim(0, 4)
	if got := c.w.start(&ahead[0], false); got != goesBack {
		t.Errorf("one that must not wait: %v", got)
	}
	c.start(ahead[:2], waits)
	next, _, _ := c.end(running[0], answered)
	if next == nil || next.l != ahead[0].l {
		t.Fatalf("in its place begins %+v, want the first that waits", next)
	}
	c.end(running[1], answered)
	c.end(running[2], answered)
	// A place is free: one that is still being stamped will have it.
	if got := c.named(); got != " 1→5 2→6 3→7" && got != " 1→5 2→6 3→8" {
		t.Errorf("the claim names%s", got)
	}
	c.w.endClaim(0, nil, true)
	n := c.w.shards[0].lanes[1]
	if len(n.stamping) != 1 || n.placed() != 4 || n.free() != 0 {
		t.Errorf("%d are being stamped without a place, %d have one, %d are free", len(n.stamping), n.placed(), n.free())
	}
}

// A claim that is not answered may have been executed or not: the settlement of what it named says again who
// follows.
func TestAClaimThatFailsIsMadeUpForBySettlements(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	c.start(c.claim(0, 1), waits)
	c.end(running[0], answered)
	if got := c.named(); got != " 1→5" {
		t.Fatalf("the claim names%s", got)
	}
	c.w.failClaim(0)
	s := []schedule.Settlement{{Item: running[0].l.Item}, {Item: running[1].l.Item}}
	c.w.addSuccessors(s)
	if s[0].Next.ID != "5" || s[1].Next.ID != "" {
		t.Errorf("the settlements name %v and %v", s[0].Next, s[1].Next)
	}
}

// A claim that was answered says who follows; a shard that goes back in time may have forgotten it.
func TestAShardThatGoesBackIsToldAgainWhoFollows(t *testing.T) {
	t.Parallel()
	for _, back := range []bool{false, true} {
		c := newLaneCourse(t)
		running := c.start(c.claim(4, 0), begins)
		c.start(c.claim(0, 1), waits)
		c.end(running[0], answered)
		c.named()
		c.w.endClaim(0, nil, false)
		if back {
			c.w.rolledBack(0)
		}
		s := []schedule.Settlement{{Item: running[0].l.Item}}
		c.w.addSuccessors(s)
		if named := s[0].Next.ID != ""; named != back {
			t.Errorf("the shard went back: %t; the settlement names %v", back, s[0].Next)
		}
	}
}

// Successors are remembered until the results of those that they follow are known, whether or not there is a
// settlement.
func TestSuccessorsAreForgotten(t *testing.T) {
	t.Parallel()
	for _, answer := range []func(*laneCourse){
		func(c *laneCourse) { c.w.endClaim(0, nil, false) },
		func(c *laneCourse) { c.w.failClaim(0) },
		func(c *laneCourse) { c.w.failClaim(0); c.w.reset() },
	} {
		c := newLaneCourse(t)
		running := c.start(c.claim(4, 0), begins)
		c.start(c.claim(0, 1), waits)
		c.end(running[0], answered)
		c.named()
		answer(c)
		c.w.resultsKnown([]ended{{lease: running[0].l, signal: schedule.Answered}}) // it has lost its fence
		if n := len(c.w.shards[0].successors); n != 0 {
			t.Errorf("%d successors are remembered", n)
		}
	}
}

// What was claimed before the index knew of a hold would break it, however late it is stamped or gets a slot.
func TestWhatWasClaimedBeforeAHoldGoesBack(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	before := c.claim(2, 0)
	c.start(before[:1], begins) // and has to wait for a slot
	hold := ended{signal: schedule.Answered, hold: 1, lease: running[0].l}
	c.end(running[0], hold)
	if !c.w.stopped(&before[0]) {
		t.Error("it begins though its lane is stopped")
	}
	c.w.resultsKnown([]ended{hold})
	if !c.w.stopped(&before[0]) {
		t.Error("it begins though its lane is held")
	}
	c.start(before[1:], goesBack)
	c.start(c.claim(1, 0), begins) // the index gave it in spite of the hold: it was forced
}

// A result that is settled before a claim could name it names who follows.
func TestASettlementNamesWhoFollows(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	c.start(c.claim(0, 1), waits)
	c.end(running[0], answered)
	c.end(running[1], answered)
	s := []schedule.Settlement{{Item: running[0].l.Item}, {Item: running[1].l.Item}}
	c.w.addSuccessors(s)
	if s[0].Next.ID != "" || s[1].Next.ID != "5" {
		t.Errorf("the settlements name %v and %v, want the last that counts for it to name 5", s[0].Next, s[1].Next)
	}
}

// What waits is put back when its lane is stopped, and when nothing is left that could free a place.
func TestWhatCannotBeginIsPutBack(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	ahead := c.claim(0, 3)
	c.start(ahead[:2], waits)
	stop := ended{signal: schedule.TimedOut, lease: running[0].l}
	if _, back, _ := c.end(running[0], stop); len(back) != 2 {
		t.Errorf("%d are put back when the lane is stopped, want 2", len(back))
	}
	c.start(ahead[2:], goesBack)
	c.w.drop(ahead[2].l)
	c.w.resultsKnown([]ended{stop})
	c.start(c.claim(0, 1), waits)
	var back []ready
	for _, r := range running[1:] {
		_, more, _ := c.end(r, ended{})
		back = append(back, more...)
	}
	if len(back) != 1 {
		t.Errorf("%d are put back when nothing is left to wait for, want 1", len(back))
	}

	c = newLaneCourse(t)
	running = c.start(c.claim(4, 0), begins)
	c.start(c.claim(0, 1), waits)
	c.w.beginClaim(0)
	for _, r := range running {
		if _, back, _ := c.end(r, ended{}); len(back) > 0 {
			t.Error("it is put back though a claim may bring it a place")
		}
	}
	if back := c.w.failClaim(0); len(back) != 1 {
		t.Errorf("%d are put back when the claim has failed, want 1", len(back))
	}
}

// What was prefetched before its lane was paused or limited is put back.
func TestAChangedSettingPutsBackThePrefetched(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(4, 0), begins)
	c.start(c.claim(0, 4), waits)
	if back := c.w.changed([]schedule.LaneSetting{{Lane: 7}, {Lane: 1}}); len(back) != 4 {
		t.Errorf("%d are put back, want 4", len(back))
	}
	if next, _, _ := c.end(running[0], answered); next != nil || c.named() != " 1" {
		t.Error("one of them begins")
	}
}

// A claim is asked for when it brings a batch: when half of a full lane has ended, or half of the prefetch
// has begun.
func TestClaimsBringBatches(t *testing.T) {
	t.Parallel()
	c := newLaneCourse(t)
	running := c.start(c.claim(3, 0), begins) // too few to prefetch
	for i, want := range []int{-1, 0, 0} {
		if _, _, claim := c.end(running[i], answered); claim != want {
			t.Errorf("after %d of 3: claim %d, want %d", i+1, claim, want)
		}
	}
	c = newLaneCourse(t)
	running = c.start(c.claim(8, 0), begins)
	c.end(running[0], answered) // in a millisecond: 20 places' worth
	_, prefetch := c.w.beginClaim(0)
	if len(prefetch) != 1 || prefetch[0].Max != 7*20 {
		t.Fatalf("prefetch %+v, want what 7 places send in 20 ms", prefetch)
	}
	c.w.endClaim(0, nil, false)
	waiting := c.start(c.claim(0, 140), waits)
	for i := range waiting[:71] {
		_, _, claim := c.end(running[1+i%7], answered)
		running[1+i%7] = waiting[i]
		if want := i == 69 || i == 70; (claim == 0) != want {
			t.Fatalf("with %d of 140 begun: claim %d", i+1, claim)
		}
	}
	// A lane that gives nothing though it was asked is not asked again.
	c.w.beginClaim(0)
	if again, _ := c.w.endClaim(0, nil, true); again || c.w.shards[0].lanes[1].full {
		t.Error("it is asked again")
	}
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
