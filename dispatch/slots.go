package dispatch

import (
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// slots are the attempts that a process may have in flight. Lanes whose last attempt timed out share at most half of
// them; together with lanes that have not answered yet, at most three quarters. So lanes that are known to answer always find a
// slot that is not held by a destination that hangs.
type slots struct {
	mu    sync.Mutex
	total int
	// Used counts by share: everything, what is not answering, what times out.
	used, uncertain, timingOut int
	// freed carries a word when a slot was freed while somebody had found none.
	freed  chan struct{}
	wanted bool
}

func newSlots(total int) *slots {
	return &slots{total: total, freed: make(chan struct{}, 1)}
}

// A grant is slots reserved for one claim. Early says that there were so many free that some may be held by what is not due yet.
type grant struct {
	n, uncertain, timingOut int
	early                   bool
}

// reserve takes up to most free slots for a claim that is about to be made.
func (s *slots) reserve(most int) grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := max(min(most, s.total-s.used), 0)
	g := grant{
		n:         n,
		uncertain: min(n, max(s.total-s.total/4-s.uncertain, 0)),
		timingOut: min(n, max((s.total+1)/2-s.timingOut, 0)),
		early:     s.used <= s.total-max(s.total/4, 1),
	}
	g.timingOut = min(g.timingOut, g.uncertain)
	s.used += g.n
	s.uncertain += g.uncertain
	s.timingOut += g.timingOut
	s.wanted = n == 0
	return g
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
	s.used += len(leases) - g.n
	s.uncertain += uncertain - g.uncertain
	s.timingOut += timingOut - g.timingOut
	s.tell()
}

// release frees the slot of a lease that was counted with that health.
func (s *slots) release(h schedule.Health) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if h != schedule.Answering {
		s.uncertain--
	}
	if h == schedule.TimingOut {
		s.timingOut--
	}
	s.tell()
}

func (s *slots) tell() {
	if !s.wanted || s.used >= s.total {
		return
	}
	s.wanted = false
	select {
	case s.freed <- struct{}{}:
	default:
	}
}

// roomy says whether at least a quarter of the slots is free.
func (s *slots) roomy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used <= s.total-s.total/4
}

// inUse returns how many slots are taken.
func (s *slots) inUse() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}
