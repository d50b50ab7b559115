package attempt

import (
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// maxUnsettled: with this many results that are not committed, no attempt begins. A crash would send all
// of them again.
const maxUnsettled = 1024

// slots bound the callbacks that a process has in each of three stages:
//
//   - claimed, not begun: as many as could begin at once, and as many as begin in prefetchTime;
//   - running attempts: at most total, plus one quarantined callback (quarantine.go);
//   - ended, not committed: from maxUnsettled on, only a quarantined callback begins; running attempts end.
//
// A callback that is claimed again because a reply was lost may be in no grant, and exceeds the first bound.
//
// Lanes whose last attempt timed out have at most half of total, claimed or running. Together with lanes that
// have not answered yet they have at most three quarters. So with four slots or more, receivers that hang
// never hold all of them, and lanes whose receivers answer have the rest.
//
// Invariants: len(waiting) <= claimed; claimed + running = 0 implies notAnswering = timingOut = 0
// (slots.check in the tests).
type slots struct {
	total int

	mu                          sync.Mutex
	claimed, running, unsettled int
	notAnswering, timingOut     int
	// waiting are stamped and begin in order, when other attempts end.
	waiting []ready
	// drainOver: the drain is out of time, and no callback waits any more.
	drainOver bool
	// began counts the attempts that began since rateSince. rate is how many begin in prefetchTime.
	began, rate int
	rateSince   time.Time
	// freed holds a token when slots are free after a claim had none. claimWaits: the last claim had none.
	freed      chan struct{}
	claimWaits bool
}

func newSlots(total int) *slots {
	return &slots{total: total, freed: make(chan struct{}, 1)}
}

// maxCallbacks returns the most callbacks that a process has claimed, running, or ended and not committed at
// once.
func (s *slots) maxCallbacks() int { return 2*s.total + maxPrefetch + maxUnsettled }

// A grant is the slots that are reserved for one claim. notAnswering and timingOut are how many of n may go
// to lanes that are not answering, and to lanes that time out. lookahead: at least a quarter of the slots is
// free, so the claim may take callbacks that are not due yet. Scarce slots are for due callbacks.
type grant struct {
	n, notAnswering, timingOut int
	lookahead                  bool
}

// reserve takes up to most slots for a claim. The caller must call returnUnused after the claim, also if it
// failed.
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

// measureRate updates the rate if prefetchTime has passed since the last update.
func (s *slots) measureRate() {
	if past := time.Since(s.rateSince); past >= prefetchTime {
		s.rate = int(time.Duration(s.began) * prefetchTime / past)
		s.began, s.rateSince = 0, time.Now()
	}
}

// free returns how many more callbacks may be claimed; it may be negative.
func (s *slots) free() int {
	if s.unsettled >= maxUnsettled {
		return 0
	}
	return s.total - s.running + min(s.rate, maxPrefetch) - s.claimed
}

// returnUnused returns the slots of a grant that its claim did not use.
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

// begin begins the attempt of a claimed callback, or queues the callback and returns false if there is no
// room. With forced it always begins.
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

// mayBegin returns whether one more attempt may begin.
func (s *slots) mayBegin() bool {
	return s.drainOver || s.running < s.total && s.unsettled < maxUnsettled
}

// beginNext begins the first callback that waits, if one may begin.
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

// end ends an attempt; its result is not committed yet. It returns the callback that begins in its slot.
func (s *slots) end(h schedule.Health) (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.unsettled++
	s.leaveShares(h)
	return s.beginNext()
}

// undoBegin takes back a begin whose attempt does not begin after all: the callback counts as claimed again.
// It returns the callback that begins in its slot.
func (s *slots) undoBegin() (r ready, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	s.claimed++
	return s.beginNext()
}

// drop frees the slot of a claimed callback that has no result.
func (s *slots) drop(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.leaveShares(h)
}

// putBack frees the slot of a claimed callback without an attempt; its result is not committed yet.
func (s *slots) putBack(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed--
	s.unsettled++
	s.leaveShares(h)
}

// leaveShares removes a lease from the shares of lanes that do not answer.
func (s *slots) leaveShares(h schedule.Health) {
	if h != schedule.Answering {
		s.notAnswering--
	}
	if h == schedule.TimingOut {
		s.timingOut--
	}
	s.signalFree()
}

// committed notes that so many results are committed or given up. It returns the callbacks that begin because
// of it.
func (s *slots) committed(results int) (next []ready) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsettled -= results
	return s.beginWaiting()
}

// beginWaiting begins waiting callbacks, as far as there is room.
func (s *slots) beginWaiting() (next []ready) {
	for r, ok := s.beginNext(); ok; r, ok = s.beginNext() {
		next = append(next, r)
	}
	s.signalFree()
	return next
}

// beginAll begins all waiting callbacks: the drain is out of time, and under its ended context they send
// nothing and are put back.
func (s *slots) beginAll() []ready {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drainOver = true
	return s.beginWaiting()
}

// signalFree wakes a claimer that had no slot, if one is free now.
func (s *slots) signalFree() {
	if !s.claimWaits || s.free() <= 0 {
		return
	}
	s.claimWaits = false
	process.Wake(s.freed)
}

// inUse returns how many callbacks are claimed or running.
func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.claimed + s.running
}

// runningAttempts returns how many attempts run.
func (s *slots) runningAttempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}
