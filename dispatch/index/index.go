// Package index keeps the index true to SQL. The content of the index follows from SQL alone, so the index
// may be lost at any time.
//
// A write to the index never fails its caller. An item that the index did not get is remembered and given to
// it when it answers again (outage.go). The sweep finds it if it is overdue (sweep.go), and a rebuild streams
// all items in (generation.go, rebuild.go). With a horizon the index holds only callbacks that are due within
// it (horizon.go).
//
// The package claims and sends nothing. No failure of it can cause a double send: only SQL's stamp allows a
// send (package attempt).
package index

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options configure an Index. The fields of the first block are required.
type Options struct {
	Store    Store
	Schedule Schedule
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	Metrics  process.Metrics
	Times    process.Times
	// Name of this process, the holder of its leases in SQL.
	Name string
	// Prefix is the key prefix that the index was opened with; it must be the one in SQL.
	Prefix string
	// Embedded: the index is in this process, and no other process uses it.
	Embedded bool
	// Horizon is how far ahead the index holds callbacks; zero: all of them.
	Horizon time.Duration
	// SendingOff leaves an index that does not match SQL unchanged.
	SendingOff bool
	// NoWorker: this process claims nothing, so it has no replies of claims to read the time from.
	NoWorker bool
	// LaneConcurrency is the most running attempts of a lane that sets no limit.
	LaneConcurrency int
}

// An Index keeps one index true to SQL. Its methods are safe for concurrent use.
type Index struct {
	o        Options
	times    process.Times
	log      *slog.Logger
	clock    *clock.Clock
	metrics  *metrics
	observer Observer
	listener Listener

	*health
	generation *generation
	loader     *loader
	pauses     *pauses
	// stoppedUntil is the end of the stop of all sending, as last read from SQL, in Unix milliseconds.
	stoppedUntil atomic.Int64
	stopLock     sync.Mutex
	// stopRetry holds a token after a failed read of the stop.
	stopRetry chan struct{}
	ping      sqlPing
	added     chan schedule.Item

	// jumpLoggedAt is when a jump of the index's clock was last logged; nil: never.
	jumpLoggedAt atomic.Pointer[time.Time]
	// auditAt is where the next audit continues. Only the audit uses it.
	auditAt auditCursor
	// fullMarksAt is when the low-water marks were last searched from the first row on. Only the sweep uses
	// it.
	fullMarksAt time.Time
}

// New returns an Index that does not run yet. The caller calls Listen before anything else.
func New(o Options) *Index {
	ix := &Index{
		o: o, times: o.Times, log: o.Logger, clock: o.Clock, metrics: newMetrics(o.Metrics),
		observer: o.Observer,
	}
	ix.clock.Jumped = ix.clockJumped
	ix.pauses = newPauses(ix.clock.Now)
	ix.health = newHealth(ix)
	ix.added = make(chan schedule.Item, enqueueQueue)
	ix.stopRetry = make(chan struct{}, 1)
	ix.generation = newGeneration(ix)
	ix.loader = &loader{ix: ix, leader: ix.NewLeader(loadLease, ix.times.Leader)}
	ix.watch(o.Metrics)
	return ix
}

// Listen sets the listener for changes, and the undoer of uncertain claims.
func (ix *Index) Listen(l Listener, undo Undoer) { ix.listener, ix.health.undoer = l, undo }

// Start reads the stop of all sending and the index's generation from SQL. It returns an error for a process
// whose prefix or number of shards differs from the database's.
func (ix *Index) Start(ctx context.Context) error {
	if err := ix.readStop(ctx); err != nil {
		return err
	}
	return ix.generation.start(ctx)
}

// RunMaintenance keeps the index at its generation, and loaded up to the horizon, and reads the stop of all
// sending, until ctx ends.
func (ix *Index) RunMaintenance(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { ix.generation.run(ctx) })
	running.Go(func() { ix.runStop(ctx) })
	if !ix.o.Embedded {
		running.Go(func() { ix.loader.run(ctx) })
	}
	running.Wait()
}

// RunWrites gives the index added and missed items until ctx ends and no added item is left.
func (ix *Index) RunWrites(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { ix.runEnqueue(ctx) })
	running.Go(func() { ix.health.run(ctx) })
	running.Wait()
}

// Degraded returns whether the index does not answer, is being checked or rebuilt, or is left unchanged
// although it does not match SQL.
func (ix *Index) Degraded() bool {
	return ix.Failing() || !ix.generation.content.is(matching)
}

// Paused returns whether the lane is paused or all sending is stopped now, by the settings that this process
// has read. It stops callbacks that were claimed before the pause. The pause itself is enforced by the index
// at the claim.
func (ix *Index) Paused(lane int64) bool { return ix.Stopped() || ix.pauses.has(lane) }

// IsClosed returns whether a shard is closed for claims by a rebuild.
func (ix *Index) IsClosed(ctx context.Context) bool { return ix.generation.anyShardClosed(ctx) }

// A Listener gets changes of the index. Its methods must not block.
type Listener interface {
	// NewGeneration gets the generation that this process uses from now on.
	NewGeneration(generation int64)
	// SettingsChanged gets lanes whose settings have changed, before the index gets them.
	SettingsChanged(settings []schedule.LaneSetting)
	// Wake gets a shard that may have something to claim.
	Wake(shard int)
}

// An Observer counts callbacks that this package ends.
type Observer interface {
	// Ended gets the number of callbacks that became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
	// Expired gets callbacks that expired without being claimed. now is by the index's clock.
	Expired(rows []store.EndedRow, now int64)
}

// RunHints passes the index's hints to the listener until ctx ends. A hint only saves waiting: a claimer
// without hints polls once in schedule.MaxIdle.
func (ix *Index) RunHints(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := ix.o.Schedule.Run(ctx); err != nil && ctx.Err() == nil {
			ix.log.Error("wake-up messages of the index ended; claimers poll instead", "error", err)
		}
	})
	hints := ix.o.Schedule.Hints()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case shard := <-hints:
			if shard >= 0 && shard < ix.o.Schedule.Shards() {
				ix.listener.Wake(shard)
			}
		}
	}
}

// hintDue wakes the claimer if one of the items is due now. It saves the round trip of the index's own hint.
func (ix *Index) hintDue(items []schedule.Item) {
	now := ix.clock.Now()
	if slices.ContainsFunc(items, func(i schedule.Item) bool { return i.Due <= now }) {
		ix.HintOnlyShard()
	}
}

// hintAll wakes every claimer.
func (ix *Index) hintAll() {
	for shard := range ix.o.Schedule.Shards() {
		ix.listener.Wake(shard)
	}
}
