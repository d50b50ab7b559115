package index

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
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

// laneSetting is what the index is told of a lane.
func laneSetting(l *store.Lane) schedule.LaneSetting {
	return schedule.LaneSetting{Lane: l.ID, Limit: l.Limit, Every: l.Rate.Every(), PausedUntil: l.PausedUntil,
		Version: l.Version}
}

// SetLanes gives the index the settings of lanes that changed since the version, and returns the version that
// it got to. What waits in them for a place is put back.
func (ix *Index) SetLanes(ctx context.Context, since int64) (int64, error) {
	for {
		lanes, err := ix.o.Store.Lanes(ctx, since, PageRows)
		if err != nil {
			return since, fmt.Errorf("read lanes: %w", err)
		}
		if len(lanes) == 0 {
			return since, nil
		}
		settings := make([]schedule.LaneSetting, len(lanes))
		for i := range lanes {
			settings[i] = laneSetting(&lanes[i])
		}
		ix.pauses.set(settings)
		ix.listener.SettingsChanged(settings)
		if err := ix.o.Schedule.SetLanes(ctx, settings); err != nil {
			ix.health.Failed("set lanes", err)
			return since, fmt.Errorf("set lanes: %w", err)
		}
		since = lanes[len(lanes)-1].Version
		if len(lanes) < PageRows {
			return since, nil
		}
	}
}
