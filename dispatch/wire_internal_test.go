package dispatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// However the steps of two processes interleave, what they have on the wire together stays within the lane's concurrency; and
// when all steps are taken, everything has been attempted.
func TestWireKeepsConcurrency(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ix := memq.New(memq.Options{})
		ctx := context.Background()
		ix.SetGeneration(1)
		if err := errors.Join(ix.Reset(ctx, 0, 1), ix.Open(ctx, 0)); err != nil {
			rt.Fatal(err)
		}
		items := make([]schedule.Item, wireItems)
		for i := range items {
			items[i] = schedule.Item{ID: fmt.Sprintf("01K%023d", i), Lane: int64(1 + i%2), Due: 1}
		}
		if _, err := ix.Ensure(ctx, items); err != nil {
			rt.Fatal(err)
		}
		sides := []*wireSide{{name: "one", w: newWire(1, atStart), ix: ix}, {name: "two", w: newWire(1, atStart), ix: ix}}
		var story []string
		check := func(what string) {
			one, two := sides[0].onWire(), sides[1].onWire()
			for lane := range int64(3) {
				if n := one[lane] + two[lane] - sides[0].over(lane) - sides[1].over(lane); n > wireLimit {
					rt.Fatalf("after %s %d of lane %d are on the wire: %d and %d\n%s", what, n, lane, one[lane], two[lane], strings.Join(story, "\n"))
				}
			}
		}
		take := func(s *wireSide, kind string, some func(int) int, drop bool) bool {
			did, err := s.step(kind, some, drop)
			if err != nil {
				rt.Fatalf("%s: %v", kind, err)
			}
			if did {
				story = append(story, fmt.Sprintf("%s: %s, drop %t; on the wire %v", s.name, kind, drop, s.onWire()))
				if kind == "ask" {
					story = append(story, fmt.Sprintf("  allowances %+v", s.req.Allowances))
				}
				if kind == "claim" {
					for _, l := range s.reply.Leases {
						story = append(story, fmt.Sprintf("  lease of lane %d, ahead %t", l.Lane, l.Ahead))
					}
				}
			}
			check(s.name + "'s " + kind)
			return did
		}
		for range rapid.IntRange(0, 200).Draw(rt, "steps") {
			take(sides[rapid.IntRange(0, 1).Draw(rt, "side")], rapid.SampledFrom(wireSteps).Draw(rt, "step"),
				func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "which") }, rapid.IntRange(0, 9).Draw(rt, "drop") == 0)
		}
		for round := 0; ; round++ {
			left, err := ix.Stats(ctx, 0)
			if err != nil {
				rt.Fatal(err)
			}
			if left.Delayed+left.Ready+left.Leased == 0 {
				break
			}
			if round == 1000 {
				rt.Fatalf("after %d rounds %+v are left", round, left)
			}
			for _, s := range sides {
				for i := range s.lost { // their leases end
					if err := s.settle([]ended{{lease: &s.lost[i]}}, schedule.Divert); err != nil {
						rt.Fatal(err)
					}
				}
				s.lost = nil
				for _, kind := range wireSteps {
					for take(s, kind, func(int) int { return 0 }, false) && kind != "ask" {
					}
				}
			}
		}
	})
}

// A trickle is never put back: where a claim was given no credit, what is told while it is under way takes none away.
func TestWireSendsATrickleAtOnce(t *testing.T) {
	w := newWire(1, atStart)
	claim := func(id string) ready {
		l := &schedule.Lease{Item: schedule.Item{ID: id, Lane: 1}}
		c := schedule.Claimed{Leases: []schedule.Lease{*l}}
		w.claimed(0, &c)
		return ready{w: &store.Stamped{}, l: &c.Leases[0]}
	}
	w.allowances(0, true)
	first := claim("first")
	if got := w.begin(&first, false); got != begins {
		t.Fatalf("the first: %v, want it to begin", got)
	}
	end := []ended{{lease: first.l, epoch: first.epoch}}
	w.end(&end[0], time.Millisecond)
	if given := w.allowances(0, true); len(given) > 0 {
		t.Fatalf("allowances where nothing waits: %v", given)
	}
	w.telling(end)
	second := claim("second")
	if got := w.begin(&second, false); got != begins {
		t.Fatalf("the second: %v, want it to begin", got)
	}
}

// What is stamped while a claim is under way that was given all permits is not put back: the claim brings permits, or leaves them.
func TestWireKeepsWhatAClaimMayServe(t *testing.T) {
	c := heldBehindAClaim(t)
	_, next, back := c.claimed(0, 0)
	if len(next) != 8 || len(back) != 0 {
		t.Fatalf("the claim brought nothing: %d began and %d go back, want 8 to begin", len(next), len(back))
	}
	_, next = c.end(next)
	if len(next) != 8 {
		t.Errorf("%d began in the places of 8, want 8", len(next))
	}
}

// A claim that fails, and leaves nobody whose end could let begin what is held back, puts that back.
func TestWirePutsBackWhatAFailedClaimLeaves(t *testing.T) {
	c := heldBehindAClaim(t)
	if back := c.w.failed(0); len(back) != 16 {
		t.Errorf("%d go back, want 16", len(back))
	}
	if n := c.w.lanes[1]; n.ended != 24 || n.waiting() != 0 {
		t.Errorf("%d leases have ended and %d wait, want 24 and 0", n.ended, n.waiting())
	}
}

