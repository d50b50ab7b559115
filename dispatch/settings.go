package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// runSettings learns, until ctx ends, what other processes have changed: lanes, endpoints, projects. Whoever is alone changes
// everything itself.
func (e *Engine) runSettings(ctx context.Context) {
	ticker := time.NewTicker(catalogEvery)
	defer ticker.Stop()
	var failing complaint
	for {
		if e.o.Alone {
			// Only what could not be told when it was changed is left.
			select {
			case <-ctx.Done():
				return
			case <-e.settingsLeft:
			}
		}
		err := e.refreshSettings(ctx)
		if err != nil && e.o.Alone {
			e.leaveSettings()
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && failing.due(time.Now()):
			e.log.Warn("settings of lanes and endpoints cannot be read; those known are kept", "error", err)
		case err == nil && failing.over():
			e.log.Info("settings of lanes and endpoints are read again")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// refreshSettings reads what has changed since the last time.
func (e *Engine) refreshSettings(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	select {
	case e.settingsTurn <- struct{}{}:
		defer func() { <-e.settingsTurn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := e.catalog.refresh(ctx)
	seen, lanesErr := e.setLanes(ctx, e.lanesSeen)
	e.lanesSeen = seen
	return errors.Join(err, lanesErr)
}

// settingsChanged has what this process has just changed take effect at once, and waits for it. What cannot be told now is told
// within catalogEvery, or by the next rebuild.
func (e *Engine) settingsChanged(ctx context.Context) {
	e.wrote.Store(true)
	if err := e.refreshSettings(context.WithoutCancel(ctx)); err != nil {
		e.log.Warn("a changed setting could not be told to the index yet", "error", err)
		e.leaveSettings()
	}
}

// leaveSettings has runSettings read again what has changed.
func (e *Engine) leaveSettings() {
	select {
	case e.settingsLeft <- struct{}{}:
	default:
	}
}

// laneSetting is what the index is told of a lane.
func laneSetting(l *store.Lane) schedule.LaneSetting {
	return schedule.LaneSetting{Lane: l.ID, Limit: l.Limit, Every: l.Rate.Every(), PausedUntil: l.PausedUntil, Version: l.Version}
}

// setLanes gives the index the settings of lanes that changed since the version, and returns the version that
// it got to. What waits in them for a place is put back.
func (e *Engine) setLanes(ctx context.Context, since int64) (int64, error) {
	for {
		lanes, err := e.o.Store.Lanes(ctx, since, pageRows)
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
		sending := context.WithoutCancel(ctx)
		if s := e.sending.Load(); s != nil {
			sending = *s
		}
		e.pauses.set(settings)
		e.putBackAside(sending, e.limits.changed(settings))
		if err := e.o.Schedule.SetLanes(ctx, settings); err != nil {
			e.trouble.indexFailed("set lanes", err)
			return since, fmt.Errorf("set lanes: %w", err)
		}
		since = lanes[len(lanes)-1].Version
		if len(lanes) < pageRows {
			return since, nil
		}
	}
}
