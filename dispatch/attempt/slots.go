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
//   - on the running: at most total, and a suspect (see suspect.go);
//   - ended and not committed: at maxUnsettled nothing begins but a suspect; what is on the running ends.
//
// A callback that is claimed again because a reply was lost may be in no grant: it is beyond the first bound.
//
// Lanes whose last attempt timed out share at most half of total for what they have claimed or on the running;
// together with lanes that have not answered yet, at most three quarters. So lanes that are known to answer
// always find a slot that is not held by a destination that hangs.
type slots struct {
	total int

	mu                          sync.Mutex
	claimed, running, unsettled int
	notAnswering, timingOut     int
	// waiting are stamped, and begin when others end, in order: len(waiting) <= claimed.
	waiting []ready
	// over: the drain is out of time, and nothing waits any more.
	drainOver bool
	// began are the attempts that began since the time from; rate is how many begin in prefetchTime.
	began, rate int
	rateSince   time.Time
	// freed carries a word when a claim may have slots again after one had none.
	freed      chan struct{}
	claimWaits bool
}

func newSlots(total int) *slots {
	return &slots{total: total, freed: make(chan struct{}, 1)}
}

// most is how many callbacks a process may have claimed, on the running, or ended and not committed at once.
func (s *slots) maxCallbacks() int { return 2*s.total + maxPrefetch + maxUnsettled }

// A grant is slots reserved for one claim. Early says that there were so many free that some may be held by
// what is not due yet.
type grant struct {
	n, notAnswering, timingOut int
	lookahead                  bool
}

// reserve takes up to most slots for a claim that is about to be made.
func (s *slots) reserve(most int) grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measureRate()
	n := max(min(most, s.free()), 0)
	g := grant{
		n:            n,
		notAnswering: min(n, max(s.total-s.total/4-s.notAnswering, 0)),
		timingOut:    min(n, max((s.total+1)/2-s.timingOut, 0)),
		lookahead:    s.claimed+s.running <= s.total-max(s.total/4, 1),
	}
	g.timingOut = min(g.timingOut, g.notAnswering)
	s.claimed += g.n
	s.notAnswering += g.notAnswering
	s.timingOut += g.timingOut
	s.claimWaits = n == 0
	return g
}

// measure takes the rate, if enough time has passed since it was last taken.
func (s *slots) measureRate() {
	if past := time.Since(s.rateSince); past >= prefetchTime {
		s.rate = int(time.Duration(s.began) * prefetchTime / past)
		s.began, s.rateSince = 0, time.Now()
	}
}

// free is how many more may be claimed.
func (s *slots) free() int {
	if s.unsettled >= maxUnsettled {
		return 0
	}
	return s.total - s.running + min(s.rate, maxPrefetch) - s.claimed
}

// settle gives back what a grant's claim did not use.
func (s *slots) returnUnused(g grant, leases []schedule.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var notAnswering, timingOut int
	for i := range leases {
		if leases[i].Health != schedule.Answering {
			notAnswering++
		}
		if leases[i].Health == schedule.TimingOut {
			timingOut++
		}
	}
	s.claimed += len(leases) - g.n
	s.notAnswering += notAnswering - g.notAnswering
	s.timingOut += timingOut - g.timingOut
	s.signalFree()
}

// begin takes a claimed callback to the running, or has it wait if there is no room. Forced ones have room.
func (s *slots) begin(r *ready, forced bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !forced && !s.mayBegin() {
		s.waiting = append(s.waiting, *r)
		s.waiting[len(s.waiting)-1].waited = true
		return false
	}
	s.claimed--
	s.running++
	s.began++
	return true
}

// room says whether one more may begin.
func (s *slots) mayBegin() bool {
	return s.drainOver || s.running < s.total && s.unsettled < maxUnsettled
}

// next takes the first that waits to the running, if one may begin.
func (s *slots) beginNext() (r ready, ok bool) {
	if len(s.waiting) == 0 || !s.mayBegin() {
		return ready{}, false
	}
	r = s.waiting[0]
	s.waiting[0] = ready{}
	s.waiting = s.waiting[1:]
	s.claimed--
	s.running++
	s.began++
	return r, true
}

// end takes an attempt from the running: its result waits to be committed. It returns the one that begins in its
// place.
func (s *slots) end(h schedule.Health) (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.unsettled++
	s.leaveShares(h)
	return s.beginNext()
}

// replace takes one from the running that does not begin after all: it is claimed, as before. It returns the one
// that begins in its place.
func (s *slots) undoBegin() (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.claimed++
	return s.beginNext()
}

// drop ends a claim of which there is no result.
func (s *slots) drop(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.leaveShares(h)
}

// putBack ends a claim without an attempt: its result waits to be committed.
func (s *slots) putBack(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.unsettled++
	s.leaveShares(h)
}

// leave ends a lease's part in the shares.
func (s *slots) leaveShares(h schedule.Health) {
	if h != schedule.Answering {
		s.notAnswering--
	}
	if h == schedule.TimingOut {
		s.timingOut--
	}
	s.signalFree()
}

// settled ends the wait of so many results. It returns those that begin because of it.
func (s *slots) committed(results int) (next []ready) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled -= results
	return s.beginWaiting()
}

// flow takes to the running what waits, as far as there is room.
func (s *slots) beginWaiting() (next []ready) {
	for r, ok := s.beginNext(); ok; r, ok = s.beginNext() {
		next = append(next, r)
	}
	s.signalFree()
	return next
}

// giveUp ends all waiting: the drain is out of time, and an attempt that begins now sends nothing.
func (s *slots) beginAll() []ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainOver = true
	return s.beginWaiting()
}

func (s *slots) signalFree() {
	if !s.claimWaits || s.free() <= 0 {
		return
	}
	s.claimWaits = false
	part.Wake(s.freed)
}

// inUse returns how many callbacks are claimed or on the running.
func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed + s.running
}

// onWire returns how many attempts are under way.
func (s *slots) runningAttempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}
