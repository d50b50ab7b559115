package attempt

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A wildSide is a limitSide with what that leaves out: claims repeated with their token, results that are
// never settled, resets, suspects, changed settings, items that come back at once, settlements repeated late,
// and attempts that wait for a slot.
type wildSide struct {
	*limitSide
	retoken bool // the next claim repeats the last one
	unheard []schedule.Settlement
}

func (s *wildSide) wild(kind string, some func(int) int, drop bool) (bool, error) {
	switch {
	case kind == "ask" && !s.asked:
		before := s.req.Token
		s.ask()
		s.req.Max = []int{16, 1, 3, 0}[some(4)]
		if s.retoken {
			s.req.Token = before
		}
		s.retoken = false
	case kind == "reply" && s.asked && drop:
		s.giveUp(s.w.failClaim(0))
		s.asked, s.reply, s.retoken = false, nil, true
	case kind == "stamp" && len(s.claimed) > 0 && some(4) == 0: // a suspect
		r := take(&s.claimed, some)
		l := r.l
		if s.w.start(&r, false) != begins {
			err := s.settleRaw(l)
			s.giveUp(s.w.drop(l))
			return true, err
		}
		if some(2) == 0 { // its stamp fails
			c := *l
			err := s.settleRaw(&c)
			s.giveUp(s.w.drop(&c))
			return true, err
		}
		s.running = append(s.running, r)
	case kind == "reset":
		s.giveUp(s.w.reset())
	case kind == "changed":
		s.giveUp(s.w.changed([]schedule.LaneSetting{{Lane: 1}}))
	case kind == "lose" && len(s.ended) > 0: // its result loses the fence
		i := some(len(s.ended))
		o := s.ended[i]
		s.ended = append(s.ended[:i:i], s.ended[i+1:]...)
		s.giveUp(s.w.resultsKnown([]ended{o}))
		s.lost = append(s.lost, o.lease)
	case kind == "unheard" && s.batch != nil:
		s.unheard = append(s.unheard, s.batch...)
		s.giveUp(s.w.resultsKnown(s.sent))
		s.batch, s.sent = nil, nil
	case kind == "late" && len(s.unheard) > 0:
		n := 1 + some(len(s.unheard))
		_, err := s.ix.Settle(context.Background(), s.unheard[:n])
		if !drop {
			s.unheard = s.unheard[n:]
		}
		return true, err
	default:
		return s.step(kind, some, drop)
	}
	return true, nil
}

func (s *wildSide) settleRaw(l *schedule.Lease) error {
	st := settlementsOf([]ended{{lease: l}})
	st[0].Outcome, st[0].Due, st[0].Signal = schedule.Divert, 1, schedule.NoSignal // it may be claimed again at once
	_, err := s.ix.Settle(context.Background(), st)
	return err
}

var wildSteps = []string{"ask", "claim", "reply", "stamp", "end", "send", "settle", "stamp", "end", "stamp", "end", "reset", "changed", "lose", "unheard", "late"}

// The same with faults, and with a drain at the end: nothing waits after that, and no lane is remembered.
func TestLaneLimitsUnderFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := newLimitCourse(rt)
		sides := []*wildSide{{limitSide: c.sides[0]}, {limitSide: c.sides[1]}}
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		which := rnd.IntN
		do := func(s *wildSide, kind string, some func(int) int, drop bool) bool {
			did, err := s.wild(kind, some, drop)
			if err != nil {
				rt.Fatalf("%s: %v\n%s", kind, err, strings.Join(c.story, "\n"))
			}
			if did {
				c.story = append(c.story, fmt.Sprintf("%s: %s, drop %t; on the wire %v", s.name, kind, drop, s.onWire()))
				if kind == "ask" {
					c.story = append(c.story, fmt.Sprintf("  %s ended %+v, prefetch %+v", s.req.Token, s.req.Ended, s.req.Prefetch))
				}
				if kind == "send" {
					for _, b := range s.batch {
						c.story = append(c.story, fmt.Sprintf("  settle %s %s next %v", b.ID, b.Token, b.Next))
					}
				}
				if kind == "claim" {
					for _, l := range s.reply.Leases {
						c.story = append(c.story, fmt.Sprintf("  lease %s of lane %d, ahead %t, full %t", l.ID, l.Lane, l.Ahead, l.Full))
					}
				}
				c.check(rt, s.name+"'s "+kind)
			}
			return did
		}
		rare := 1 + which(60)
		for range rapid.IntRange(100, 600).Draw(rt, "steps") {
			kind := limitSteps[which(len(limitSteps))]
			if which(rare) == 0 {
				kind = wildSteps[which(len(wildSteps))]
			}
			do(sides[which(2)], kind, which, which(rare+4) == 0)
		}
		// A drain: no more claims, but those under way end. Everything that has begun ends without an answer,
		// and nothing may wait.
		for _, s := range sides {
			if s.asked {
				for _, kind := range []string{"claim", "reply"} {
					do(s, kind, func(int) int { return 0 }, false)
				}
			}
			for do(s, "stamp", func(n int) int { return n - 1 }, false) {
			}
			for len(s.running) > 0 {
				r := s.running[0]
				s.running = s.running[1:]
				out := ended{lease: r.l}
				next, back, _ := s.w.end(&out, time.Millisecond)
				if next != nil {
					s.running = append(s.running, *next)
				}
				s.giveUp(back)
			}
			for lane, n := range s.w.shards[0].lanes {
				if n.open != 0 || len(n.waiting) != 0 || len(n.stamping) != 0 {
					rt.Fatalf("%s, lane %d: %+v\n%s", s.name, lane, n, strings.Join(c.story, "\n"))
				}
			}
			// After the next claim all lanes with nothing to stop them are forgotten.
			for len(s.sent)+len(s.ended) > 0 {
				do(s, "send", func(n int) int { return n - 1 }, false)
				do(s, "settle", func(int) int { return 0 }, false)
			}
			s.w.beginClaim(0)
			s.w.endClaim(0, nil, true)
			if len(s.w.shards[0].lanes) != 0 {
				rt.Fatalf("%s: lanes are remembered\n%s", s.name, strings.Join(c.story, "\n"))
			}
		}
	})
}
