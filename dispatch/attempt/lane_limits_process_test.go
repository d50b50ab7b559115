package attempt

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
)

const (
	modelLimit = 8
	modelItems = 80
)

// A limitProcess is the lane limits of one process, with what is under way in it. Each kind of step may be
// delayed while others go on.
type limitProcess struct {
	name     string
	limits   *laneLimits
	ix       *memq.Index
	claims   int
	req      schedule.ClaimRequest
	claiming bool
	repeats  bool      // the next claim repeats the last one
	at       time.Time // of the claim
	reply    *schedule.Claimed
	granted  []schedule.Lease // by the claim under way, or by the one that is repeated next
	claimed  []ready          // not stamped yet
	running  []ready
	ended    []ended
	sent     []ended // their settlements are on their way
	batch    []schedule.Settlement
	missed   []schedule.Settlement // given up, but may still arrive
	lost     []*schedule.Lease     // of claims whose replies were lost
	stale    []*schedule.Lease     // whose results lost the fence
}

func newLimitProcess(name string, ix *memq.Index) *limitProcess {
	return &limitProcess{name: name, ix: ix, limits: newLaneLimits(ix.ShardOf, 1)}
}

func (s *limitProcess) runningAttempts() map[int64]int {
	n := make(map[int64]int)
	for _, r := range s.running {
		n[r.lease.Lane]++
	}
	return n
}

// limitSteps are the kinds of steps, in the order in which a process takes them. In busySteps, claims and the
// steps of a lease are more frequent than settlements, so that lanes are full and claims name leases before
// their results are settled. limitFaults happen now and then.
var (
	limitSteps = []string{"ask", "claim", "reply", "stamp", "end", "send", "settle"}
	busySteps  = slices.Concat(limitSteps, limitSteps[:5], limitSteps[:5],
		[]string{"stamp", "stamp", "end", "expire"})
	limitFaults = []string{"repeat", "quarantined", "reset", "changed", "lose", "missed", "late"}
)

// step takes one step of that kind, and returns false if there is nothing to do. choose picks among the
// candidates. drop makes the step fail, or lose its reply.
func (s *limitProcess) step(kind string, choose func(n int) int, drop bool) (bool, error) {
	ctx := context.Background()
	switch {
	case kind == "ask" && !s.claiming:
		s.ask(choose)
	case kind == "claim" && s.claiming && s.reply == nil:
		c, err := s.ix.Claim(ctx, 0, s.req)
		s.reply, s.granted = &c, c.Leases
		return true, err
	case kind == "repeat" && s.claiming: // its reply is lost, and the next claim has the same token
		s.failClaim()
		s.repeats = true
	case kind == "reply" && s.claiming && drop:
		// The claim fails, executed or not. Its leases wait until they expire.
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
		s.claiming, s.reply = false, nil
	case kind == "stamp" && len(s.claimed) > 0:
		return true, s.stamp(take(&s.claimed, choose), drop)
	case kind == "quarantined" && len(s.claimed) > 0:
		return true, s.quarantined(take(&s.claimed, choose), drop)
	case kind == "end" && len(s.running) > 0:
		out := ended{signal: schedule.Answered}
		if drop {
			out = []ended{{hold: 1, signal: schedule.Answered}, {signal: schedule.TimedOut},
				{signal: schedule.Unanswered}, {}}[choose(4)]
		}
		s.end(take(&s.running, choose), out)
	case kind == "lose" && len(s.ended) > 0: // its result loses the fence, and is never settled
		o := take(&s.ended, choose)
		s.giveUp(s.limits.resultsKnown([]ended{o}))
		s.stale = append(s.stale, o.lease)
	case kind == "send" && len(s.ended) > 0 && s.batch == nil:
		n := 1 + choose(len(s.ended))
		s.sent, s.ended = s.ended[:n:n], s.ended[n:]
		s.batch = settlementsOf(s.sent)
		s.limits.addSuccessors(s.batch)
	case kind == "settle" && s.batch != nil:
		_, err := s.ix.Settle(ctx, s.batch)
		if !drop { // otherwise its reply is lost, and it is repeated
			s.settled()
		}
		return true, err
	case kind == "missed" && s.batch != nil:
		s.missed = append(s.missed, s.batch...)
		s.settled()
	case kind == "late" && len(s.missed) > 0:
		n := 1 + choose(len(s.missed))
		_, err := s.ix.Settle(ctx, s.missed[:n])
		if !drop {
			s.missed = s.missed[n:]
		}
		return true, err
	case kind == "expire" && len(s.lost) > 0:
		return true, s.settle(take(&s.lost, choose), schedule.Ack)
	case kind == "expire" && len(s.stale) > 0 && s.idle():
		return true, s.settle(take(&s.stale, choose), schedule.Ack)
	case kind == "reset":
		s.giveUp(s.limits.resetPlaces())
	case kind == "changed":
		s.giveUp(s.limits.settingsChanged([]schedule.LaneSetting{{Lane: 1}}))
	default:
		return false, nil
	}
	return true, nil
}

