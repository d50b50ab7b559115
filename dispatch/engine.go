// Package dispatch is the engine: it accepts callbacks, claims those that are due, attempts them and settles
// them.
//
// It wires its parts and holds no logic of theirs:
//
//	accept   validate → draft → commit; events, policies, profiles, the catalog of what people have set
//	attempt  claim → lock → stamp → send → settle
//	index    keeps the index true to SQL: writes, sweep, rebuild, horizon, outages, verify
//	control  what people do: cancel, retry, edit, endpoints, lanes, projects, keys, redrives, schedules, explain
//	report   what is counted and told: activity, endpoint health, processes, the feed, operational events
//	secret   key ring, signing secrets, sealed headers; clock, the index's clock and ids
//	outbound everything that leaves: the guarded client, signers, success rules
//
// What holds at every line: a callback is known to its caller only after it is in SQL, and what the index
// holds follows from SQL alone. Nothing is sent without a stamp. A result takes effect only if its fence is
// still the stamp's. What is lost in between (this process, the index, a reply) is found again by a lease
// that runs out, by the sweep or by a rebuild, and none of them can send what SQL says is not due.
//
// The package knows no SQL, no Redis and no HTTP server.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/attempt"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is everything that the engine needs of SQL: the sum of what its parts need, for wiring.
type Store interface {
	accept.Store
	attempt.Store
	control.Store
	index.Store
	report.Store
	secret.Store
	// Fold adds up what transactions noted for counters and the feed.
	Fold(ctx context.Context, now int64) error
}

// Schedule is everything that the engine needs of an index: the sum of what its parts need, for wiring.
type Schedule interface {
	attempt.Schedule
	control.Schedule
	index.Schedule
}

