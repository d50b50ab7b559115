package schedule

import (
	"context"
	"time"
)

// MaxIdle is the longest sleep of a claimer without a call of its shard. It bounds the delay when all hints
// are lost.
const MaxIdle = time.Second

// A Cause is the reason for which a wait ended.
type Cause int

// The causes of a wake-up.
const (
	// ByTimer: the shard's next announced event is due.
	ByTimer Cause = iota
	// ByHint: a hint announced an earlier event.
	ByHint
	// ByPoll: no event was announced within the longest idle time.
	ByPoll
	// ByEnd: the context ended.
	ByEnd
)

// String returns the cause as the metrics name it.
func (c Cause) String() string { return named(c, "timer", "hint", "poll", "end") }

// A Waker is the place where one claimer sleeps until the next announced event of its shard, a hint, or the
// next poll. A hint between two waits ends the next wait at once. [NewWaker] makes one; the zero value never
// gets a hint.
type Waker struct {
	hint chan struct{}
}

// NewWaker returns a waker without a hint.
func NewWaker() *Waker { return &Waker{hint: make(chan struct{}, 1)} }

// Hint ends the present wait, or the next one. It never blocks. Several hints before a wait count as one.
func (w *Waker) Hint() {
	select {
	case w.hint <- struct{}{}:
	default:
	}
}

// Wait sleeps until the index's clock reaches next, but at most for idle, and returns the cause of its end.
// now is the index's clock at the call. Zero for next means that no event is known. The timer ends at next or
// later, never before; the index decides again what is due.
func (w *Waker) Wait(ctx context.Context, now, next int64, idle time.Duration) Cause {
	sleep, cause := idle, ByPoll
	if next != 0 {
		// In milliseconds, because a pause until the end of time overflows a duration.
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
