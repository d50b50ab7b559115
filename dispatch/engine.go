package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is everything that the engine needs of SQL: the sum of the small interfaces, for wiring.
type Store interface {
	Rows
	Changes
	History
	Walks
	Ahead
	Metas
	Upkeep
	LaneRows
	Secrets
	Catalog
	EndpointRows
	ProjectRows
	QuotaRows
	LaneControl
	KeyRows
	RedriveRows
	PollRows
	ScheduleRows
	SealedRows
	Feed
	AlertRows
	ActivityRows
	DispatcherRows
	SessionRows
	AuditRows
	Prober
}

// Schedule is everything that the engine needs of an index: the sum of the small interfaces, for wiring.
type Schedule interface {
	Queue
	Locks
	Index
	Watermarks
	Lookup
	Generation
	Hints
}

// A Sender makes one attempt. outbound.Client is the one that sends.
type Sender interface {
	Send(ctx context.Context, r outbound.Request) outbound.Response
}

// Options are what an engine is made of. Store, Schedule, Sender and Keyring are required; the zero value of everything
// else means the default that is named.
type Options struct {
	Store    Store
	Schedule Schedule
	Sender   Sender
	Keyring  *Keyring

	// ReadTemplate decodes the template of a schedule, the body of a POST /v1/callbacks: its error is a *store.InvalidError. Nil: there
	// are no schedules.
	ReadTemplate func(raw []byte) (Submission, error)
	// PanGuard says what becomes of card numbers; empty: nothing.
	PanGuard store.PanGuard
	// CheckURL is the early check of an address at accept; nil accepts any. The dial is guarded in any case.
	CheckURL func(rawURL string) error
	// Name of this start of this process, unlike any other; empty: one is made. Version and Roles are what it says of itself to others.
	Name    string
	Version string
	Roles   []string
	// Prefix and Shards are what the index was opened with; they must be what SQL says.
	Prefix string
	// Alone says that the index is this process's own (embedded): every claim found in SQL at the start is a crash, and
	// maintenance needs no lease.
	Alone bool
	// Horizon is how far ahead the index holds callbacks; zero: all of them. An index of this process's own has none. All
	// processes of one index should have the same: where they differ, whoever loads decides.
	Horizon time.Duration
	// Hold starts with sending stopped: callbacks are accepted, none is claimed.
	Hold bool
	// NoWorker runs no claims at all: another process sends.
	NoWorker bool
	// Workers is the most attempts in flight; default 512. LaneConcurrency is the most of one lane; default 32.
	Workers         int
	LaneConcurrency int
	// DrainTimeout is how long attempts in flight may go on after the end was asked for; default 25 s.
	DrainTimeout time.Duration
	// RetentionPayload and RetentionMetadata are how long terminal callbacks keep their bytes, and their rows; default 30
	// and 400 days.
	RetentionPayload  time.Duration
	RetentionMetadata time.Duration

	// Logger defaults to one that discards; Registerer to none.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Schedule == nil || o.Sender == nil || o.Keyring == nil {
		return o, errors.New("dispatch: Store, Schedule, Sender and Keyring are required")
	}
	if o.Horizon != 0 && (o.Alone || o.Horizon < time.Millisecond) {
		return o, fmt.Errorf("dispatch: a horizon of %s; it is at least 1ms, and an index of this process's own has none", o.Horizon)
	}
	if o.Name == "" {
		o.Name = newToken()
	}
	if o.Prefix == "" {
		o.Prefix = "dispatcher"
	}
	if o.Workers <= 0 {
		o.Workers = 512
	}
	if o.LaneConcurrency <= 0 {
		o.LaneConcurrency = 32
	}
	if o.DrainTimeout <= 0 {
		o.DrainTimeout = 25 * time.Second
	}
	if o.RetentionPayload <= 0 {
		o.RetentionPayload = 30 * 24 * time.Hour
	}
	if o.RetentionMetadata <= 0 {
		o.RetentionMetadata = 400 * 24 * time.Hour
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// An Engine accepts, claims, attempts and settles. Its methods may be called from many goroutines, also before Run,
// and after it: then nothing is sent, but what is accepted is durable.
type Engine struct {
	o       Options
	times   recoveryTimes
	log     *slog.Logger
	metrics *metrics

	clock   clock
	ids     idSource
	slots   *slots
	limits  *laneLimits
	pauses  *pauses
	wakers  []*schedule.Waker
	enqueue *enqueuer
	settler *settler
	keeper  *keeper
	loader  *loader
	secrets *secretCache
	// unreadable is when a stored secret could last not be decrypted.
	unreadable unreadable
	catalog    *catalog
	open       *openBook
	trouble    *trouble
	apiKeys    keyCache
	redrives   *redriver
	firer      *firer
	// endpoints is what attempts said of them.
	endpoints *healthBook
	// activity is what has happened by this process's hand.
	activity *activityBook
	presence *presence
	keys     progress

	// settingsTurn has a token of whoever reads what has changed; lanesSeen is the version up to which that of lanes was read.
	settingsTurn chan struct{}
	// settingsLeft has a token while something that has changed may not have been read.
	settingsLeft chan struct{}
	lanesSeen    int64

	// sending is the context of attempts; nil before Run.
	sending atomic.Pointer[context.Context]

	// attempts counts batches that are prepared, and attempts that are made or wait to begin.
	attempts sync.WaitGroup
	// workers are the goroutines that make attempts; who has none takes one from idle.
	workers sync.WaitGroup
	idle    chan ready
	// suspects has room for whoever attempts suspects: one at a time.
	suspects chan struct{}

	// jumpWarned is when a jump of the index's clock was last warned of; nil: never.
	jumpWarned atomic.Pointer[time.Time]
	// audited is where the audit goes on. Only the audit touches it.
	audited auditPlace
	// markedFully is when the low-water marks were last looked for from the first row on. Only the sweep
	// touches it.
	markedFully time.Time
	// purged is when retention was last looked after. Only the purge touches it.
	purged lastPurge
	// publishedTo is the endpoint event, and toldTo the project, after which the alerts go on. Only the
	// alerts touch them.
	publishedTo, toldTo string
	// auditHead is the head of the audit's chain. Only the function that chains touches it.
	auditHead auditHead

	// wrote says that this process has changed something in SQL since its last fold.
	wrote atomic.Bool
	// folded says that something may have come into the feed since the alerts have looked at it.
	folded   atomic.Bool
	draining atomic.Bool
	// drain is closed when claiming must stop.
	drain     chan struct{}
	drainOnce sync.Once
	health    healthCache
}

// New returns an engine that does not run yet.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	times, err := failpointTimes()
	if err != nil {
		return nil, err
	}
	e := &Engine{
		o:       o,
		times:   times,
		log:     o.Logger,
		metrics: newMetrics(o.Registerer),
		slots:   newSlots(o.Workers),
		drain:   make(chan struct{}),

		idle:     make(chan ready),
		suspects: make(chan struct{}, 1),
	}
	e.wakers = make([]*schedule.Waker, o.Schedule.Shards())
	for i := range e.wakers {
		e.wakers[i] = schedule.NewWaker()
	}
	e.clock.jumped = e.clockJumped
	e.wrote.Store(true)
	e.pauses = newPauses(e.clock.now)
	e.limits = newLaneLimits(o.Schedule.ShardOf, len(e.wakers))
	e.trouble = newTrouble(e)
	e.enqueue = newEnqueuer(e)
	e.settler = newSettler(e)
	e.keeper = newKeeper(e)
	e.loader = &loader{e: e}
	e.catalog = newCatalog(o.Store)
	e.open = newOpenBook(o.Store)
	e.endpoints, e.activity = newHealthBook(), newActivityBook()
	e.presence = newPresence()
	e.redrives = newRedriver(e)
	e.firer = newFirer(e)
	e.settingsTurn, e.settingsLeft = make(chan struct{}, 1), make(chan struct{}, 1)
	e.secrets = newSecretCache(o.Store, o.Keyring, e.opened)
	e.metrics.watch(e)
	return e, nil
}

