package attempt

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

const (
	sideLimit = 8
	sideItems = 80
)

// A limitSide is one process's lane limits, with what is under way in it. Every step may be held up while
// others go on.
type limitSide struct {
	name    string
	limits  *laneLimits
	ix      *memq.Index
	claims  int
	req     schedule.ClaimRequest
	asked   bool
	again   bool      // the next claim repeats the last one
	at      time.Time // of the claim
	reply   *schedule.Claimed
	granted []schedule.Lease // by the claim under way, or by the one that the next repeats
	claimed []ready          // not stamped yet
	running []ready
	ended   []ended
	sent    []ended // their settlements are on their way
	batch   []schedule.Settlement
	unheard []schedule.Settlement // given up, and may still arrive
	lost    []*schedule.Lease     // of claims whose replies were lost
	stale   []*schedule.Lease     // whose results lost the fence
}

func newLimitSide(name string, ix *memq.Index) *limitSide {
	return &limitSide{name: name, ix: ix, limits: newLaneLimits(ix.ShardOf, 1)}
}

func (s *limitSide) runningAttempts() map[int64]int {
	n := make(map[int64]int)
	for _, r := range s.running {
		n[r.lease.Lane]++
	}
	return n
}

// limitSteps are the kinds of steps, in the order in which a process takes them. busySteps has claims and the
// steps of one lease more often than settlements, so that lanes are full and claims name leases before their
// results are settled. limitFaults happen now and then.
var (
	limitSteps = []string{"ask", "claim", "reply", "stamp", "end", "send", "settle"}
	busySteps  = slices.Concat(limitSteps, limitSteps[:5], limitSteps[:5],
		[]string{"stamp", "stamp", "end", "expire"})
	limitFaults = []string{"repeat", "suspect", "reset", "changed", "lose", "unheard", "late"}
)

// step takes one step of that kind, if there is something to do, and says whether there was.
func (s *limitSide) step(kind string, some func(n int) int, drop bool) (bool, error) {
	ctx := context.Background()
	switch {
	case kind == "ask" && !s.asked:
		s.ask(some)
	case kind == "claim" && s.asked && s.reply == nil:
		c, err := s.ix.Claim(ctx, 0, s.req)
		s.reply, s.granted = &c, c.Leases
		return true, err
	case kind == "repeat" && s.asked: // its reply is lost; the next claim has the same token
		s.failClaim()
		s.again = true
	case kind == "reply" && s.asked && drop:
		// The claim fails, whether it was executed or not: its leases wait for their end.
		for i := range s.granted {
			s.lost = append(s.lost, &s.granted[i])
		}
		s.failClaim()
	case kind == "reply" && s.reply != nil:
		_, back := s.limits.endClaim(0, s.reply.Leases, len(s.reply.Leases) < s.req.Max)
		s.giveUp(back)
		for i := range s.reply.Leases {
			s.claimed = append(s.claimed, ready{lease: &s.reply.Leases[i], claimed: s.at})
		}
		s.asked, s.reply = false, nil
	case kind == "stamp" && len(s.claimed) > 0:
		return true, s.stamp(take(&s.claimed, some), drop)
	case kind == "suspect" && len(s.claimed) > 0:
		return true, s.suspect(take(&s.claimed, some), drop)
	case kind == "end" && len(s.running) > 0:
		out := ended{signal: schedule.Answered}
		if drop {
			out = []ended{{hold: 1, signal: schedule.Answered}, {signal: schedule.TimedOut},
				{signal: schedule.Unanswered}, {}}[some(4)]
		}
		s.end(take(&s.running, some), out)
	case kind == "lose" && len(s.ended) > 0: // its result loses the fence, and is never settled
		o := take(&s.ended, some)
		s.giveUp(s.limits.resultsKnown([]ended{o}))
		s.stale = append(s.stale, o.lease)
	case kind == "send" && len(s.ended) > 0 && s.batch == nil:
		n := 1 + some(len(s.ended))
		s.sent, s.ended = s.ended[:n:n], s.ended[n:]
		s.batch = settlementsOf(s.sent)
		s.limits.addSuccessors(s.batch)
	case kind == "settle" && s.batch != nil:
		_, err := s.ix.Settle(ctx, s.batch)
		if !drop { // otherwise its reply is lost, and it is repeated
			s.known()
		}
		return true, err
	case kind == "unheard" && s.batch != nil:
		s.unheard = append(s.unheard, s.batch...)
		s.known()
	case kind == "late" && len(s.unheard) > 0:
		n := 1 + some(len(s.unheard))
		_, err := s.ix.Settle(ctx, s.unheard[:n])
		if !drop {
			s.unheard = s.unheard[n:]
		}
		return true, err
	case kind == "expire" && len(s.lost) > 0:
		return true, s.settle(take(&s.lost, some), schedule.Ack)
	case kind == "expire" && len(s.stale) > 0 && s.idle():
		return true, s.settle(take(&s.stale, some), schedule.Ack)
	case kind == "reset":
		s.giveUp(s.limits.resetPlaces())
	case kind == "changed":
		s.giveUp(s.limits.settingsChanged([]schedule.LaneSetting{{Lane: 1}}))
	default:
		return false, nil
	}
	return true, nil
}

