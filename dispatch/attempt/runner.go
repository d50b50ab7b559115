// Package attempt claims what is due, locks and stamps it, sends it, decides what follows, and settles it.
//
// Nothing is sent without a stamp: SQL's fence makes a claim this process's own, the index only says whom to
// ask for. A result takes effect only if the fence is still the stamp's; then, and only then, the index is
// told. A lock guards the wire: it is taken after the claim and released when the attempt ends, before its
// result commits.
//
// Exactly-once is not on offer: after a crash an attempt is made again, and the receiver drops what it has
// seen, by webhook-id.
package attempt

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Sender makes one attempt. outbound.Client is the one that sends.
type Sender interface {
	Send(ctx context.Context, r outbound.Request) outbound.Response
}

// Options are what a Runner is made of. Those of the first block are required.
type Options struct {
	Store    Store
	Schedule Schedule
	Sender   Sender
	Index    *index.Index
	Accept   *accept.Accepter
	Secrets  *secret.Secrets
	Keyring  *secret.Keyring
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	Metrics  part.Metrics
	Times    part.Times
	// Name of this process, the owner of its leases.
	Name string
	// SendingOff: sending is stopped, none is claimed. NoWorker runs no claims at all.
	SendingOff bool
	NoWorker   bool
	// Workers is the most attempts in flight, LaneConcurrency the most of a lane that sets no limit.
	Workers         int
	LaneConcurrency int
	// DrainTimeout is how long attempts in flight may go on after the end was asked for.
	DrainTimeout time.Duration
}

// A Runner makes attempts. Its exported methods may be called from many goroutines.
type Runner struct {
	o        Options
	times    part.Times
	log      *slog.Logger
	clock    *clock.Clock
	metrics  *metrics
	observer Observer
	index    *index.Index
	accept   *accept.Accepter
	secret   *secret.Secrets

	slots     *slots
	limits    *laneLimits
	settler   *settler
	uncertain *uncertainStamps
	wakers    []*schedule.Waker
	// generation of the index that claims are of.
	generation atomic.Int64

	// sending is the context of attempts; nil before Run.
	sending atomic.Pointer[context.Context]
	// attempts counts batches that are prepared, and attempts that are made or wait to begin.
	attempts sync.WaitGroup
	// workers are the goroutines that make attempts; a free one is taken through idle.
	workers sync.WaitGroup
	idle    chan ready
	// quarantined has room for one claim of quarantined at a time.
	quarantine chan struct{}

	draining atomic.Bool
	// drain is closed when claiming must stop.
	drain     chan struct{}
	drainOnce sync.Once
}

// New returns a Runner that does not run yet. It listens to the index.
func New(o Options) *Runner {
	rn := &Runner{
		o: o, times: o.Times, log: o.Logger, clock: o.Clock, metrics: newMetrics(o.Metrics),
		observer: o.Observer,
		index:    o.Index, accept: o.Accept, secret: o.Secrets,
		slots: newSlots(o.Workers), idle: make(chan ready), quarantine: make(chan struct{}, 1),
		drain: make(chan struct{}),
	}
	rn.wakers = make([]*schedule.Waker, o.Schedule.Shards())
	for i := range rn.wakers {
		rn.wakers[i] = schedule.NewWaker()
	}
	rn.limits = newLaneLimits(o.Schedule.ShardOf, len(rn.wakers))
	rn.settler = newSettler(rn)
	rn.uncertain = &uncertainStamps{rn: rn}
	rn.index.Listen(rn, rn.uncertain)
	rn.watch(o.Metrics)
	return rn
}

// An Observer counts what attempts came to. Times are by the index's clock.
type Observer interface {
	// Settled has results and what SQL answered, each in its place.
	Settled(results []store.Result, committed []store.Committed, now int64)
	// Crashed has a callback whose last attempt ended without a result.
	Crashed(cb *store.Stamped, now int64)
}

// Run claims and attempts until ctx ends or BeginDrain is called, whichever is first. Claiming stops at once
// then, attempts in flight go on for at most DrainTimeout, and the rest is handed back uncharged. It returns
// when all its goroutines have ended. RunSettle must run for longer.
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
			claimers.Go(func() { rn.newClaimer(shard).run(claims, sending) })
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
func (rn *Runner) InFlight() int { return rn.slots.runningAttempts() }

// BeginDrain stops claiming at once and for good; readiness ends with it. What is accepted from now on is
// another process's to send; the index is still told of it, until Run's context ends.
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
		rn.log.Warn("drain timeout: attempts in flight are ended and handed back", "in_flight",
			rn.slots.runningAttempts())
		stop(errDrained)
		for _, r := range rn.slots.beginAll() {
			rn.start(sending, r)
		}
		<-done
	}
}
