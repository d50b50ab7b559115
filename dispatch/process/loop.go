// Package process contains what the parts of the engine share in one process: metrics, loops, a limiter of
// log lines, the timing of recovery, and the failpoints of test builds.
//
// It imports none of the parts.
package process

import (
	"context"
	"log/slog"
	"time"
)

// A Loop calls a function repeatedly.
type Loop struct {
	// Every is the pause between two turns; zero: only Wake starts a turn.
	Every time.Duration
	// AtOnce starts the first turn without a pause.
	AtOnce bool
	// Wake starts the next turn early. A closed channel wakes once.
	Wake <-chan struct{}
	// Failing is logged as a warning when turns begin to fail, and Recovered when one succeeds again. Empty:
	// nothing is logged.
	Failing, Recovered string
	// Repeat is the least time between two Failing lines while turns fail; zero: only the first turn that
	// fails is logged.
	Repeat time.Duration
	Log    *slog.Logger
}

// Run takes turns until ctx ends. A turn returns the pause before the next one; zero: Every.
func (l Loop) Run(ctx context.Context, turn func(ctx context.Context) (pause time.Duration, err error)) {
	var failing LogLimiter
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
				failing.active = true
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

// wait waits for the pause, Wake or the end of ctx, and reports whether there is another turn.
func (l *Loop) wait(ctx context.Context, pause time.Duration) bool {
	var timeout <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
	case <-timeout:
	case _, open := <-l.Wake:
		if !open {
			l.Wake = nil
		}
	}
	return ctx.Err() == nil
}

// Wake puts a token into a channel of capacity one, such as that of a Loop, unless it has one. It does not
// block.
func Wake(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// ClaimMargin is how long a claim in SQL outlives its attempt's timeout.
const ClaimMargin = 15 * time.Second

// Times decide how soon other processes take over the work of one that died. The released program uses
// DefaultTimes; a test build (tag failpoints) can shorten them.
type Times struct {
	// Lease is the lease of a claim in the index. With the default timeout of 15 s it ends together with the
	// claim in SQL, so it needs no extension.
	Lease time.Duration
	// Margin is how long a claim in SQL outlives its attempt's timeout. An attempt that cannot begin within
	// Margin is not made.
	Margin time.Duration
	// Sweep is the period of the sweep, in whole seconds.
	Sweep time.Duration
	// Slack is how long a row is overdue, or its claim has been expired, before the sweep checks whether the
	// index has it.
	Slack time.Duration
	// Leader is the lease of the process that rebuilds, redrives or loads the horizon. If it dies, another
	// takes over after that time. Three quarters of the shortest horizon are nine times Leader.
	Leader time.Duration
}

// DefaultTimes returns the times of the released program.
func DefaultTimes() Times {
	return Times{
		Lease:  30 * time.Second,
		Margin: ClaimMargin,
		Sweep:  15 * time.Second,
		Slack:  5 * time.Second,
		Leader: 10 * time.Second,
	}
}

// logEvery is the least time between two lines about the same failure, so that an unstable SQL or index does
// not fill the log.
const logEvery = 10 * time.Second

// A LogLimiter decides when a failure is logged: once when it begins, and once when it is over. The caller
// guards it with its own lock.
type LogLimiter struct {
	active bool // the failure was logged and is not over
	at     time.Time
}

// Due reports whether to log the failure now: it was not logged since Over, nor within logEvery. It records
// the line.
func (c *LogLimiter) Due(now time.Time) bool {
	if c.active || !c.at.IsZero() && now.Sub(c.at) < logEvery {
		return false
	}
	c.active, c.at = true, now
	return true
}

// Again is Due for a line that is repeated, at most every logEvery, while the failure lasts.
func (c *LogLimiter) Again(now time.Time) bool {
	c.active = false
	return c.Due(now)
}

// Over ends the failure. It reports whether the failure was logged, so that its end is logged too.
func (c *LogLimiter) Over() bool {
	stood := c.active
	c.active = false
	return stood
}
