package index

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	rebuildLease = "rebuild"
	// checkEvery is how often the generation of an index on Redis is compared with SQL's, also without an
	// error.
	checkEvery = 5 * time.Second
)

// WarnEvery is how often a failure that lasts is logged again.
const WarnEvery = time.Minute

// PageRows is how many rows one read returns.
const PageRows = 1000

// A generation keeps the index at the generation that SQL names. A generation is one filling of the index,
// numbered in SQL. This process adopts a generation that another process made, and rebuilds an index that is
// empty, has another generation, or was not filled to the end.
//
// Its content is unchecked after an operation found the generation missing or foreign; see
// contentTransitions. Only one process rebuilds at a time, the holder of a lease in SQL. Operations carry the
// generation, so none of them changes an index of another one.
type generation struct {
	ix      *Index
	wake    chan struct{}
	leader  *Leader
	content *state[content]
	// mismatchAt is when the present mismatch of content and SQL began, or the last one if they match now,
	// in Unix milliseconds. Zero: there was none.
	mismatchAt atomic.Int64
	// noClaims: no claim is alive in SQL. The index is embedded, start has ended the claims of the last
	// process, and nothing was claimed since, so the first rebuild has no claims to adopt.
	noClaims atomic.Bool
	// kept is the generation of a foreign index that this process leaves unchanged because sending is off;
	// zero: there is none.
	kept atomic.Int64
	// busy holds one token: this process checks and rebuilds once at a time.
	busy chan struct{}

	mu sync.Mutex
	// meta is the row of the generation that this process uses.
	meta store.IndexMeta
}

func newGeneration(ix *Index) *generation {
	return &generation{
		ix:      ix,
		leader:  ix.NewLeader(rebuildLease, ix.times.Leader),
		wake:    make(chan struct{}, 1),
		busy:    make(chan struct{}, 1),
		content: newState(unchecked, contentTransitions),
	}
}

