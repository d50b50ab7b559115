package dispatch

import (
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// pauses are the lanes that are paused, as far as this process has read. The index decides what is claimed;
// these are for what was claimed before the pause and has not begun.
type pauses struct {
	now func() int64 // the index's clock

	mu    sync.RWMutex
	until map[int64]int64
}

func newPauses(now func() int64) *pauses {
	return &pauses{now: now, until: make(map[int64]int64)}
}

// set takes over what is set for lanes.
func (p *pauses) set(settings []schedule.LaneSetting) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range settings {
		if s := &settings[i]; s.PausedUntil > now {
			p.until[s.Lane] = s.PausedUntil
		} else {
			delete(p.until, s.Lane)
		}
	}
}

// has says whether the lane is paused now.
func (p *pauses) has(lane int64) bool {
	p.mu.RLock()
	until := p.until[lane]
	p.mu.RUnlock()
	return until > 0 && until > p.now()
}
