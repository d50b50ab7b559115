package index

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pauses are the paused lanes, by the settings that this process has read.
type pauses struct {
	now func() int64 // by the index's clock

	mu    sync.RWMutex
	until map[int64]int64
}

func newPauses(now func() int64) *pauses {
	return &pauses{now: now, until: make(map[int64]int64)}
}

// set applies the settings of lanes.
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

// has returns whether the lane is paused now.
func (p *pauses) has(lane int64) bool {
	p.mu.RLock()
	until := p.until[lane]
	p.mu.RUnlock()
	return until > 0 && until > p.now()
}

func laneSetting(l *store.Lane) schedule.LaneSetting {
	return schedule.LaneSetting{Lane: l.ID, Limit: l.Limit, Every: l.Rate.Every(), PausedUntil: l.PausedUntil,
		Version: l.Version}
}

// SetLanes gives the index the settings of lanes that changed after the version since, and returns the last
// version that it wrote. It updates this process's pauses and the listener first, so that a callback of a
// newly paused lane does not begin meanwhile. Settings carry their version, so a late write does not replace
// a newer one.
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
			ix.health.Failed("set_lanes", err)
			return since, fmt.Errorf("set lanes: %w", err)
		}
		since = lanes[len(lanes)-1].Version
		if len(lanes) < PageRows {
			return since, nil
		}
	}
}
