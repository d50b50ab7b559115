package attempt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

// sound returns an error if an invariant of the lane does not hold.
func (n *laneLimit) sound() error {
	if len(n.uncounted) > len(n.ended) || n.placed() < 0 || n.stopped < 0 {
		return fmt.Errorf("%d leases do not count, for %d that have ended; %d have a place; %d stop the lane",
			len(n.uncounted), len(n.ended), n.placed(), n.stopped)
	}
	return nil
}

// A limitModel is two processes that work on two lanes of one index.
type limitModel struct {
	fatalf    func(format string, args ...any)
	ix        *memq.Index
	processes []*limitProcess
	// prefetched counts leases that did not count, and replaced counts successors.
	prefetched, replaced int
	history              []string
}

func newLimitModel(fatalf func(format string, args ...any)) *limitModel {
	c := &limitModel{ix: memq.New(memq.Options{}), fatalf: fatalf}
	ctx := context.Background()
	c.ix.SetGeneration(1)
	items := make([]schedule.Item, modelItems)
	for i := range items {
		items[i] = schedule.Item{ID: fmt.Sprintf("01K%023d", i), Lane: int64(1 + i%2), Due: 1}
	}
	err := errors.Join(c.ix.Reset(ctx, 0, 1), c.ix.Open(ctx, 0))
	if err == nil {
		_, err = c.ix.Ensure(ctx, items)
	}
	if err != nil {
		fatalf("%v", err)
	}
	c.processes = []*limitProcess{newLimitProcess("one", c.ix), newLimitProcess("two", c.ix)}
	return c
}

// first picks the first candidate, last the last one.
func first(int) int  { return 0 }
func last(n int) int { return n - 1 }

// take takes a step of a process, and checks the invariants after it.
func (c *limitModel) take(s *limitProcess, kind string, choose func(int) int, drop bool) bool {
	did, err := s.step(kind, choose, drop)
	if err != nil {
		c.fatalf("%s: %v\n%s", kind, err, strings.Join(c.history, "\n"))
	}
	if !did {
		return false
	}
	c.log("%s: %s, drop %t; running %v", s.name, kind, drop, s.runningAttempts())
	switch kind {
	case "ask":
		c.log("  %s ended %+v, prefetch %+v", s.req.Token, s.req.Ended, s.req.Prefetch)
		for _, e := range s.req.Ended {
			if e.Next.ID != "" {
				c.replaced++
			}
		}
	case "claim":
		for _, l := range s.reply.Leases {
			c.log("  lease %s of lane %d, prefetched %t, full %t", l.ID, l.Lane, l.Prefetched, l.Full)
			if l.Prefetched {
				c.prefetched++
			}
		}
	case "send":
		for _, b := range s.batch {
			c.log("  settle %s %s next %v", b.ID, b.Token, b.Next)
		}
	}
	c.check(s.name + "'s " + kind)
	return true
}

// log adds a line to the history, which a failure prints.
func (c *limitModel) log(format string, args ...any) {
	c.history = append(c.history, fmt.Sprintf(format, args...))
}

// check compares the leases that the index counts with the running attempts, which never exceed the limit.
func (c *limitModel) check(after string) {
	states, err := c.ix.LaneStates(context.Background(), []int64{1, 2})
	if err != nil {
		c.fatalf("%v", err)
	}
	one, two := c.processes[0].runningAttempts(), c.processes[1].runningAttempts()
	for _, state := range states {
		if n := one[state.Lane] + two[state.Lane]; n > state.InFlight || n > modelLimit {
			c.fatalf("after %s: lane %d has %d running attempts (%d, %d); %d leases count, the limit is "+
				"%d\n%s",
				after, state.Lane, n, one[state.Lane], two[state.Lane], state.InFlight, modelLimit,
				strings.Join(c.history, "\n"))
		}
	}
	for _, s := range c.processes {
		for lane, n := range s.limits.shards[0].lanes {
			if err := n.sound(); err != nil {
				c.fatalf("after %s, %s, lane %d: %v\n%s", after, s.name, lane, err,
					strings.Join(c.history, "\n"))
			}
		}
	}
}

// finish takes steps until the index is empty.
func (c *limitModel) finish() {
	for round := 0; ; round++ {
		left, err := c.ix.Stats(context.Background(), 0)
		if err != nil {
			c.fatalf("%v", err)
		}
		if left.Delayed+left.Ready+left.Leased == 0 {
			return
		}
		if round == 1000 {
			c.fatalf("after %d rounds %+v are left\n%s", round, left, strings.Join(c.history, "\n"))
		}
		for _, s := range c.processes {
			for _, kind := range slices.Concat([]string{"expire", "late"}, limitSteps) {
				for c.take(s, kind, first, false) && kind != "ask" {
				}
			}
		}
	}
}