// idle says whether there is no lease that could have the place of another: a lease lasts longer than those
// that follow it in its place.
func (s *limitSide) idle() bool {
	for _, n := range s.limits.shards[0].lanes {
		if n.open > 0 || len(n.ended) > 0 {
			return false
		}
	}
	return true
}

func take[T any](list *[]T, some func(n int) int) T {
	i := some(len(*list))
	one := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return one
}

func (s *limitSide) ask(some func(n int) int) {
	s.claims++
	token := fmt.Sprint(s.name, s.claims)
	if s.again {
		token = s.req.Token
	} else {
		s.granted = nil
	}
	s.asked, s.again, s.at = true, false, time.Now()
	named, prefetch := s.limits.beginClaim(0)
	most := []int{16, 3, 1, 0}[max(some(16)-12, 0)]
	s.req = schedule.ClaimRequest{
		Owner: s.name, Token: token, Max: most, MaxUncertain: 16, MaxTimingOut: 16, Lease: time.Hour,
		LaneLimit: sideLimit, Ended: slices.Clone(named), Prefetch: prefetch,
	}
}

func (s *limitSide) failClaim() {
	s.giveUp(s.limits.failClaim(0))
	s.asked, s.reply = false, nil
}

// stamp has a claimed lease begin, or wait, or drops it.
func (s *limitSide) stamp(r ready, drop bool) error {
	if drop {
		s.giveUp(s.limits.drop(r.lease))
		return s.settle(r.lease, schedule.Ack)
	}
	switch s.limits.start(&r, true) {
	case begins:
		s.running = append(s.running, r)
	case goesBack:
		s.giveUp(append(s.limits.drop(r.lease), r))
	case waits:
	}
	return nil
}

// suspect has a claimed lease begin before its stamp, as attemptAlone does; with fails its stamp fails. What
// is handed back may be claimed again at once, before it is dropped: with fails that is done by a copy.
func (s *limitSide) suspect(r ready, fails bool) error {
	l := r.lease
	if s.limits.start(&r, false) == begins {
		if !fails {
			s.running = append(s.running, r)
			return nil
		}
		l = new(*r.lease)
	}
	err := s.settle(l, schedule.Divert)
	s.giveUp(s.limits.drop(l))
	return err
}

func (s *limitSide) end(r ready, out ended) {
	out.lease = r.lease
	next, back, _ := s.limits.end(&out, time.Millisecond)
	if next != nil {
		s.running = append(s.running, *next)
	}
	s.ended = append(s.ended, out)
	s.giveUp(back)
}

func (s *limitSide) giveUp(back []ready) {
	for _, b := range back {
		s.ended = append(s.ended, ended{lease: b.lease})
	}
}

// known: the settlements are as good as heard.
func (s *limitSide) known() {
	s.giveUp(s.limits.resultsKnown(s.sent))
	s.batch, s.sent = nil, nil
}

// settlementsOf are what the index is told of results. Here no hold lasts, and every lane goes on answering,
// so that prefetches go on.
func settlementsOf(batch []ended) []schedule.Settlement {
	settlements := make([]schedule.Settlement, len(batch))
	for i := range batch {
		l := batch[i].lease
		settlements[i] = schedule.Settlement{
			Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered,
		}
	}
	return settlements
}

// settle ends a lease in the index that names no successor; with Divert it is due again at once.
func (s *limitSide) settle(l *schedule.Lease, o schedule.Outcome) error {
	list := settlementsOf([]ended{{lease: l}})
	if o == schedule.Divert {
		list[0].Outcome, list[0].Due, list[0].Signal = o, 1, schedule.NoSignal
	}
	_, err := s.ix.Settle(context.Background(), list)
	return err
}

