package schedule

import (
	"context"
	"time"
)

// MaxIdle is the longest that a claimer sleeps without asking its shard, so that losing every hint costs at
// most that.
const MaxIdle = time.Second

// A Cause says what ended a wait.
type Cause int

// The causes of a wake-up.
const (
	// ByTimer: the next event that the shard announced is due.
	ByTimer Cause = iota
	// ByHint: somebody said that there is something to do sooner.
	ByHint
	// ByPoll: nothing was announced within the longest idle time.
	ByPoll
	// ByEnd: the context ended.
	ByEnd
)

// String returns the cause as metrics spell it.
func (c Cause) String() string { return named(c, "timer", "hint", "poll", "end") }

// A Waker is where one claimer sleeps: until the next event that its shard announced, until a hint, or until
// it is time to ask again anyway, whichever is first. Hints given while nobody waits end the next wait at
// once.
type Waker struct {
	hint chan struct{}
}

// NewWaker returns a waker without a hint.
func NewWaker() *Waker { return &Waker{hint: make(chan struct{}, 1)} }

// Hint ends the present wait, or the next one. It never blocks.
func (w *Waker) Hint() {
	select {
	case w.hint <- struct{}{}:
	default:
	}
}

// Wait sleeps until the index's clock reaches next, at most idle, and says what ended the sleep. Now is the
// index's clock at this moment; next zero means that no event is known. Nothing is early: the timer is for
// the first whole millisecond at or after next, and the index decides again what is due.
func (w *Waker) Wait(ctx context.Context, now, next int64, idle time.Duration) Cause {
	sleep, cause := idle, ByPoll
	if next != 0 {
		// Compared in milliseconds: a pause until the end of time would overflow a duration.
		if ms := max(next-now, 0); ms < sleep.Milliseconds() {
			sleep, cause = time.Duration(ms)*time.Millisecond, ByTimer
		}
	}
	if sleep == 0 {
		if ctx.Err() != nil {
			return ByEnd
		}
		return cause
	}
	timer := time.NewTimer(sleep)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ByEnd
	case <-w.hint:
		return ByHint
	case <-timer.C:
		return cause
	}
}
