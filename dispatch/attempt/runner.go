// Package attempt claims callbacks that are due, sends them, and settles the results. The steps, and where to
// find them:
//
//	claim   claim.go        leases due callbacks in the index; one claimer per shard
//	lock    lock.go         takes the locks of callbacks with a lock key
//	stamp   stamp.go        claims the rows in SQL (fence + 1) and fetches the payloads
//	send    attempt.go      waits for a place in the lane (lane_limits.go) and for a slot (slots.go),
//	                        and makes the request
//	decide  decide.go       turns the response into state, reason and next due time
//	settle  settle.go       commits the results in SQL, then settles the leases in the index
//
// Only the stamp allows a send. The index says which callbacks to try; SQL's fence says that the claim is
// this process's. A result takes effect only if the row still has that fence, and only then does the index
// get the settlement. The lock guards the request: it is taken after the claim and released when the attempt
// ends, before the result commits.
//
// A crash between two steps loses no callback. Before the stamp, the lease expires and another process claims
// the callback. After the stamp, the claim in SQL has to expire as well; the next stamp records the attempt
// as crashed and sends again. So delivery is at least once: the receiver recognizes a repeated callback by
// its webhook-id.
//
// Callbacks that were claimed at repeated crashes are attempted one at a time (quarantine.go). A stamp
// without a reply is undone (uncertain.go).
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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Options configure a Runner. The fields of the first block are required.
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
	Tracer   *trace.Tracer // nil: no attempt is recorded
	Logger   *slog.Logger
	Metrics  process.Metrics
	Times    process.Times
	// Name of this process, the owner of its leases. No other process and no earlier start may have used it.
	Name string
	// SendingOff: the process claims nothing until a restart. NoWorker: it runs no claimers at all.
	SendingOff bool
	NoWorker   bool
	// Workers is the most attempts that run at once. LaneConcurrency is the most of one lane that sets no
	// limit.
	Workers         int
	LaneConcurrency int
	// DrainTimeout is how long running attempts may go on after the drain began.
	DrainTimeout time.Duration
}

// A Runner makes attempts. Its exported methods are safe for concurrent use.
type Runner struct {
	o        Options
	times    process.Times
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
	localLog  localLog
	wakers    []*schedule.Waker
	// generation of the index that the claims belong to
	generation atomic.Int64

	// sending is the context of attempts; nil before Run. It ends when the drain is out of time.
	sending atomic.Pointer[context.Context]
	// attempts counts batches that are being prepared, and stamped callbacks until their attempt has ended or
	// they were put back. A drain waits for it.
	attempts sync.WaitGroup
	// workers are the goroutines that make attempts; an idle worker receives from idle.
	workers sync.WaitGroup
	idle    chan ready
	// quarantine holds one token: one batch of quarantined callbacks is attempted at a time.
	quarantine chan struct{}

	draining atomic.Bool
	// drain is closed when claiming must stop
	drain     chan struct{}
	drainOnce sync.Once
}

// New returns a Runner that does not run yet. It registers with the index for changes.
func New(o Options) *Runner {
	rn := &Runner{
		o:          o,
		times:      o.Times,
		log:        o.Logger,
		clock:      o.Clock,
		metrics:    newMetrics(o.Metrics),
		observer:   o.Observer,
		index:      o.Index,
		accept:     o.Accept,
		secret:     o.Secrets,
		slots:      newSlots(o.Workers),
		idle:       make(chan ready),
		quarantine: make(chan struct{}, 1),
		drain:      make(chan struct{}),
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

// Run claims and attempts until ctx ends or BeginDrain is called. Then claiming stops at once, running
// attempts go on for at most DrainTimeout, and the other claimed callbacks go back, not counted. Run returns
// when all its goroutines have ended. RunSettle must run longer.
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

// Draining returns whether claiming has stopped for good.
func (rn *Runner) Draining() bool { return rn.draining.Load() }

// Drain returns a channel that is closed when claiming stops for good.
func (rn *Runner) Drain() <-chan struct{} { return rn.drain }

// InFlight returns how many attempts run.
func (rn *Runner) InFlight() int { return rn.slots.runningAttempts() }

// BeginDrain stops claiming at once and for good; the process is no longer ready. Callbacks that it accepts
// from now on are sent by other processes. They are still added to the index until Run's context ends.
func (rn *Runner) BeginDrain() {
	rn.drainOnce.Do(func() {
		rn.draining.Store(true)
		close(rn.drain)
	})
}

// errDrained is the cause with which the drain ends attempts.
var errDrained = errors.New("dispatcher is shutting down")

// awaitAttempts waits for the running attempts. After DrainTimeout it ends them, and starts those that wait
// for a slot: under the ended context they send nothing, and their results put them back.
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
		rn.log.Warn("drain timeout: attempts in flight are stopped and rescheduled",
			"in_flight", rn.slots.runningAttempts())
		stop(errDrained)
		for _, r := range rn.slots.beginAll() {
			rn.start(sending, r)
		}
		<-done
	}
}
