package accept

import (
	"context"
	"errors"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
)

// RunSettings learns, until ctx ends, what other processes have changed: lanes, endpoints, projects. Whoever is alone changes
// everything itself.
func (ac *Accepter) RunSettings(ctx context.Context) {
	l := part.Loop{
		Every: catalogEvery, AtOnce: true, Wake: ac.settingsLeft, Log: ac.log,
		Failing:   "settings of lanes and endpoints cannot be read; those known are kept",
		Recovered: "settings of lanes and endpoints are read again",
	}
	if ac.o.Alone {
		l.Every, l.AtOnce = 0, false // only what could not be told when it was changed is left
	}
	l.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		if err := ac.refreshSettings(ctx); err != nil {
			return catalogEvery, err
		}
		return 0, nil
	})
}

// refreshSettings reads what has changed since the last time.
func (ac *Accepter) refreshSettings(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	select {
	case ac.settingsTurn <- struct{}{}:
		defer func() { <-ac.settingsTurn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	err := ac.Catalog.refresh(ctx)
	seen, lanesErr := ac.index.SetLanes(ctx, ac.lanesSeen)
	ac.lanesSeen = seen
	return errors.Join(err, lanesErr)
}

// SettingsChanged has what this process has just changed take effect at once, and waits for it. What cannot be told now is told
// within catalogEvery, or by the next rebuild.
func (ac *Accepter) SettingsChanged(ctx context.Context) {
	if err := ac.refreshSettings(context.WithoutCancel(ctx)); err != nil {
		ac.log.Warn("a changed setting could not be told to the index yet", "error", err)
		ac.leaveSettings()
	}
}

// leaveSettings has runSettings read again what has changed.
func (ac *Accepter) leaveSettings() {
	select {
	case ac.settingsLeft <- struct{}{}:
	default:
	}
}
