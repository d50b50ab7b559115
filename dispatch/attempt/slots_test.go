package attempt

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

func leasesOf(healths ...schedule.Health) []schedule.Lease {
	l := make([]schedule.Lease, len(healths))
	for i, h := range healths {
		l[i].Health = h
	}
	return l
}

// Lanes that time out have at most half of the slots, and together with lanes that have not answered yet at
// most three quarters. A claim may take callbacks that are not due only if a quarter of the slots is free.
func TestSlotsKeepRoomForLanesThatAnswer(t *testing.T) {
	t.Parallel()
	s := newSlots(8)
	g := s.reserve(64)
	if g != (grant{n: 8, notAnswering: 6, timingOut: 4, lookahead: true}) {
		t.Fatalf("first grant: %+v", g)
	}
	s.returnUnused(g, leasesOf(
		schedule.TimingOut, schedule.TimingOut, schedule.TimingOut, schedule.TimingOut))
	g = s.reserve(64)
	if g != (grant{n: 4, notAnswering: 2, timingOut: 0, lookahead: true}) {
		t.Fatalf("with four that time out: %+v", g)
	}
	s.returnUnused(g, leasesOf(schedule.Unproven, schedule.Unproven))
	g = s.reserve(64)
	if g != (grant{n: 2, lookahead: true}) {
		t.Fatalf("with two unproven more: %+v", g)
	}
	s.returnUnused(g, leasesOf(schedule.Answering, schedule.Answering))
	g = s.reserve(1)
	if g != (grant{}) {
		t.Fatalf("with none free: %+v", g)
	}
	select {
	case <-s.freed:
		t.Fatal("a signal that a slot is free, and none is")
	default:
	}
	s.returnUnused(g, nil)
	s.drop(schedule.TimingOut)
	select {
	case <-s.freed:
	default:
		t.Fatal("no signal that a slot is free")
	}
	g = s.reserve(64)
	if g != (grant{n: 1, notAnswering: 1, timingOut: 1}) {
		t.Fatalf("after one that timed out: %+v", g)
	}
	s.returnUnused(g, nil)
	for _, h := range []schedule.Health{schedule.TimingOut, schedule.TimingOut, schedule.TimingOut,
		schedule.Unproven, schedule.Unproven, schedule.Answering, schedule.Answering} {
		s.drop(h)
	}
	s.check(t, 0, 0, 0, 0)
}

// check compares the stages, and checks the invariants that slots documents.
func (s *slots) check(t *testing.T, claimed, running, unsettled, waiting int) {
	t.Helper()
	if s.claimed != claimed || s.running != running || s.unsettled != unsettled || len(s.waiting) != waiting {
		t.Errorf("%d are claimed, %d of them wait, %d run, %d are not settled; want %d, %d, %d, %d",
			s.claimed, len(s.waiting), s.running, s.unsettled, claimed, waiting, running, unsettled)
	}
	if len(s.waiting) > s.claimed {
		t.Errorf("%d wait, and only %d are claimed", len(s.waiting), s.claimed)
	}
	if claimed+running == 0 && (s.notAnswering != 0 || s.timingOut != 0) {
		t.Errorf("the shares leak: %d notAnswering, %d timing out", s.notAnswering, s.timingOut)
	}
}

// readyOf returns a stamped callback in a lane that answers.
func readyOf(lane int64) *ready {
	return &ready{lease: &schedule.Lease{Item: schedule.Item{Lane: lane}, Health: schedule.Answering}}
}