// Run works until ctx ends, then drains: claiming stops at once (or has stopped before, by BeginDrain), attempts in flight go
// on for at most DrainTimeout, the rest is handed back uncharged. It returns when all its goroutines have ended; its error is
// why it could not start.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.keeper.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the index: %w", err)
	}
	began := time.Now()
	e.presence.since.Store(&began)
	// Four lives, each ending after the one before: claims end with the drain; upkeep with ctx; attempts when they are done or
	// out of time; and what settles and enqueues when nothing is left to settle.
	claims, stopClaims := context.WithCancel(ctx)
	defer stopClaims()
	sending, stopSending := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopSending(nil)
	e.sending.Store(&sending)
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()

	var claimers, upkeep, back sync.WaitGroup
	for _, run := range []func(context.Context){e.settler.run, e.enqueue.run, e.trouble.run, e.runBorn, e.runPresence} {
		back.Go(func() { run(settling) })
	}
	if !e.o.NoWorker {
		claimers.Go(func() { e.runHints(claims) })
		for shard := range e.wakers {
			claimers.Go(func() { e.runClaims(claims, sending, shard) })
		}
	}
	upkeep.Go(func() { e.keeper.run(ctx) })
	upkeep.Go(func() { e.runUpkeep(ctx) })
	upkeep.Go(func() { e.runHealth(ctx) })
	upkeep.Go(func() { e.redrives.run(ctx) })
	upkeep.Go(func() { e.firer.run(ctx) })
	upkeep.Go(func() { e.runSettings(ctx) })
	if !e.o.Alone {
		upkeep.Go(func() { e.loader.run(ctx) })
	}

	select {
	case <-ctx.Done():
	case <-e.drain:
	}
	e.BeginDrain()
	stopClaims()
	claimers.Wait()
	e.awaitAttempts(sending, stopSending)
	e.workers.Wait()
	<-ctx.Done()
	upkeep.Wait()
	stopSettling()
	back.Wait()
	e.farewell(ctx)
	return nil
}