// sound says what is wrong with a lane, if anything is.
func (n *laneLimit) sound() error {
	if len(n.uncounted) > len(n.ended) || n.placed() < 0 || n.stopped < 0 {
		return fmt.Errorf("%d leases do not count, for %d that have ended; %d have a place; %d stop the lane",
			len(n.uncounted), len(n.ended), n.placed(), n.stopped)
	}
	return nil
}

// A limitCourse is two processes at work on two lanes of one index.
type limitCourse struct {
	fatalf func(format string, args ...any)
	ix     *memq.Index
	sides  []*limitSide
	// prefetched counts leases that did not count, and replaced those that were counted in place of others.
	prefetched, replaced int
	story                []string
}

func newLimitCourse(fatalf func(format string, args ...any)) *limitCourse {
	c := &limitCourse{ix: memq.New(memq.Options{}), fatalf: fatalf}
	ctx := context.Background()
	c.ix.SetGeneration(1)
	items := make([]schedule.Item, sideItems)
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
	c.sides = []*limitSide{newLimitSide("one", c.ix), newLimitSide("two", c.ix)}
	return c
}

// first chooses the first, last the last of what there is.
func first(int) int  { return 0 }
func last(n int) int { return n - 1 }

// take has a side take a step, and checks what must hold after each.
func (c *limitCourse) take(s *limitSide, kind string, some func(int) int, drop bool) bool {
	did, err := s.step(kind, some, drop)
	if err != nil {
		c.fatalf("%s: %v\n%s", kind, err, strings.Join(c.story, "\n"))
	}
	if !did {
		return false
	}
	c.story = append(c.story, fmt.Sprintf("%s: %s, drop %t; on the wire %v", s.name, kind, drop, s.runningAttempts()))
	switch kind {
	case "ask":
		c.story = append(c.story, fmt.Sprintf("  %s ended %+v, prefetch %+v", s.req.Token, s.req.Ended,
			s.req.Prefetch))
		for _, e := range s.req.Ended {
			if e.Next.ID != "" {
				c.replaced++
			}
		}
	case "claim":
		for _, l := range s.reply.Leases {
			c.story = append(c.story, fmt.Sprintf("  lease %s of lane %d, ahead %t, full %t", l.ID, l.Lane,
				l.Prefetched, l.Full))
			if l.Prefetched {
				c.prefetched++
			}
		}
	case "send":
		for _, b := range s.batch {
			c.story = append(c.story, fmt.Sprintf("  settle %s %s next %v", b.ID, b.Token, b.Next))
		}
	}
	c.check(s.name + "'s " + kind)
	return true
}

// check: the index counts at least what is on the wire, which is never more than the limit.
func (c *limitCourse) check(after string) {
	states, err := c.ix.LaneStates(context.Background(), []int64{1, 2})
	if err != nil {
		c.fatalf("%v", err)
	}
	one, two := c.sides[0].runningAttempts(), c.sides[1].runningAttempts()
	for _, state := range states {
		if n := one[state.Lane] + two[state.Lane]; n > state.InFlight || n > sideLimit {
			c.fatalf("after %s %d of lane %d are on the wire, %d and %d, and %d count; its limit is %d\n%s",
				after, n,
				state.Lane, one[state.Lane], two[state.Lane], state.InFlight, sideLimit,
				strings.Join(c.story, "\n"))
		}
	}
	for _, s := range c.sides {
		for lane, n := range s.limits.shards[0].lanes {
			if err := n.sound(); err != nil {
				c.fatalf("after %s, %s, lane %d: %v\n%s", after, s.name, lane, err,
					strings.Join(c.story, "\n"))
			}
		}
	}
}

// finish takes steps until nothing is left in the index.
func (c *limitCourse) finish() {
	for round := 0; ; round++ {
		left, err := c.ix.Stats(context.Background(), 0)
		if err != nil {
			c.fatalf("%v", err)
		}
		if left.Delayed+left.Ready+left.Leased == 0 {
			return
		}
		if round == 1000 {
			c.fatalf("after %d rounds %+v are left\n%s", round, left, strings.Join(c.story, "\n"))
		}
		for _, s := range c.sides {
			for _, kind := range slices.Concat([]string{"expire", "late"}, limitSteps) {
				for c.take(s, kind, first, false) && kind != "ask" {
				}
			}
		}
	}
}

