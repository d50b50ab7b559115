package part

import (
	"context"
	"log/slog"
	"time"
)

// A Loop does one thing again and again.
type Loop struct {
	// Every is the pause between two turns; zero: turns come of Wake alone.
	Every time.Duration
	// AtOnce has the first turn come without a pause.
	AtOnce bool
	// Wake has a turn come before its time. Once it is closed it wakes no more.
	Wake <-chan struct{}
	// Failing is logged, as a warning, when turns begin to fail, and Recovered when one has succeeded again. Empty:
	// nothing is.
	Failing, Recovered string
	// Repeat is how often Failing is logged while turns fail; zero: once.
	Repeat time.Duration
	Log    *slog.Logger
}

// Run takes turns until ctx ends. A turn may return another pause than Every before the next one; zero: Every.
func (l Loop) Run(ctx context.Context, turn func(ctx context.Context) (pause time.Duration, err error)) {
	var failing Limiter
	var logged time.Time
	pause := l.Every
	for first := l.AtOnce; first && ctx.Err() == nil || l.wait(ctx, pause); first = false {
		next, err := turn(ctx)
		if pause = next; pause == 0 {
			pause = l.Every
		}
		now := time.Now()
		due := failing.Due
		if l.Repeat > 0 {
			due = func(now time.Time) bool {
				failing.stands = true
				return logged.IsZero() || now.Sub(logged) >= l.Repeat
			}
		}
		switch {
		case ctx.Err() != nil:
		case err != nil && due(now) && l.Failing != "":
			logged = now
			l.Log.Warn(l.Failing, "error", err)
		case err == nil && failing.Over() && l.Recovered != "":
			logged = time.Time{}
			l.Log.Info(l.Recovered)
		}
	}
}

// wait returns whether there is another turn: after the pause, or as soon as Wake says so.
func (l *Loop) wait(ctx context.Context, pause time.Duration) bool {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-over:
	case _, open := <-l.Wake:
		if !open {
			l.Wake = nil
		}
	}
	return ctx.Err() == nil
}

// Sleep waits, at most until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