// BeginDrain stops claiming at once and for good; readiness ends with it. What is accepted from now on is another process's to
// send; the index is still told of it, until Run's context ends.
func (e *Engine) BeginDrain() {
	e.drainOnce.Do(func() {
		e.draining.Store(true)
		close(e.drain)
	})
}

// errDrained is why an attempt was ended by us.
var errDrained = errors.New("dispatcher is shutting down")

// awaitAttempts waits for the attempts in flight, and ends them when their time is up.
func (e *Engine) awaitAttempts(sending context.Context, stop context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		e.attempts.Wait()
		close(done)
	}()
	timer := time.NewTimer(e.o.DrainTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		e.log.Warn("drain timeout: attempts in flight are ended and handed back", "in_flight", e.slots.onWire())
		stop(errDrained)
		for _, r := range e.slots.giveUp() {
			e.start(sending, r)
		}
		<-done
	}
}

// runHints passes the index's hints on to the claimers.
func (e *Engine) runHints(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := e.o.Schedule.Run(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("the index's hints ended; claimers re-poll", "error", err)
		}
	})
	hints := e.o.Schedule.Hints()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case shard := <-hints:
			if shard >= 0 && shard < len(e.wakers) {
				e.wakers[shard].Hint()
			}
		}
	}
}

// hintDue wakes the claimer if one of the items is due now, so that it need not wait for the index's own hint to come
// round. With several shards only the index knows whose item it is.
func (e *Engine) hintDue(items []schedule.Item) {
	if len(e.wakers) != 1 {
		return
	}
	now := e.clock.now()
	for i := range items {
		if items[i].Due <= now {
			e.wakers[0].Hint()
			return
		}
	}
}

// hintAll wakes every claimer.
func (e *Engine) hintAll() {
	for _, w := range e.wakers {
		w.Hint()
	}
}

// Now returns the index's clock in Unix milliseconds.
func (e *Engine) Now() int64 { return e.clock.now() }
