package attempt

import (
	"context"
	"fmt"
	"time"

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
	w       *laneLimits
	ix      *memq.Index
	claims  int
	req     schedule.ClaimRequest
	asked   bool
	at      time.Time // of the claim
	reply   *schedule.Claimed
	claimed []ready // not stamped yet
	running []ready
	ended   []ended
	sent    []ended // their settlements are on their way
	batch   []schedule.Settlement
	lost    []*schedule.Lease // of claims whose replies were lost
}

func newLimitSide(name string, ix *memq.Index) *limitSide {
	return &limitSide{name: name, ix: ix, w: newLaneLimits(ix.ShardOf, 1)}
}

func (s *limitSide) onWire() map[int64]int {
	n := make(map[int64]int)
	for _, r := range s.running {
		n[r.l.Lane]++
	}
	return n
}

// limitSteps are the kinds of steps, in the order in which a process takes them.
var limitSteps = []string{"ask", "claim", "reply", "stamp", "end", "send", "settle"}

// step takes one step of that kind, if there is something to do, and says whether there was.
func (s *limitSide) step(kind string, some func(n int) int, drop bool) (bool, error) {
	switch {
	case kind == "ask" && !s.asked:
		s.ask()
	case kind == "claim" && s.asked && s.reply == nil:
		c, err := s.ix.Claim(context.Background(), 0, s.req)
		if err != nil {
			return false, err
		}
		s.reply = &c
	case kind == "reply" && s.asked && drop:
		// The claim fails, whether it was executed or not: its leases wait for their end.
		if s.reply != nil {
			for i := range s.reply.Leases {
				s.lost = append(s.lost, &s.reply.Leases[i])
			}
		}
		s.giveUp(s.w.failClaim(0))
		s.asked, s.reply = false, nil
	case kind == "reply" && s.reply != nil:
		_, back := s.w.endClaim(0, s.reply.Leases, len(s.reply.Leases) < s.req.Max)
		s.giveUp(back)
		for i := range s.reply.Leases {
			s.claimed = append(s.claimed, ready{l: &s.reply.Leases[i], claimed: s.at})
		}
		s.asked, s.reply = false, nil
	case kind == "stamp" && len(s.claimed) > 0:
		return true, s.stamp(take(&s.claimed, some), drop)
	case kind == "end" && len(s.running) > 0:
		s.end(take(&s.running, some), drop, some)
	case kind == "send" && len(s.ended) > 0 && s.batch == nil:
		n := 1 + some(len(s.ended))
		s.sent, s.ended = s.ended[:n:n], s.ended[n:]
		s.batch = settlementsOf(s.sent)
		s.w.addSuccessors(s.batch)
	case kind == "settle" && s.batch != nil:
		_, err := s.ix.Settle(context.Background(), s.batch)
		if drop {
			return true, err // its reply is lost, and it is repeated
		}
		s.giveUp(s.w.resultsKnown(s.sent))
		s.batch, s.sent = nil, nil
		return true, err
	case kind == "expire" && len(s.lost) > 0: // the lease of a claim whose reply was lost
		return true, settleOf(s.ix, []ended{{lease: take(&s.lost, some)}})
	default:
		return false, nil
	}
	return true, nil
}

func take[T any](list *[]T, some func(n int) int) T {
	i := some(len(*list))
	one := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return one
}

func (s *limitSide) ask() {
	s.claims++
	s.asked, s.at = true, time.Now()
	named, prefetch := s.w.beginClaim(0)
	s.req = schedule.ClaimRequest{
		Owner: s.name, Token: fmt.Sprint(s.name, s.claims), Max: 16, MaxUncertain: 16, MaxTimingOut: 16, Lease: time.Hour, LaneLimit: sideLimit,
		Ended: append([]schedule.EndedLease(nil), named...), Prefetch: prefetch,
	}
}

// stamp has a claimed lease begin, or wait, or drops it.
func (s *limitSide) stamp(r ready, drop bool) error {
	if drop {
		s.giveUp(s.w.drop(r.l))
		return settleOf(s.ix, []ended{{lease: r.l}})
	}
	switch s.w.start(&r, true) {
	case begins:
		s.running = append(s.running, r)
	case goesBack:
		s.giveUp(append(s.w.drop(r.l), r))
	case waits:
	}
	return nil
}

// end ends an attempt with an answer; or, with stop, with one that holds its lane, with a time-out, or
// without an answer.
func (s *limitSide) end(r ready, stop bool, some func(n int) int) {
	out := ended{lease: r.l, signal: schedule.Answered}
	if stop {
		out = []ended{{hold: 1, signal: schedule.Answered}, {signal: schedule.TimedOut}, {signal: schedule.Unanswered}, {}}[some(4)]
		out.lease = r.l
	}
	next, back, _ := s.w.end(&out, time.Millisecond)
	if next != nil {
		s.running = append(s.running, *next)
	}
	s.ended = append(s.ended, out)
	s.giveUp(back)
}

func (s *limitSide) giveUp(back []ready) {
	for _, b := range back {
		s.ended = append(s.ended, ended{lease: b.l})
	}
}

// settlementsOf are what the index is told of results. Here no hold lasts, and every lane goes on answering,
// so that prefetches go on.
func settlementsOf(batch []ended) []schedule.Settlement {
	settlements := make([]schedule.Settlement, len(batch))
	for i := range batch {
		l := batch[i].lease
		settlements[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered}
	}
	return settlements
}

func settleOf(ix *memq.Index, batch []ended) error {
	_, err := ix.Settle(context.Background(), settlementsOf(batch))
	return err
}

// sound says what is wrong with a lane, if anything is.
func (n *laneLimit) sound() error {
	if len(n.uncounted) > len(n.ended) || n.placed() < 0 || n.stopped < 0 {
		return fmt.Errorf("%d leases do not count, for %d that have ended; %d have a place; %d stop the lane", len(n.uncounted), len(n.ended),
			n.placed(), n.stopped)
	}
	return nil
}