// drain: no more claims, but those under way end. Everything that has begun ends without an answer. Then
// nothing waits, and after the next claim all lanes are forgotten.
func (c *limitCourse) drain() {
	for _, s := range c.sides {
		if s.asked {
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
				c.fatalf("%s, lane %d: %+v\n%s", s.name, lane, n, strings.Join(c.story, "\n"))
			}
		}
		for len(s.sent)+len(s.ended) > 0 {
			c.take(s, "send", last, false)
			c.take(s, "settle", first, false)
		}
		s.limits.beginClaim(0)
		s.limits.endClaim(0, nil, true)
		if len(s.limits.shards[0].lanes) != 0 {
			c.fatalf("%s: lanes are remembered\n%s", s.name, strings.Join(c.story, "\n"))
		}
	}
}

// However the steps of two processes interleave, whatever replies are lost, and whatever else goes wrong, the
// index counts at least what they have on the wire together, which stays within the lanes' concurrency. When
// all steps are taken, everything has been attempted; and in a drain nothing waits for ever.
func TestLaneLimitsKeepConcurrency(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*limitCourse){"finished": (*limitCourse).finish,
		"drained": (*limitCourse).drain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefetched, replaced := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				c := newLimitCourse(rt.Fatalf)
				// Bytes are drawn so that seeds are many: rapid draws one number mostly small.
				seed := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(rt, "seed")
				rnd := rand.New(rand.NewChaCha8([32]byte(seed)))
				c.run(toFull + "ask") // so that few runs show something, too
				rare := []int{2, 10, 50, 1000}[rnd.IntN(4)]
				for range 200 + rnd.IntN(400) {
					kinds := busySteps
					if rnd.IntN(rare) == 0 {
						kinds = limitFaults
					}
					c.take(c.sides[rnd.IntN(2)], kinds[rnd.IntN(len(kinds))], rnd.IntN,
						rnd.IntN(min(rare+4, 20)) == 0)
				}
				end(c)
				prefetched, replaced = prefetched+c.prefetched, replaced+c.replaced
			})
			if prefetched == 0 || replaced == 0 {
				t.Errorf("%d leases were prefetched, and %d counted in place of others: the runs show "+
					"nothing",
					prefetched, replaced)
			}
			t.Logf("%d leases were prefetched, %d counted in place of others", prefetched, replaced)
		})
	}
}

// run has the first process take these steps, as often as it can those with a star.
func (c *limitCourse) run(steps string) {
	for step := range strings.FieldsSeq(steps) {
		kind, all := strings.CutSuffix(step, "*")
		if !c.take(c.sides[0], kind, first, false) {
			c.fatalf("nothing to %s\n%s", kind, strings.Join(c.story, "\n"))
		}
		for all && c.take(c.sides[0], kind, first, false) {
		}
	}
}

// toFull are steps to a full lane, with some that were prefetched and wait, one of which has begun in the
// place of another.
const toFull = "ask claim reply stamp* end send settle ask claim reply stamp* ask claim reply stamp* end "

// Courses that went wrong once.
func TestLaneLimitsOnCourses(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string]string{
		// The index gives the batch again, and counts by what the repetition names, which has ended since.
		"a repeated claim names what has ended since": "ask claim repeat end ask claim reply stamp* send " +
			"settle",
		// After one commit that failed the leases mostly live: the settlements say who has the places.
		"a reset while leases live": "end end reset send settle",
	} {
		t.Run(name, func(t *testing.T) { newLimitCourse(t.Fatalf).run(toFull + steps) })
	}
}

// The successor of a lease that is never settled, for its result lost the fence, is not that of a later lease
// of the same callback, which may be in another lane: the index would refuse the whole call.
func TestASuccessorIsOfItsLeaseAlone(t *testing.T) {
	t.Parallel()
	c := newLimitCourse(t.Fatalf)
	c.run(toFull + "ask repeat")
	one := c.sides[0]
	if len(one.req.Ended) != 1 || one.req.Ended[0].Next.ID == "" {
		t.Fatalf("the claim names %v, want one with its successor", one.req.Ended)
	}
	later := schedule.Lease{Item: one.ended[0].lease.Item, Token: "later"}
	later.Lane = 3 - later.Lane // it was edited, and goes elsewhere
	s := settlementsOf([]ended{{lease: &later}})
	one.limits.addSuccessors(s)
	if _, err := c.ix.Settle(t.Context(), s); err != nil || s[0].Next.ID != "" {
		t.Errorf("settle: %v; next %v", err, s[0].Next)
	}
}