// takeTurn waits until no other check or rebuild of this process runs. The caller calls end after its own.
func (g *generation) takeTurn(ctx context.Context) (end func(), err error) {
	select {
	case g.busy <- struct{}{}:
		return func() { <-g.busy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// checkSoon marks the content as unchecked and starts a check. An operation calls it that found the
// generation missing or foreign, or a shard closed for a rebuild whose process may have died.
func (g *generation) checkSoon() {
	g.apply("mismatch")
	process.Wake(g.wake)
}

// apply changes the state of the content, and notes when a mismatch begins.
func (g *generation) apply(event string) {
	was, is := g.content.apply(event)
	if is != matching && (was == matching || g.mismatchAt.Load() == 0) {
		g.mismatchAt.Store(g.ix.clock.Now())
	}
}

// degraded returns whether the index is being checked or rebuilt.
func (g *generation) degraded() bool { return g.content.is(unchecked) || g.content.is(rebuilding) }

// await waits until the index matches SQL, as far as this process knows, at most for timeout.
func (g *generation) await(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for g.degraded() && ctx.Err() == nil {
		process.Sleep(ctx, 20*time.Millisecond)
	}
}

// start reads the generation from SQL, and refuses a process whose prefix or number of shards differs from
// the database's. It does not fill the index: run does, in order of due times, so that the first due
// callbacks are sent while the rest streams in.
func (g *generation) start(ctx context.Context) error {
	if g.ix.o.Embedded {
		n, err := g.ix.o.Store.DropClaims(ctx, g.ix.clock.Now())
		if err != nil {
			return fmt.Errorf("end the claims of the last process: %w", err)
		}
		g.noClaims.Store(true)
		if n > 0 {
			g.ix.log.Info("attempts of the last process count as crashed", "attempts", n)
		}
	}
	want := g.firstMeta()
	meta, err := g.ix.o.Store.IndexMeta(ctx, want)
	if err != nil {
		return fmt.Errorf("read the index's row: %w", err)
	}
	if !g.ix.o.Embedded && (meta.Shards != want.Shards || meta.Prefix != want.Prefix) {
		return fmt.Errorf("the index of this database has %d shards and prefix %q, but this process is "+
			"configured for %d shards and prefix %q: use the same settings in all processes",
			meta.Shards, meta.Prefix, want.Shards, want.Prefix)
	}
	g.set(meta)
	g.checkSoon()
	return nil
}

// firstMeta is the row of a database that never had an index. An embedded index leaves shards and prefix open
// for the first shared index.
func (g *generation) firstMeta() store.IndexMeta {
	if g.ix.o.Embedded {
		return store.IndexMeta{Generation: 1}
	}
	return store.IndexMeta{Generation: 1, Shards: g.ix.o.Schedule.Shards(), Prefix: g.ix.o.Prefix}
}

// set makes m the generation of all operations of this process.
func (g *generation) set(m store.IndexMeta) {
	g.mu.Lock()
	g.meta = m
	g.mu.Unlock()
	g.kept.Store(0)
	// The claimers get the generation first. Otherwise they could take a claim of the new generation for one
	// of the old, and report a rollback.
	g.ix.listener.NewGeneration(m.Generation)
	g.ix.o.Schedule.SetGeneration(m.Generation)
}

func (g *generation) get() store.IndexMeta {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meta
}

// run checks the index until ctx ends: every checkEvery, and at once after checkSoon.
func (g *generation) run(ctx context.Context) {
	process.Loop{
		Every:   checkEvery,
		Wake:    g.wake,
		Failing: "check of the index failed; it is tried again",
		Repeat:  WarnEvery,
		Log:     g.ix.log,
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		err := g.check(ctx)
		if err == nil {
			return 0, nil
		}
		if errors.Is(err, errNotLeader) {
			err = nil // the other process rebuilds it
		}
		process.Sleep(ctx, probeEvery/4) // also if an operation found the index lost again at once
		return time.Nanosecond, err
	})
}

// errNotLeader: another process rebuilds the index.
var errNotLeader = fmt.Errorf("another process rebuilds the index: %w", schedule.ErrRebuilding)

// check compares the generations of index and SQL, and adopts or rebuilds. Nil means that the index matches
// SQL, or is kept as it is. A crash in the middle of a rebuild leaves SQL without a built generation, and the
// next leader starts again.
func (g *generation) check(ctx context.Context) error {
	if g.ix.o.Embedded && !g.content.is(unchecked) {
		return nil
	}
	end, err := g.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer end()
	meta, err := g.ix.o.Store.IndexMeta(ctx, g.firstMeta())
	if err != nil {
		return fmt.Errorf("read the index's row: %w", err)
	}
	present, err := g.ix.present(ctx)
	if err != nil && !errors.Is(err, schedule.ErrOlder) {
		return err
	}
	if present.all(meta.Generation) && meta.Built == meta.Generation && !g.anyShardClosed(ctx) {
		if meta.Generation != g.get().Generation || g.kept.Load() != 0 {
			g.ix.log.Info("adopted the generation of the index", "generation", meta.Generation)
			g.set(meta)
			g.ix.health.requestWalk()
		}
		// Do not wake the claimers. A claim that fails starts a check; if the check started a claim, the two
		// would run in a loop without a pause.
		g.apply("match")
		return nil
	}
	if kept, err := g.keepForeign(ctx, meta); kept || err != nil {
		return err
	}
	leader, err := g.leader.Lead(ctx)
	if err != nil {
		return err
	}
	if !leader {
		g.apply("mismatch")
		// The leader fills the new generation. Enqueues and settlements of this process go into it too.
		g.set(meta)
		return errNotLeader
	}
	defer g.leader.Resign(ctx)
	// The last holder of the lease may have rebuilt the index after the read above. Then this check starts
	// again.
	switch now, err := g.ix.o.Store.IndexMeta(ctx, g.firstMeta()); {
	case err != nil:
		return fmt.Errorf("read the index's row: %w", err)
	case now != meta:
		return errNotLeader
	}
	if err := g.warnOfRestore(ctx, meta); err != nil {
		return err
	}
	_, err = g.rebuild(ctx, meta, nil)
	return err
}

// generations are the generations of the shards, in their order; zero: the shard is empty.
type generations []int64

// present reads the generations of all shards. The error is schedule.ErrOlder if a shard was written by an
// older build and all others were read; such a shard counts as empty.
func (ix *Index) present(ctx context.Context) (generations, error) {
	got := make(generations, ix.o.Schedule.Shards())
	var older error
	for shard := range got {
		gctx, cancel := context.WithTimeout(ctx, Timeout)
		generation, err := ix.o.Schedule.Generation(gctx, shard)
		cancel()
		if err != nil {
			err = fmt.Errorf("read the index's generation: %w", err)
			if !errors.Is(err, schedule.ErrOlder) {
				return nil, err
			}
			older = err
			continue
		}
		got[shard] = generation
	}
	return got, older
}

// all returns whether every shard has the generation.
func (g generations) all(generation int64) bool {
	return !slices.ContainsFunc(g, func(has int64) bool { return has != generation })
}

// anyShardClosed returns whether a shard is closed for a rebuild. It makes a claim that leases nothing.
func (g *generation) anyShardClosed(ctx context.Context) bool {
	for shard := range g.ix.o.Schedule.Shards() {
		cctx, cancel := context.WithTimeout(ctx, Timeout)
		sent := time.Now()
		claimed, err := g.ix.o.Schedule.Claim(cctx, shard, schedule.ClaimRequest{
			Owner: g.ix.o.Name + "-check", Token: clock.NewToken(), Lease: time.Second,
			LaneLimit: g.ix.o.LaneConcurrency,
		})
		cancel()
		if err == nil && (g.ix.o.SendingOff || g.ix.o.NoWorker) {
			// A process without claimers reads the index's clock only here.
			g.ix.clock.Observe(claimed.Now, sent)
		}
		if errors.Is(err, schedule.ErrRebuilding) {
			return true
		}
	}
	return false
}

const (
	rollbackLease = "rollback"
	// rollbackTTL is how long one process alone repairs a shard after a rollback: all processes notice it at
	// the same time.
	rollbackTTL = 15 * time.Second
)

// A ShardVersion is the generation of a shard, and its sequence, which grows with every write to the shard.
type ShardVersion struct{ generation, Seq int64 }

// Fell stores the present version, and returns whether it is older than the stored one of the same
// generation. Then a replica without the last writes became the master, or a server restarted with an older
// copy. The generation must be the one before the claim was sent. An index that cannot be rolled back always
// has the sequence zero.
func (t *ShardVersion) Fell(generation, seq int64) bool {
	before := *t
	*t = ShardVersion{generation, seq}
	return before.generation == generation && seq < before.Seq
}

// RolledBack repairs a shard that was rolled back: it writes the lane settings, and has the catch-up give
// every open row to the index. Without it, the sweep would find the missing rows, but only after they are
// overdue. Items that the older state has too many do no harm: the stamp refuses them. One process does this
// for all.
func (ix *Index) RolledBack(ctx context.Context, shard int, from, to int64) {
	ix.metrics.rollbacks.Inc()
	ix.log.Warn("the index was rolled back to an older state; missing callbacks are enqueued again",
		"shard", shard, "sequence_before", from, "sequence", to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), SQLTimeout)
	defer cancel()
	first, err := ix.o.Store.TryLease(ctx, fmt.Sprintf("%s-%d", rollbackLease, shard), ix.o.Name,
		ix.clock.Now(), rollbackTTL)
	if err != nil {
		ix.log.Warn("leader election failed; this process continues as leader", "error", err)
	}
	if first || err != nil {
		// Pauses, limits and rates first: no other write would restore them.
		if _, err := ix.SetLanes(ctx, 0); err != nil {
			ix.log.Warn("lane settings could not be written to the index", "error", err)
		}
		ix.health.requestWalk()
	}
}