// Options are what an engine is made of. Store, Schedule, Sender and Keyring are required; the zero value of
// everything else means the default that is named.
type Options struct {
	Store    Store
	Schedule Schedule
	Sender   attempt.Sender
	Keyring  *secret.Keyring

	// ReadTemplate decodes the template of a schedule, the body of a POST /v1/callbacks: its error is a
	// *store.InvalidError. Nil: there are no schedules.
	ReadTemplate func(raw []byte) (accept.Submission, error)
	// PanGuard says what becomes of card numbers; empty: nothing.
	PanGuard store.PanGuard
	// CheckURL is the early check of an address at accept; nil accepts any. The dial is guarded in any case.
	CheckURL func(rawURL string) error
	// Name of this start of this process, unlike any other; empty: one is made. Version and Roles are what it
	// says of itself to others.
	Name    string
	Version string
	Roles   []string
	// Prefix and Shards are what the index was opened with; they must be what SQL says.
	Prefix string
	// Embedded says that the index is this process's own (embedded): every claim found in SQL at the start is a
	// crash, and maintenance needs no lease.
	Embedded bool
	// Horizon is how far ahead the index holds callbacks; zero: all of them. An index of this process's own
	// has none. All processes of one index should have the same: where they differ, the process that loads
	// decides.
	Horizon time.Duration
	// SendingOff starts with sending stopped: callbacks are accepted, none is claimed.
	SendingOff bool
	// NoWorker runs no claims at all: another process sends.
	NoWorker bool
	// Workers is the most attempts in flight; default 512. LaneConcurrency is the most of one lane; default
	// 32.
	Workers         int
	LaneConcurrency int
	// DrainTimeout is how long attempts in flight may go on after the end was asked for; default 25 s.
	DrainTimeout time.Duration
	// RetentionPayload and RetentionMetadata are how long terminal callbacks keep their bytes, and their
	// rows; default 30 and 400 days.
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
	if o.Horizon != 0 && (o.Embedded || o.Horizon < time.Millisecond) {
		return o, fmt.Errorf("dispatch: a horizon of %s; it is at least 1ms, and an index of this "+
			"process's own has none", o.Horizon)
	}
	if o.Name == "" {
		o.Name = clock.NewToken()
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

// The parts under names of their own: the faces call what they export as the engine's.
type (
	accepter   = accept.Accepter
	controller = control.Controller
	indexer    = index.Index
	reporter   = report.Reporter
	runner     = attempt.Runner
	secrets    = secret.Secrets
)

// An Engine accepts, claims, attempts and settles. Its methods may be called from many goroutines, also
// before Run, and after it: then nothing is sent, but what is accepted is durable.
type Engine struct {
	o     Options
	times part.Times
	clock *clock.Clock

	*accepter
	*controller
	*indexer
	*reporter
	*runner
	*secrets
}

// New returns an engine that does not run yet.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	times, err := part.ReadTimes()
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, times: times, clock: new(clock.Clock)}
	m := part.Metrics{Registerer: o.Registerer}
	counts := report.NewCounts(m)
	e.indexer = index.New(index.Options{
		Store: o.Store, Schedule: o.Schedule, Clock: e.clock, Observer: counts, Logger: o.Logger, Metrics: m,
		Times: times,
		Name:  o.Name, Prefix: o.Prefix, Embedded: o.Embedded, Horizon: o.Horizon, SendingOff: o.SendingOff,
		NoWorker:        o.NoWorker,
		LaneConcurrency: o.LaneConcurrency,
	})
	e.secrets = secret.New(o.Store, o.Keyring, e.clock, m)
	e.accepter = accept.New(accept.Options{
		Store: o.Store, Index: e.indexer, Secrets: e.secrets, Keyring: o.Keyring, Clock: e.clock,
		Observer: counts,
		Logger:   o.Logger, Embedded: o.Embedded, PanGuard: o.PanGuard, CheckURL: o.CheckURL,
		ReadTemplate: o.ReadTemplate,
	})
	e.runner = attempt.New(attempt.Options{
		Store: o.Store, Schedule: o.Schedule, Sender: o.Sender, Index: e.indexer, Accept: e.accepter,
		Secrets: e.secrets,
		Keyring: o.Keyring, Clock: e.clock, Observer: counts, Logger: o.Logger, Metrics: m, Times: times,
		Name:       o.Name,
		SendingOff: o.SendingOff, NoWorker: o.NoWorker, Workers: o.Workers, LaneConcurrency: o.LaneConcurrency,
		DrainTimeout: o.DrainTimeout,
	})
	e.reporter = report.New(report.Options{
		Store: o.Store, Accept: e.accepter, Counts: counts, Clock: e.clock, Logger: o.Logger, Name: o.Name,
		Version: o.Version, Roles: o.Roles, Embedded: o.Embedded, SendingOff: o.SendingOff, NoWorker: o.NoWorker,
		Workers:  o.Workers,
		InFlight: e.runner.InFlight, Draining: e.runner.Draining, Drain: e.runner.Drain(),
	})
	e.controller = control.New(control.Options{
		Store: o.Store, Schedule: o.Schedule, Index: e.indexer, Accept: e.accepter, Secrets: e.secrets,
		Keyring: o.Keyring,
		Clock:   e.clock, Observer: counts, Logger: o.Logger, Metrics: m, Times: times, Name: o.Name,
		Processes: e.reporter.Dispatchers, Crowded: e.runner.Crowded, Embedded: o.Embedded, PanGuard: o.PanGuard,
		CheckURL: o.CheckURL, RetentionPayload: o.RetentionPayload, RetentionMetadata: o.RetentionMetadata,
	})
	return e, nil
}

// Run works until ctx ends, then drains: claiming stops at once (or has stopped before, by BeginDrain),
// attempts in flight go on for at most DrainTimeout, the rest is handed back uncharged. It returns when all
// its goroutines have ended; its error is why it could not start.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.indexer.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the index: %w", err)
	}
	e.reporter.Begin()
	// Three lives, each ending after the one before: attempts end with the drain, upkeep with ctx, and what
	// settles and writes when nothing is left to settle.
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	var upkeep, back sync.WaitGroup
	for _, run := range []func(context.Context){
		e.runner.RunSettle, e.indexer.RunWrites, e.accepter.RunSpawned, e.reporter.RunPresence,
	} {
		back.Go(func() { run(settling) })
	}
	for _, run := range []func(context.Context){
		e.indexer.RunMaintenance, e.runMaintenance, e.reporter.RunHealth, e.accepter.RunSettings,
		e.controller.RunRedrives,
		e.controller.RunSchedules,
	} {
		upkeep.Go(func() { run(ctx) })
	}
	e.runner.Run(ctx)
	<-ctx.Done()
	upkeep.Wait()
	stopSettling()
	back.Wait()
	e.reporter.Deregister(ctx)
	return nil
}
