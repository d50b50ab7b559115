package attempt

import (
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// maxUnsettled: at this many uncommitted results no attempt begins, because a crash would send them
	// again.
	maxUnsettled = 1024
)

// slots bound what a process has in each of three stages:
//
//   - claimed and not begun: as many as could begin at once, and the prefetch, which is what begins in
//     prefetchTime;
//   - on the wire: at most total, and a suspect (see suspect.go);
//   - ended and not committed: at maxUnsettled nothing begins but a suspect; what is on the wire ends.
//
// A callback that is claimed again because a reply was lost may be in no grant: it is beyond the first bound.
//
// Lanes whose last attempt timed out share at most half of total for what they have claimed or on the wire;
// together with lanes that have not answered yet, at most three quarters. So lanes that are known to answer
// always find a slot that is not held by a destination that hangs.
type slots struct {
	total int

	mu                       sync.Mutex
	claimed, wire, unsettled int
	uncertain, timingOut     int
	// waiting are stamped, and begin when others end, in order: len(waiting) <= claimed.
	waiting []ready
	// over: the drain is out of time, and nothing waits any more.
	over bool
	// began are the attempts that began since the time from; rate is how many begin in prefetchTime.
	began, rate int
	from        time.Time
	// freed carries a word when a claim may have slots again after one had none.
	freed  chan struct{}
	wanted bool
}

func newSlots(total int) *slots {
	return &slots{total: total, freed: make(chan struct{}, 1)}
}

// most is how many callbacks a process may have claimed, on the wire, or ended and not committed at once.
func (s *slots) most() int { return 2*s.total + maxPrefetch + maxUnsettled }

// A grant is slots reserved for one claim. Early says that there were so many free that some may be held by
// what is not due yet.
type grant struct {
	n, uncertain, timingOut int
	early                   bool
}

// reserve takes up to most slots for a claim that is about to be made.
func (s *slots) reserve(most int) grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	n := max(min(most, s.free()), 0)
	g := grant{
		n:         n,
		uncertain: min(n, max(s.total-s.total/4-s.uncertain, 0)),
		timingOut: min(n, max((s.total+1)/2-s.timingOut, 0)),
		early:     s.claimed+s.wire <= s.total-max(s.total/4, 1),
	}
	g.timingOut = min(g.timingOut, g.uncertain)
	s.claimed += g.n
	s.uncertain += g.uncertain
	s.timingOut += g.timingOut
	s.wanted = n == 0
	return g
}

// measure takes the rate, if enough time has passed since it was last taken.
func (s *slots) measure() {
	if past := time.Since(s.from); past >= prefetchTime {
		s.rate = int(time.Duration(s.began) * prefetchTime / past)
		s.began, s.from = 0, time.Now()
	}
}

// free is how many more may be claimed.
func (s *slots) free() int {
	if s.unsettled >= maxUnsettled {
		return 0
	}
	return s.total - s.wire + min(s.rate, maxPrefetch) - s.claimed
}

// settle gives back what a grant's claim did not use.
func (s *slots) settle(g grant, leases []schedule.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var uncertain, timingOut int
	for i := range leases {
		if leases[i].Health != schedule.Answering {
			uncertain++
		}
		if leases[i].Health == schedule.TimingOut {
			timingOut++
		}
	}
	s.claimed += len(leases) - g.n
	s.uncertain += uncertain - g.uncertain
	s.timingOut += timingOut - g.timingOut
	s.signal()
}

// begin takes a claimed callback to the wire, or has it wait if there is no room. Forced ones have room.
func (s *slots) begin(r *ready, forced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !forced && !s.room() {
		s.waiting = append(s.waiting, *r)
		s.waiting[len(s.waiting)-1].waited = true
		return false
	}
	s.claimed--
	s.wire++
	s.began++
	return true
}

// room says whether one more may begin.
func (s *slots) room() bool {
	return s.over || s.wire < s.total && s.unsettled < maxUnsettled
}

// next takes the first that waits to the wire, if one may begin.
func (s *slots) next() (r ready, ok bool) {
	if len(s.waiting) == 0 || !s.room() {
		return ready{}, false
	}
	r = s.waiting[0]
	s.waiting[0] = ready{}
	s.waiting = s.waiting[1:]
	s.claimed--
	s.wire++
	s.began++
	return r, true
}

// end takes an attempt from the wire: its result waits to be committed. It returns the one that begins in its
// place.
func (s *slots) end(h schedule.Health) (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire--
	s.unsettled++
	s.leave(h)
	return s.next()
}

// replace takes one from the wire that does not begin after all: it is claimed, as before. It returns the one
// that begins in its place.
func (s *slots) replace() (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wire--
	s.claimed++
	return s.next()
}

// drop ends a claim of which there is no result.
func (s *slots) drop(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.leave(h)
}

// putBack ends a claim without an attempt: its result waits to be committed.
func (s *slots) putBack(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.unsettled++
	s.leave(h)
}

// leave ends a lease's part in the shares.
func (s *slots) leave(h schedule.Health) {
	if h != schedule.Answering {
		s.uncertain--
	}
	if h == schedule.TimingOut {
		s.timingOut--
	}
	s.signal()
}

// settled ends the wait of so many results. It returns those that begin because of it.
func (s *slots) settled(results int) (next []ready) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled -= results
	return s.flow()
}

// flow takes to the wire what waits, as far as there is room.
func (s *slots) flow() (next []ready) {
	for r, ok := s.next(); ok; r, ok = s.next() {
		next = append(next, r)
	}
	s.signal()
	return next
}

// giveUp ends all waiting: the drain is out of time, and an attempt that begins now sends nothing.
func (s *slots) giveUp() []ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	return s.flow()
}

func (s *slots) signal() {
	if !s.wanted || s.free() <= 0 {
		return
	}
	s.wanted = false
	part.Wake(s.freed)
}

// inUse returns how many callbacks are claimed or on the wire.
func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed + s.wire
}

// onWire returns how many attempts are under way.
func (s *slots) onWire() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wire
}
