package dispatch

import (
	"context"
	"time"
)

// workerIdle is how long a worker without an attempt stays. A new goroutine begins with a small stack, which an attempt makes
// grow several times: with each attempt on a goroutine of its own that was an eighth of all CPU time.
const workerIdle = time.Second

// start makes the attempt on a worker that is idle, or on a new one. Workers are bounded as attempts are, by the slots.
func (e *Engine) start(ctx context.Context, r ready) {
	select {
	case e.idle <- r:
	default:
		e.workers.Go(func() { e.work(ctx, r) })
	}
}

// work makes attempts until none has come for workerIdle, or the drain has begun.
func (e *Engine) work(ctx context.Context, r ready) {
	timer := time.NewTimer(workerIdle)
	defer timer.Stop()
	for {
		e.attempt(ctx, r)
		timer.Reset(workerIdle)
		select {
		case r = <-e.idle:
		case <-timer.C:
			return
		case <-e.drain:
			return
		}
	}
}