// At most so many attempts run as there are workers. Callbacks that are claimed beyond them wait, and begin
// in order as attempts end.
func TestNoMoreAttemptsRunThanWorkers(t *testing.T) {
	t.Parallel()
	s := newSlots(2)
	s.rateSince, s.rate = time.Now().Add(time.Hour), 3 // three begin in prefetchTime
	g := s.reserve(64)
	if g.n != 5 {
		t.Fatalf("%d may be claimed, want two and three more", g.n)
	}
	s.returnUnused(g, leasesOf(1, 1, 1, 1, 1))
	for lane := range int64(5) {
		if began := s.begin(readyOf(lane), false); began != (lane < 2) {
			t.Errorf("%d began: %t", lane, began)
		}
	}
	s.check(t, 3, 2, 0, 3)
	if g := s.reserve(64); g.n != 0 {
		t.Errorf("%d more may be claimed", g.n)
	}
	for lane := int64(2); lane < 5; lane++ {
		if r, ok := s.end(schedule.Answering); !ok || r.lease.Lane != lane {
			t.Errorf("%+v begins in its place, want lane %d", r.lease, lane)
		}
	}
	if _, ok := s.end(schedule.Answering); ok {
		t.Error("something begins, and nothing waits")
	}
	s.check(t, 0, 1, 4, 0)
	if next := s.committed(4); len(next) != 0 {
		t.Errorf("%d begin", len(next))
	}
}

// The prefetch follows the rate at which attempts begin. It is zero if attempts take long.
func TestPrefetchFollowsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(4)
		for _, c := range []struct{ began, want int }{{0, 4}, {10, 4 + 5}, {10_000, 4 + maxPrefetch},
			{0, 4}} {
			s.reserve(0) // starts the measured time
			s.mu.Lock()
			s.began = c.began
			s.mu.Unlock()
			time.Sleep(2 * prefetchTime)
			g := s.reserve(1000)
			if g.n != c.want {
				t.Errorf("after %d that began in %s %d may be claimed, want %d", c.began, 2*prefetchTime, g.n,
					c.want)
			}
			s.returnUnused(g, nil)
		}
	})
}

// With maxUnsettled results that are not committed, nothing begins and nothing is claimed: a crash would send
// all of them again.
func TestNothingBeginsWhileResultsAreNotCommitted(t *testing.T) {
	t.Parallel()
	s := newSlots(maxUnsettled + 8)
	g := s.reserve(maxUnsettled + 2)
	healths := make([]schedule.Health, g.n)
	for i := range healths {
		healths[i] = schedule.Answering
	}
	s.returnUnused(g, leasesOf(healths...))
	for lane := range int64(maxUnsettled) {
		if !s.begin(readyOf(lane), false) {
			t.Fatalf("%d does not begin", lane)
		}
		s.end(schedule.Answering)
	}
	if s.begin(readyOf(1), false) || s.begin(readyOf(2), false) || s.reserve(64).n != 0 {
		t.Error("something begins, or may be claimed")
	}
	s.check(t, 2, 0, maxUnsettled, 2)
	if next := s.committed(1); len(next) != 2 {
		t.Errorf("%d of 2 begin when one is settled", len(next))
	}
	if s.reserve(1).n != 1 {
		t.Error("nothing may be claimed though there is room")
	}
}

// After a drain that is out of time everything begins, and nothing waits any more.
func TestNothingWaitsAfterADrain(t *testing.T) {
	t.Parallel()
	s := newSlots(1)
	s.claimed = 6
	for lane := range int64(5) {
		s.begin(readyOf(lane), false)
	}
	s.putBack(schedule.Answering)
	s.check(t, 4, 1, 1, 4)
	if all := s.beginAll(); len(all) != 4 || all[0].lease.Lane != 1 || all[3].lease.Lane != 4 {
		t.Errorf("given up: %+v", all)
	}
	s.claimed++
	if !s.begin(readyOf(9), false) {
		t.Error("one waits after the end")
	}
	s.check(t, 0, 6, 1, 0)
}

// Two claims under way never get more slots together than there are.
func TestSlotsAreReservedWhileAClaimIsUnderWay(t *testing.T) {
	t.Parallel()
	s := newSlots(10)
	a, b := s.reserve(6), s.reserve(6)
	if a.n != 6 || b.n != 4 || a.notAnswering+b.notAnswering > 8 || a.timingOut+b.timingOut > 5 {
		t.Errorf("got %+v and %+v", a, b)
	}
}