// Of what is being stamped the first that is ready takes the first permit, also one that came with another's lease.
func TestWireFirstStampedBeginsFirst(t *testing.T) {
	c := &wireCourse{t: t, w: newWire(1, atStart)}
	running, _, _ := c.claim(4, 0)
	c.begin(running, begins)
	stamping, _, _ := c.claim(2, 4)
	c.begin(stamping[2:4], begins)
	c.begin(stamping[4:], held)
	c.begin(stamping[:2], held)
	// And a permit that a claim brings goes to those that are stamped already.
	_, next, _ := c.claim(3, 0)
	if len(next) != 3 {
		t.Errorf("%d of 4 that were held back began with 3 more permits", len(next))
	}
}

// The index is told of ended leases after the claim under way, so that what that brings has its permits for certain; but it is
// told before long, whatever becomes of the claim.
func TestWireTellsInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &wireCourse{t: t, w: newWire(1, atStart)}
		running, _, _ := c.claim(8, 0)
		c.begin(running, begins)
		over, _ := c.end(running)
		c.w.allowances(0, true)
		started := time.Now()
		answered := make(chan time.Duration, 1)
		go func() {
			c.w.tellingInTurn(over)
			answered <- time.Since(started)
		}()
		time.Sleep(tellPatience / 2)
		stamping, _, _ := c.claimed(8, 0)
		if took := <-answered; took != tellPatience/2 {
			t.Errorf("the index was told after %s, want %s: when the claim has ended", took, tellPatience/2)
		}
		c.begin(stamping, begins)
		if n := c.w.lanes[1]; n.ended != 0 {
			t.Errorf("%d leases are still to be told of", n.ended)
		}

		over, _ = c.end(stamping)
		c.w.allowances(0, true)
		started = time.Now()
		c.w.tellingInTurn(over)
		if took := time.Since(started); took != tellPatience {
			t.Errorf("a claim that hangs held it up for %s, want %s", took, tellPatience)
		}
		// Nobody knows which came first: what the claim brings may be beyond the concurrency.
		stamping, _, _ = c.claimed(8, 0)
		c.begin(stamping, goesBack)
	})
}

// A teller of two shards goes on once, also when the index is forgotten between the ends of their claims.
func TestWireTellsOfTwoShards(t *testing.T) {
	w := newWire(2, atStart)
	var over []ended
	for shard := range 2 {
		w.allowances(shard, true)
		c := schedule.Claimed{Leases: []schedule.Lease{{Item: schedule.Item{ID: fmt.Sprint(shard), Lane: int64(shard)}}}}
		w.claimed(shard, &c)
		r := ready{w: &store.Stamped{}, l: &c.Leases[0]}
		w.begin(&r, false)
		over = append(over, ended{lease: r.l, epoch: r.epoch})
		w.end(&over[shard], time.Millisecond)
	}
	for shard := range 2 {
		w.allowances(shard, true)
	}
	teller := w.queue(over)
	w.reset()
	for shard := range 2 {
		select {
		case <-teller.ready:
			t.Errorf("it went on while the claim of shard %d was under way", shard)
		default:
		}
		w.claimed(shard, &schedule.Claimed{})
	}
	<-teller.ready
	<-w.queue(nil).ready // nothing to tell of
}

// Whoever is made in any case, though there is no permit for it, leaves none.
func TestWireForcedLeavesNoPermit(t *testing.T) {
	c := &wireCourse{t: t, w: newWire(1, atStart)}
	running, _, _ := c.claim(4, 0)
	c.begin(running, begins)
	stamping, _, _ := c.claim(0, 4)
	c.begin(stamping[:3], held)
	suspect := stamping[3]
	if got := c.w.begin(&suspect, true); got != begins {
		t.Fatalf("one that is made in any case: %v", got)
	}
	if _, next := c.end([]ready{suspect}); len(next) != 0 {
		t.Errorf("%d began in its place", len(next))
	}
	if n := c.w.lanes[1]; n.on != 4 || n.free != 0 || n.over != 0 {
		t.Errorf("on the wire %d, free %d, over %d; want 4, 0, 0", n.on, n.free, n.over)
	}
}

// An attempt that stops its lane leaves no permit either: it does not do so in the place of one that was made in any case.
func TestWireStopLeavesForcedItsOwn(t *testing.T) {
	c := &wireCourse{t: t, w: newWire(1, atStart)}
	running, _, _ := c.claim(2, 0)
	c.begin(running, begins)
	stamping, _, _ := c.claim(0, 1)
	suspect := stamping[0]
	if got := c.w.begin(&suspect, true); got != begins {
		t.Fatalf("one that is made in any case: %v", got)
	}
	c.w.end(&ended{lease: running[0].l, epoch: running[0].epoch, hold: 1}, time.Millisecond)
	c.end([]ready{suspect})
	if n := c.w.lanes[1]; n.on != 1 || n.free != 0 || n.over != 0 {
		t.Errorf("on the wire %d, free %d, over %d; want 1, 0, 0", n.on, n.free, n.over)
	}
	c.w.end(&ended{lease: running[1].l, epoch: running[1].epoch, hold: 1}, time.Millisecond)
	if n := c.w.lanes[1]; n.on != 0 || n.over != 0 {
		t.Errorf("on the wire %d, over %d; want none", n.on, n.over)
	}
}
