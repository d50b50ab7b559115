package dispatch

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	wireLimit = 8
	wireItems = 60
)

// A wireSide is one process's wire, with what is under way in it. Every step of it may be held up while others go on.
type wireSide struct {
	name    string
	w       *wire
	ix      *memq.Index
	claims  int
	req     schedule.ClaimRequest
	asked   bool
	reply   *schedule.Claimed
	claimed []schedule.Lease // not stamped yet
	running []ready
	ended   []ended
	told    []ended
	done    int
	lost    []schedule.Lease // of claims whose replies were lost
}

func (s *wireSide) onWire() map[int64]int {
	n := make(map[int64]int)
	for _, r := range s.running {
		n[r.l.Lane]++
	}
	return n
}

// over are the attempts of a lane that were made in any case.
func (s *wireSide) over(lane int64) int {
	if n := s.w.lanes[lane]; n != nil {
		return n.over
	}
	return 0
}

// step takes one step of that kind, if there is something to do, and says whether there was.
func (s *wireSide) step(kind string, some func(n int) int, drop bool) (bool, error) {
	ctx := context.Background()
	switch {
	case kind == "ask" && !s.asked:
		s.claims++
		s.asked = true
		s.req = schedule.ClaimRequest{
			Owner: s.name, Token: fmt.Sprint(s.name, s.claims), Max: 16, MaxUncertain: 16, MaxTimingOut: 16, Lease: time.Hour, LaneLimit: wireLimit,
			Allowances: s.w.allowances(0, true),
		}
	case kind == "claim" && s.asked && s.reply == nil:
		c, err := s.ix.Claim(ctx, 0, s.req)
		if err != nil {
			return false, err
		}
		s.reply = &c
	case kind == "reply" && s.asked && drop:
		// The claim fails, whether it was executed or not: its leases wait for their end.
		if s.reply != nil {
			s.lost = append(s.lost, s.reply.Leases...)
		}
		s.giveUp(s.w.failed(0))
		s.asked, s.reply = false, nil
	case kind == "reply" && s.reply != nil:
		_, next, back := s.w.claimed(0, s.reply)
		s.running = append(s.running, next...)
		s.giveUp(back)
		s.claimed = append(s.claimed, s.reply.Leases...)
		s.asked, s.reply = false, nil
	case kind == "stamp" && len(s.claimed) > 0:
		i := some(len(s.claimed))
		l := s.claimed[i]
		s.claimed = append(s.claimed[:i:i], s.claimed[i+1:]...)
		if drop {
			s.giveUp(s.w.dropped(&l))
			return true, s.settle([]ended{{lease: &l}}, schedule.Divert)
		}
		r := ready{l: &l}
		forced := some(10) == 9 // one that is attempted alone
		switch s.w.begin(&r, forced) {
		case begins:
			s.running = append(s.running, r)
		case goesBack:
			s.giveUp([]ready{r})
		case held:
		}
	case kind == "end" && len(s.running) > 0:
		i := some(len(s.running))
		r := s.running[i]
		s.running = append(s.running[:i:i], s.running[i+1:]...)
		out := ended{lease: r.l, epoch: r.epoch}
		if drop {
			out.hold = 1 // what waits is put back; the lane goes on, here
		}
		next, back, _ := s.w.end(&out, time.Millisecond)
		if next != nil {
			s.running = append(s.running, *next)
		}
		s.ended = append(s.ended, out)
		s.giveUp(back)
	case kind == "tell" && len(s.ended) > 0:
		n := 1 + some(len(s.ended))
		s.w.telling(s.ended[:n])
		s.told = append(s.told, s.ended[:n]...)
		s.ended = s.ended[n:]
	case kind == "settle" && len(s.told) > 0:
		told := s.told
		s.told = nil
		s.done += len(told)
		err := s.settle(told, schedule.Ack)
		s.w.settled(told)
		return true, err
	default:
		return false, nil
	}
	return true, nil
}

func (s *wireSide) giveUp(back []ready) {
	for _, b := range back {
		s.ended = append(s.ended, ended{lease: b.l, epoch: b.epoch})
	}
}

func (s *wireSide) settle(batch []ended, o schedule.Outcome) error {
	settlements := make([]schedule.Settlement, len(batch))
	for i := range batch {
		settlements[i] = schedule.Settlement{Item: batch[i].lease.Item, Token: batch[i].lease.Token, Outcome: o, Signal: schedule.Answered}
	}
	_, err := s.ix.Settle(context.Background(), settlements)
	return err
}

var wireSteps = []string{"ask", "claim", "reply", "stamp", "end", "tell", "settle"}

// A wireCourse takes a wire through claims whose stamps, attempts and results a test ends when it likes.
type wireCourse struct {
	t *testing.T
	w *wire
	n int
}

// claim begins a claim and ends it with so many leases within the lane's concurrency and ahead of it, and more to come.
func (c *wireCourse) claim(within, ahead int) (stamping, next, back []ready) {
	c.w.allowances(0, true)
	return c.claimed(within, ahead)
}

func (c *wireCourse) claimed(within, ahead int) (stamping, next, back []ready) {
	claimed := schedule.Claimed{More: true}
	for i := range within + ahead {
		c.n++
		claimed.Leases = append(claimed.Leases, schedule.Lease{Item: schedule.Item{ID: fmt.Sprint(c.n), Lane: 1}, Ahead: i >= within})
	}
	_, next, back = c.w.claimed(0, &claimed)
	for i := range claimed.Leases {
		stamping = append(stamping, ready{w: &store.Stamped{}, l: &claimed.Leases[i]})
	}
	return stamping, next, back
}

// begin has stamped ones begin, each of which must become that.
func (c *wireCourse) begin(stamped []ready, want turn) {
	c.t.Helper()
	for i := range stamped {
		if got := c.w.begin(&stamped[i], false); got != want {
			c.t.Fatalf("%s of %d that were stamped: %v, want %v", stamped[i].l.ID, len(stamped), got, want)
		}
	}
}

// end ends attempts and returns them, and those that begin in their places.
func (c *wireCourse) end(running []ready) (over []ended, next []ready) {
	for _, r := range running {
		over = append(over, ended{lease: r.l, epoch: r.epoch})
		n, _, _ := c.w.end(&over[len(over)-1], time.Millisecond)
		if n != nil {
			next = append(next, *n)
		}
	}
	return over, next
}

// heldBehindAClaim has 8 attempts end, then a claim begin, which is given their permits, and then 16 be stamped that were claimed ahead.
func heldBehindAClaim(t *testing.T) *wireCourse {
	t.Helper()
	c := &wireCourse{t: t, w: newWire(1, atStart)}
	running, _, _ := c.claim(8, 0)
	c.begin(running, begins)
	ahead, _, _ := c.claim(0, 16)
	c.end(running)
	c.w.allowances(0, true)
	c.begin(ahead, held)
	return c
}

// atStart is a clock that stands still.
func atStart() int64 { return 0 }
