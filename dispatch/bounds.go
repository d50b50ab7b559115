package dispatch

import (
	"math"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// A bound is what people have set for a lane, as far as the wire must keep to it: what was claimed ahead of a change is still here.
type bound struct {
	// limit of attempts on the wire; zero: none of its own.
	limit       int
	pausedUntil int64
}

// set takes over the settings of lanes, and returns what is held back in lanes that are paused now and is to be put back.
func (w *wire) set(settings []schedule.LaneSetting, now int64) (back []ready) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range settings {
		if s.Limit == 0 && s.PausedUntil <= now {
			delete(w.bounds, s.Lane)
			continue
		}
		w.bounds[s.Lane] = bound{limit: s.Limit, pausedUntil: s.PausedUntil}
		if n := w.lanes[s.Lane]; n != nil && s.PausedUntil > now {
			n.given = 0
			back = append(back, w.recede(n)...)
		}
	}
	return back
}

// mostOf returns how many attempts of the lane may be on the wire.
func (w *wire) mostOf(lane int64) int {
	if len(w.bounds) > 0 {
		if b := w.bounds[lane]; b.limit > 0 {
			return b.limit
		}
	}
	return math.MaxInt
}

// paused says whether nothing of the lane may begin.
func (w *wire) paused(lane int64) bool {
	if len(w.bounds) == 0 {
		return false
	}
	b, ok := w.bounds[lane]
	return ok && b.pausedUntil > 0 && b.pausedUntil > w.now()
}

// isPaused is paused for whoever does not hold the lock.
func (w *wire) isPaused(lane int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paused(lane)
}
