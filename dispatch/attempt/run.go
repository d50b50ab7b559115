package attempt

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Run claims and attempts until ctx ends or BeginDrain is called, whichever is first. Claiming stops at once then,
// attempts in flight go on for at most DrainTimeout, and the rest is handed back uncharged. It returns when all its
// goroutines have ended. RunSettle must run for longer.
func (rn *Runner) Run(ctx context.Context) {
	claims, stopClaims := context.WithCancel(ctx)
	defer stopClaims()
	sending, stopSending := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopSending(nil)
	rn.sending.Store(&sending)
	var claimers sync.WaitGroup
	if !rn.o.NoWorker {
		claimers.Go(func() { rn.index.RunHints(claims) })
		for shard := range rn.wakers {
			claimers.Go(func() { rn.runClaims(claims, sending, shard) })
		}
	}
	select {
	case <-ctx.Done():
	case <-rn.drain:
	}
	rn.BeginDrain()
	stopClaims()
	claimers.Wait()
	rn.awaitAttempts(sending, stopSending)
	rn.workers.Wait()
}

// RunSettle commits results until ctx ends and none is left.
func (rn *Runner) RunSettle(ctx context.Context) { rn.settler.run(ctx) }

// Draining says whether claiming has stopped for good.
func (rn *Runner) Draining() bool { return rn.draining.Load() }

// Drain is closed when claiming stops for good.
func (rn *Runner) Drain() <-chan struct{} { return rn.drain }

// InFlight is how many attempts are under way.
func (rn *Runner) InFlight() int { return rn.slots.onWire() }

// BeginDrain stops claiming at once and for good; readiness ends with it. What is accepted from now on is another process's to
// send; the index is still told of it, until Run's context ends.
func (rn *Runner) BeginDrain() {
	rn.drainOnce.Do(func() {
		rn.draining.Store(true)
		close(rn.drain)
	})
}

// errDrained is why an attempt was ended by us.
var errDrained = errors.New("dispatcher is shutting down")

// awaitAttempts waits for the attempts in flight, and ends them when their time is up.
func (rn *Runner) awaitAttempts(sending context.Context, stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		rn.attempts.Wait()
		close(done)
	}()
	timer := time.NewTimer(rn.o.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		rn.log.Warn("drain timeout: attempts in flight are ended and handed back", "in_flight", rn.slots.onWire())
		stop(errDrained)
		for _, r := range rn.slots.giveUp() {
			rn.start(sending, r)
		}
		<-done
	}
}
