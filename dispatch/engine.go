// Package dispatch is the engine. It accepts callbacks, claims those that are due, attempts them and settles
// the results.
//
// It wires its parts and has no logic of its own:
//
//	accept   validate → draft → commit; events, policies, profiles, the catalog of settings
//	attempt  claim → lock → stamp → send → settle
//	index    keeps the index in line with SQL: writes, sweep, rebuild, horizon, outages, verify
//	control  changes by people: callbacks, endpoints, lanes, projects, keys, redrives, schedules; explain
//	alert    rules of projects: conditions, firings, messages to chat robots and mail
//	report   counts and publishes: activity, endpoint health, processes, the feed, operational events
//	secret   key ring, signing secrets, sealed headers
//	trace    spans of accepts and attempts, and their export
//	clock    the index's clock, ids
//	outbound all outgoing requests: the guarded client, signers, success rules
//
// These invariants hold in every part:
//
//   - A caller learns of a callback only after it is in SQL.
//   - The index contains only what follows from SQL.
//   - No request is sent without a stamp.
//   - A result takes effect only if the row's fence is still that of the stamp.
//
// A crash of this process, a loss of the index or a lost reply breaks none of them. The expiry of a lease,
// the sweep or a rebuild finds what was lost, and the stamp refuses to send what SQL does not consider due.
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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/attempt"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/report"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/trace"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that the engine uses: the sum of the Store interfaces of its parts.
type Store interface {
	accept.Store
	alert.Store
	attempt.Store
	control.Store
	index.Store
	report.Store
	secret.Store
	// Fold adds the notes of committed transactions to the counters and the feed.
	Fold(ctx context.Context, now int64) error
}

// Schedule is the part of the index that the engine uses: the sum of the Schedule interfaces of its parts.
type Schedule interface {
	attempt.Schedule
	control.Schedule
	index.Schedule
}