// idle returns whether no lease exists that could have taken a place from another one. A lease lives longer
// than those that take its place.
func (s *limitProcess) idle() bool {
	for _, n := range s.limits.shards[0].lanes {
		if n.open > 0 || len(n.ended) > 0 {
			return false
		}
	}
	return true
}

func take[T any](list *[]T, choose func(n int) int) T {
	i := choose(len(*list))
	one := (*list)[i]
	*list = append((*list)[:i:i], (*list)[i+1:]...)
	return one
}

func (s *limitProcess) ask(choose func(n int) int) {
	s.claims++
	token := fmt.Sprint(s.name, s.claims)
	if s.repeats {
		token = s.req.Token
	} else {
		s.granted = nil
	}
	s.claiming, s.repeats, s.at = true, false, time.Now()
	named, prefetch := s.limits.beginClaim(0)
	most := []int{16, 3, 1, 0}[max(choose(16)-12, 0)]
	s.req = schedule.ClaimRequest{
		Owner: s.name, Token: token, Max: most, MaxUncertain: 16, MaxTimingOut: 16, Lease: time.Hour,
		LaneLimit: modelLimit, Ended: slices.Clone(named), Prefetch: prefetch,
	}
}

func (s *limitProcess) failClaim() {
	s.giveUp(s.limits.failClaim(0))
	s.claiming, s.reply = false, nil
}

// stamp begins a claimed lease, lets it wait, or drops it.
func (s *limitProcess) stamp(r ready, drop bool) error {
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

// quarantined begins a claimed lease before its stamp, as attemptAlone does. With fails its stamp fails. A
// lease that is handed back may be claimed again before it is dropped; with fails a copy of it is dropped.
func (s *limitProcess) quarantined(r ready, fails bool) error {
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

func (s *limitProcess) end(r ready, out ended) {
	out.lease = r.lease
	next, back, _ := s.limits.end(&out, time.Millisecond)
	if next != nil {
		s.running = append(s.running, *next)
	}
	s.ended = append(s.ended, out)
	s.giveUp(back)
}

func (s *limitProcess) giveUp(back []ready) {
	for _, b := range back {
		s.ended = append(s.ended, ended{lease: b.lease})
	}
}

// settled: the settlements are applied or given up.
func (s *limitProcess) settled() {
	s.giveUp(s.limits.resultsKnown(s.sent))
	s.batch, s.sent = nil, nil
}

// settlementsOf returns the settlements of results. No Retry-After lasts and every lane stays answering, so
// that prefetches go on.
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

// settle ends a lease in the index without a successor; with Divert it is due again at once.
func (s *limitProcess) settle(l *schedule.Lease, o schedule.Outcome) error {
	list := settlementsOf([]ended{{lease: l}})
	if o == schedule.Divert {
		list[0].Outcome, list[0].Due, list[0].Signal = o, 1, schedule.NoSignal
	}
	_, err := s.ix.Settle(context.Background(), list)
	return err
}