// drain makes no more claims; those under way end. All running attempts end without an answer. Then nothing
// waits, and after the next claim all lanes are forgotten.
func (c *limitModel) drain() {
	for _, s := range c.processes {
		if s.claiming {
			c.take(s, "claim", first, false)
			c.take(s, "reply", first, false)
		}
		for c.take(s, "stamp", last, false) {
		}
		for len(s.running) > 0 {
			s.end(take(&s.running, first), ended{})
		}
		for lane, n := range s.limits.shards[0].lanes {
			if n.open != 0 || len(n.waiting) != 0 || len(n.stamping) != 0 {
				c.fatalf("%s, lane %d: %+v\n%s", s.name, lane, n, strings.Join(c.history, "\n"))
			}
		}
		for len(s.sent)+len(s.ended) > 0 {
			c.take(s, "send", last, false)
			c.take(s, "settle", first, false)
		}
		s.limits.beginClaim(0)
		s.limits.endClaim(0, nil, true)
		if len(s.limits.shards[0].lanes) != 0 {
			c.fatalf("%s: lanes are remembered\n%s", s.name, strings.Join(c.history, "\n"))
		}
	}
}

// For every interleaving of two processes, with lost replies and other faults, the index counts at least as
// many leases as there are running attempts, which stay within the lanes' concurrency. When all steps are
// taken, everything was attempted, and in a drain nothing waits for ever.
func TestLaneLimitsKeepConcurrency(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*limitModel){"finished": (*limitModel).finish,
		"drained": (*limitModel).drain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefetched, replaced := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				c := newLimitModel(rt.Fatalf)
				// Bytes give many different seeds: rapid draws numbers that are mostly small.
				seed := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "seed")
				rnd := rand.New(rand.NewChaCha8([32]byte(seed)))
				c.run(toFull + "ask") // so that even a few runs cover something
				rare := []int{2, 10, 50, 1000}[rnd.IntN(4)]
				for range 200 + rnd.IntN(400) {
					kinds := busySteps
					if rnd.IntN(rare) == 0 {
						kinds = limitFaults
					}
					c.take(c.processes[rnd.IntN(2)], kinds[rnd.IntN(len(kinds))], rnd.IntN,
						rnd.IntN(min(rare+4, 20)) == 0)
				}
				end(c)
				prefetched, replaced = prefetched+c.prefetched, replaced+c.replaced
			})
			if prefetched == 0 || replaced == 0 {
				t.Errorf("%d leases were prefetched, and %d counted in place of others: the runs cover "+
					"nothing", prefetched, replaced)
			}
			t.Logf("%d leases were prefetched, %d counted in place of others", prefetched, replaced)
		})
	}
}

// run takes these steps of the first process; those with a star as often as possible.
func (c *limitModel) run(steps string) {
	for step := range strings.FieldsSeq(steps) {
		kind, all := strings.CutSuffix(step, "*")
		if !c.take(c.processes[0], kind, first, false) {
			c.fatalf("nothing to %s\n%s", kind, strings.Join(c.history, "\n"))
		}
		for all && c.take(c.processes[0], kind, first, false) {
		}
	}
}

// toFull are the steps to a full lane with some prefetched callbacks that wait. One of them has begun in the
// place of an ended one.
const toFull = "ask claim reply stamp* end send settle ask claim reply stamp* ask claim reply stamp* end "

// Steps that once broke an invariant.
func TestLaneLimitsRegressions(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		// The index returns the batch again, and counts by what the repeated claim names, which has ended
		// since.
		"a repeated claim names what has ended since": "ask claim repeat end ask claim reply stamp* send " +
			"settle",
		// After a single failed commit most leases still live. The settlements name the successors.
		"a reset while leases live": "end end reset send settle",
	} {
		t.Run(name, func(t *testing.T) { newLimitModel(t.Fatalf).run(toFull + steps) })
	}
}

// A lease whose result lost the fence is never settled. Its successor is not that of a later lease of the
// same callback, which may be in another lane: the index would refuse the whole call.
func TestASuccessorIsOfItsLeaseAlone(t *testing.T) {
	t.Parallel()
	c := newLimitModel(t.Fatalf)
	c.run(toFull + "ask repeat")
	one := c.processes[0]
	if len(one.req.Ended) != 1 || one.req.Ended[0].Next.ID == "" {
		t.Fatalf("the claim names %v, want one with its successor", one.req.Ended)
	}
	later := schedule.Lease{Item: one.ended[0].lease.Item, Token: "later"}
	later.Lane = 3 - later.Lane // it was edited, and is sent elsewhere
	s := settlementsOf([]ended{{lease: &later}})
	one.limits.addSuccessors(s)
	if _, err := c.ix.Settle(t.Context(), s); err != nil || s[0].Next.ID != "" {
		t.Errorf("settle: %v; next %v", err, s[0].Next)
	}
}