// Options configure an Engine. Store, Schedule, Sender and Keyring are required. The zero value of every
// other field means its default.
type Options struct {
	Store    Store
	Schedule Schedule
	Sender   attempt.Sender
	Keyring  *secret.Keyring

	// ReadTemplate decodes the template of a schedule, the body of a POST /v1/callbacks. Its error is a
	// *store.InvalidError. Nil: schedules are not supported.
	ReadTemplate func(raw []byte) (accept.Submission, error)
	// PanGuard is how card numbers are treated; empty: they are accepted.
	PanGuard store.PanGuard
	// CheckURL validates a URL before it is stored; nil accepts any. The dialer checks the address again.
	CheckURL func(rawURL string) error
	// PublicURL is the address of the admin UI, for links in messages of alerts. Empty: they have none.
	PublicURL string
	// Name of this start of this process; no other start may have used it. Empty: a random one. Version and
	// Roles are part of its heartbeat.
	Name    string
	Version string
	Roles   []string
	// Prefix is the one that the index was opened with. It must equal the one in SQL.
	Prefix string
	// Embedded: the index belongs to this process alone. So every claim in SQL at the start is a crash, and
	// maintenance needs no lease.
	Embedded bool
	// Horizon is how far ahead the index contains callbacks; zero: all of them. An embedded index has none.
	// All processes of one index should use the same value; otherwise that of the process that loads applies.
	Horizon time.Duration
	// SendingOff starts without sending: callbacks are accepted, and none is claimed.
	SendingOff bool
	// NoWorker never claims: other processes send.
	NoWorker bool
	// Workers is the most attempts in flight; default 512. LaneConcurrency is the most in one lane; default
	// 32.
	Workers         int
	LaneConcurrency int
	// Unread returns DegradedRelay and its name for each outbox table that this process should read and
	// cannot. It calls no database. Nil: the process reads none.
	Unread func() []string
	// ApprovalAbove is the most callbacks that a redrive may match without the approval of a second person.
	// Zero: any number.
	ApprovalAbove int
	// DrainTimeout is how long attempts in flight may continue after the shutdown began; default 25 s.
	DrainTimeout time.Duration
	// RetentionPayload is how long terminal callbacks keep their payloads, default 30 days; RetentionMetadata
	// how long they keep their rows, default 400 days.
	RetentionPayload  time.Duration
	RetentionMetadata time.Duration

	// Tracer records accepts and attempts; nil: nothing is recorded. The caller closes it after Run.
	Tracer *trace.Tracer
	// Logger defaults to one that discards. A nil Registerer registers no metrics.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Store == nil || o.Schedule == nil || o.Sender == nil || o.Keyring == nil {
		return o, errors.New("dispatch: Store, Schedule, Sender and Keyring are required")
	}
	if o.Horizon != 0 && (o.Embedded || o.Horizon < time.Millisecond) {
		return o, fmt.Errorf("dispatch: horizon %s: must be at least 1ms, and zero with an embedded index",
			o.Horizon)
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

// Aliases of the parts, embedded in Engine so that the API and the UI can call their methods on it.
type (
	accepter   = accept.Accepter
	alerts     = alert.Alerts
	controller = control.Controller
	indexer    = index.Index
	reporter   = report.Reporter
	runner     = attempt.Runner
	secrets    = secret.Secrets
)

// An Engine accepts, claims, attempts and settles callbacks. It is safe for concurrent use, also before Run
// and after it: then nothing is sent, but accepted callbacks are durable.
type Engine struct {
	o     Options
	times process.Times
	clock *clock.Clock
	tasks *process.TaskTimes

	*accepter
	*alerts
	*controller
	*indexer
	*reporter
	*runner
	*secrets
}

// New returns an engine. Run starts it.
func New(o Options) (*Engine, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	times, err := process.ReadTimes()
	if err != nil {
		return nil, err
	}
	e := &Engine{o: o, times: times, clock: new(clock.Clock)}
	m := process.Metrics{Registerer: o.Registerer}
	counts := report.NewCounts(m)
	e.indexer = index.New(index.Options{
		Store: o.Store, Schedule: o.Schedule, Clock: e.clock,
		Observer: counts, Logger: o.Logger, Metrics: m, Times: times,
		Name: o.Name, Prefix: o.Prefix, Embedded: o.Embedded, Horizon: o.Horizon,
		SendingOff: o.SendingOff, NoWorker: o.NoWorker, LaneConcurrency: o.LaneConcurrency,
	})
	e.secrets = secret.New(o.Store, o.Keyring, e.clock, m)
	e.accepter = accept.New(accept.Options{
		Store: o.Store, Index: e.indexer, Secrets: e.secrets, Keyring: o.Keyring, Clock: e.clock,
		Observer: counts, Logger: o.Logger, Tracer: o.Tracer,
		Embedded: o.Embedded, PanGuard: o.PanGuard, CheckURL: o.CheckURL, ReadTemplate: o.ReadTemplate,
	})
	e.runner = attempt.New(attempt.Options{
		Store: o.Store, Schedule: o.Schedule, Sender: o.Sender, Index: e.indexer, Accept: e.accepter,
		Secrets: e.secrets, Keyring: o.Keyring, Clock: e.clock,
		Observer: counts, Tracer: o.Tracer, Logger: o.Logger, Metrics: m, Times: times,
		Name: o.Name, SendingOff: o.SendingOff, NoWorker: o.NoWorker, Workers: o.Workers,
		LaneConcurrency: o.LaneConcurrency, DrainTimeout: o.DrainTimeout,
	})
	e.reporter = report.New(report.Options{
		Store: o.Store, Accept: e.accepter, Counts: counts, Clock: e.clock, Logger: o.Logger,
		Name: o.Name, Version: o.Version, Roles: o.Roles,
		Embedded: o.Embedded, SendingOff: o.SendingOff, NoWorker: o.NoWorker, Workers: o.Workers,
		InFlight: e.runner.InFlight, Draining: e.runner.Draining, Drain: e.runner.Drain(),
	})
	e.controller = control.New(control.Options{
		Store: o.Store, Schedule: o.Schedule, Index: e.indexer, Accept: e.accepter,
		Secrets: e.secrets, Keyring: o.Keyring, Clock: e.clock,
		Observer: counts, Logger: o.Logger, Metrics: m, Times: times,
		Name: o.Name, Processes: e.reporter.Dispatchers, Crowded: e.runner.Crowded,
		Embedded: o.Embedded, PanGuard: o.PanGuard, CheckURL: o.CheckURL, ApprovalAbove: o.ApprovalAbove,
		RetentionPayload: o.RetentionPayload, RetentionMetadata: o.RetentionMetadata,
	})
	e.alerts = alert.New(alert.Options{
		Store: o.Store, Index: e.indexer, Endpoints: e.controller, Accept: e.accepter, Secrets: e.secrets,
		Keyring: o.Keyring, Clock: e.clock, Logger: o.Logger, Metrics: m, CheckURL: o.CheckURL,
		PublicURL: o.PublicURL,
	})
	e.tasks = m.TaskTimes()
	e.exportDegradations(m)
	return e, nil
}

// Run works until ctx ends and then drains. Claiming stops at once, unless BeginDrain stopped it before.
// Attempts in flight continue for at most DrainTimeout. Claims without an attempt are returned to the index
// and do not count. Run returns when all its goroutines have ended. Its error is that of the start.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.indexer.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("start the index: %w", err)
	}
	e.reporter.Begin()
	// Maintenance ends with ctx, and the runner when the drain is over. The settlers end after both, when no
	// result is left to write.
	settling, stopSettling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSettling()
	var maintenance, settlers sync.WaitGroup
	for _, run := range []func(context.Context){
		e.runner.RunSettle, e.indexer.RunWrites, e.accepter.RunSpawned, e.reporter.RunPresence,
	} {
		settlers.Go(func() { run(settling) })
	}
	for _, run := range []func(context.Context){
		e.indexer.RunMaintenance, e.runMaintenance, e.reporter.RunHealth, e.accepter.RunSettings,
		e.controller.RunRedrives, e.controller.RunSchedules, e.controller.RunMeasure,
	} {
		maintenance.Go(func() { run(ctx) })
	}
	e.runner.Run(ctx)
	<-ctx.Done()
	maintenance.Wait()
	stopSettling()
	settlers.Wait()
	e.reporter.Deregister(ctx)
	return nil
}
