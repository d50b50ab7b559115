// Package index keeps the index true to SQL: what the index holds follows from SQL alone, so it may be lost
// at any time.
//
// A write to the index never fails its caller: what the index did not hear of is remembered and given to it
// as soon as it answers again (outage.go), found by the sweep when it is overdue (sweep.go), or streamed in
// by a rebuild (generation.go, rebuild.go). With a horizon the index holds only what is due within it
// (horizon.go).
//
// It claims and sends nothing, and no write of its can make SQL's answer another one.
package index

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Options are what the index's upkeep is made of. All of the first block are required.
type Options struct {
	Store    Store
	Schedule Schedule
	Clock    *clock.Clock
	Observer Observer
	Logger   *slog.Logger
	Metrics  part.Metrics
	Times    part.Times
	// Name of this process, for leases.
	Name string
	// Prefix is what the index was opened with; it must be what SQL says.
	Prefix string
	// Embedded says that the index is this process's own.
	Embedded bool
	// Horizon is how far ahead the index holds callbacks; zero: all of them.
	Horizon time.Duration
	// SendingOff leaves a foreign index as it was found.
	SendingOff bool
	// NoWorker: this process claims nothing, so that it has no other replies to learn the time from.
	NoWorker bool
	// LaneConcurrency is the most attempts of a lane that sets no limit.
	LaneConcurrency int
}

// An Index keeps one index true. Its methods may be called from many goroutines.
type Index struct {
	o        Options
	times    part.Times
	log      *slog.Logger
	clock    *clock.Clock
	metrics  *metrics
	observer Observer
	listener Listener

	*health
	generation *generation
	loader     *loader
	pauses     *pauses
	probe      sqlProbe
	added      chan schedule.Item

	// jumpWarned is when a jump of the index's clock was last warned of; nil: never.
	jumpWarned atomic.Pointer[time.Time]
	// audited is where the audit goes on. Only the audit touches it.
	audited auditPlace
	// markedFully is when the low-water marks were last looked for from the first row on. Only the sweep
	// touches it.
	markedFully time.Time
}

// New returns an index whose upkeep does not run yet. Listen comes before anything else.
func New(o Options) *Index {
	ix := &Index{
		o: o, times: o.Times, log: o.Logger, clock: o.Clock, metrics: newMetrics(o.Metrics),
		observer: o.Observer,
	}
	ix.clock.Jumped = ix.clockJumped
	ix.pauses = newPauses(ix.clock.Now)
	ix.health = newHealth(ix)
	ix.added = make(chan schedule.Item, enqueueQueue)
	ix.generation = newGeneration(ix)
	ix.loader = &loader{e: ix, leader: ix.NewLeader(loadLease)}
	ix.watch(o.Metrics)
	return ix
}

// Listen says who hears what changes, and what has claims to undo when SQL works again.
func (ix *Index) Listen(l Listener, undo Undoer) { ix.listener, ix.health.beforeClaims = l, undo }

// Start reads what SQL says of the index, and refuses a process that is configured otherwise.
func (ix *Index) Start(ctx context.Context) error { return ix.generation.start(ctx) }

// RunMaintenance keeps the index at its generation, and filled up to the horizon, until ctx ends.
func (ix *Index) RunMaintenance(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { ix.generation.run(ctx) })
	if !ix.o.Embedded {
		running.Go(func() { ix.loader.run(ctx) })
	}
	running.Wait()
}

// RunWrites gives the index what is added, and what it missed, until ctx ends and nothing is left to add.
func (ix *Index) RunWrites(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { ix.runAdded(ctx) })
	running.Go(func() { ix.health.run(ctx) })
	running.Wait()
}

// Degraded says that the index does not answer, is being rebuilt, or is left as it was found.
func (ix *Index) Degraded() bool {
	return ix.Failing() || !ix.generation.content.is(sound)
}

// Paused says whether the lane is paused now, as far as this process has read. The index decides what is
// claimed; this is for what was claimed before the pause and has not begun.
func (ix *Index) Paused(lane int64) bool { return ix.pauses.has(lane) }

// IsClosed says whether a shard lets no claims in, for a rebuild.
func (ix *Index) IsClosed(ctx context.Context) bool { return ix.generation.isClosed(ctx) }

// A Listener hears what changes in the index. Its methods must not block.
type Listener interface {
	// NewGeneration says which generation of the index this process works with from now on.
	NewGeneration(generation int64)
	// SettingsChanged names lanes whose settings have changed, before the index is told of them.
	SettingsChanged(settings []schedule.LaneSetting)
	// Wake says that the shard may have something to claim.
	Wake(shard int)
}

// An Observer counts what the index's upkeep ends.
type Observer interface {
	// Ended says that callbacks became terminal without a result.
	Ended(n int, state store.State, reason store.Reason)
	// Expired names callbacks that ended as dead without being claimed, by the index's clock.
	Expired(rows []store.OpenRow, now int64)
}

// RunHints passes the index's hints on to the claimers.
func (ix *Index) RunHints(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := ix.o.Schedule.Run(ctx); err != nil && ctx.Err() == nil {
			ix.log.Error("the index's hints ended; claimers re-poll", "error", err)
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

// hintDue wakes the claimer if one of the items is due now, so that it need not wait for the index's own hint
// to come round. With several shards only the index knows whose item it is.
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
