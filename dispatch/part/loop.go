// Package part is what each part of the engine is made with: metrics, log lines that are not repeated without
// end, the times of recovery, and the failpoints of test builds.
//
// It knows none of the parts.
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
	// Failing is logged, as a warning, when turns begin to fail, and Recovered when one has succeeded again.
	// Empty: nothing is.
	Failing, Recovered string
	// Repeat is how often Failing is logged while turns fail; zero: once.
	Repeat time.Duration
	Log    *slog.Logger
}

// Run takes turns until ctx ends. A turn may return another pause than Every before the next one; zero:
// Every.
func (l Loop) Run(ctx context.Context, turn func(ctx context.Context) (pause time.Duration, err error)) {
	var failing Limiter
	var logged time.Time
	pause := l.Every
	for first := l.AtOnce; first && ctx.Err() == nil || l.wait(ctx, pause); first = false {
		next, err := turn(ctx)
		pause = next
		if pause == 0 {
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

// Wake leaves a token in a channel that has room for one, such as that of a Loop, unless there is one
// already.
func Wake(waits chan<- struct{}) {
	select {
	case waits <- struct{}{}:
	default:
	}
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

// ClaimMargin is what a claim in SQL lives beyond its attempt's timeout.
const ClaimMargin = 15 * time.Second

// Times are how long it takes until the work of a process that died is taken up. They are constants of the
// released program; a test build (tag failpoints) can set them shorter.
type Times struct {
	// Lease is how long the index holds a claim. With the default timeout of 15 s it ends together with the
	// claim in SQL, so that nothing has to be extended.
	Lease time.Duration
	// Margin is what a claim in SQL lives beyond its attempt's timeout. An attempt begins within it, or not
	// at all.
	Margin time.Duration
	// Sweep is the period of the sweep, in whole seconds.
	Sweep time.Duration
	// Slack is how long a row may be overdue, or its claim run out, before the sweep looks whether the index
	// has it.
	Slack time.Duration
	// Leader is how long the process that rebuilds, redrives or loads up to the horizon may be silent before
	// another one takes over. Three quarters of the least horizon are nine times that.
	Leader time.Duration
}

// UsualTimes are those of the released program.
func UsualTimes() Times {
	return Times{
		Lease:  30 * time.Second,
		Margin: ClaimMargin,
		Sweep:  15 * time.Second,
		Slack:  5 * time.Second,
		Leader: 10 * time.Second,
	}
}

// complainEvery is the least time between two complaints of the same thing: SQL or an index that comes and
// goes must not fill the log.
const complainEvery = 10 * time.Second

// A Limiter is a line of the log that something fails, which is taken back when it works again.
type Limiter struct {
	stands bool
	at     time.Time
}

// Due says whether to complain now.
func (c *Limiter) Due(now time.Time) bool {
	if c.stands || !c.at.IsZero() && now.Sub(c.at) < complainEvery {
		return false
	}
	c.stands, c.at = true, now
	return true
}

// Again is due for a line that is repeated while it lasts.
func (c *Limiter) Again(now time.Time) bool {
	c.stands = false
	return c.Due(now)
}

// Over says whether there is something to take back.
func (c *Limiter) Over() bool {
	stood := c.stands
	c.stands = false
	return stood
}
