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
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	rebuildLease = "rebuild"
	// keepEvery is how often the index's generation is compared with SQL's though nothing complained.
	keepEvery = 5 * time.Second
)

// WarnEvery is how often an index that cannot be looked after is complained of.
const WarnEvery = time.Minute

// PageRows is how many rows are read at once.
const PageRows = 1000

// A generation sees to it that the index has the generation that SQL says, and that it was filled: it adopts
// a generation that another process made, and rebuilds an index that is empty, foreign, or was left
// half-filled.
type generation struct {
	e       *Index
	wake    chan struct{}
	leader  *Leader
	content *state[content]
	// unsoundAt is since when the index is not sound, or was not last, in Unix milliseconds.
	unsoundAt atomic.Int64
	// unclaimed says that no claim is alive in SQL: this process has the index alone, has ended those of the
	// last one, and claims nothing before it has filled the index.
	unclaimed atomic.Bool
	// left is the generation of an index that a held process leaves as it found it; zero: there is none.
	left atomic.Int64
	// turn holds one token: this process compares generations and rebuilds once at a time.
	turn chan struct{}
	mu   sync.Mutex
	meta store.IndexMeta
}

func newGeneration(e *Index) *generation {
	return &generation{
		e: e, leader: e.NewLeader(rebuildLease), wake: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		content: newState(doubtful, contentChanges),
	}
}

// begin waits for its turn, and returns what ends it.
func (k *generation) begin(ctx context.Context) (end func(), err error) {
	select {
	case k.turn <- struct{}{}:
		return func() { <-k.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look has the index looked after: an operation found its generation missing or foreign, or a claim found it
// closed for a rebuild that may have died.
func (k *generation) look() {
	k.happens("odd")
	part.Wake(k.wake)
}

// happens changes what is known of the index's content.
func (k *generation) happens(what string) {
	was, is := k.content.happens(what)
	if is != sound && (was == sound || was == foreign || k.unsoundAt.Load() == 0) {
		k.unsoundAt.Store(k.e.clock.Now())
	}
}

// degraded says whether the index is being looked after.
func (k *generation) degraded() bool { return k.content.is(doubtful) || k.content.is(rebuilding) }

// await waits until the index is as SQL says, as far as this process knows, at most patience long.
func (k *generation) await(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for k.degraded() && ctx.Err() == nil {
		part.Sleep(ctx, 20*time.Millisecond)
	}
}

// start reads what SQL says of the index and refuses a process that is configured otherwise. Filling the
// index is left to run, so that whatever is due first is sent while the rest still streams in.
func (k *generation) start(ctx context.Context) error {
	if k.e.o.Embedded {
		n, err := k.e.o.Store.DropClaims(ctx, k.e.clock.Now())
		if err != nil {
			return fmt.Errorf("end the claims of the last process: %w", err)
		}
		k.unclaimed.Store(true)
		if n > 0 {
			k.e.log.Info("attempts that the last process left behind count as crashed", "attempts", n)
		}
	}
	want := k.want()
	meta, err := k.e.o.Store.IndexMeta(ctx, want)
	if err != nil {
		return fmt.Errorf("read the index's row: %w", err)
	}
	if !k.e.o.Embedded && (meta.Shards != want.Shards || meta.Prefix != want.Prefix) {
		return fmt.Errorf("the index of this database has %d shards under prefix %q, and this process is "+
			"set to %d under %q: start it alike",
			meta.Shards, meta.Prefix, want.Shards, want.Prefix)
	}
	k.set(meta)
	k.look()
	return nil
}

// want is the row of a database that never had an index. An embedded one leaves shards and prefix open: they
// are the first shared index's to choose.
func (k *generation) want() store.IndexMeta {
	if k.e.o.Embedded {
		return store.IndexMeta{Generation: 1}
	}
	return store.IndexMeta{Generation: 1, Shards: k.e.o.Schedule.Shards(), Prefix: k.e.o.Prefix}
}

func (k *generation) set(m store.IndexMeta) {
	k.mu.Lock()
	k.meta = m
	k.mu.Unlock()
	k.left.Store(0)
	// first: a claim of the new one is not to be taken for one of the last
	k.e.listener.NewGeneration(m.Generation)
	k.e.o.Schedule.SetGeneration(m.Generation)
}

func (k *generation) get() store.IndexMeta {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.meta
}

// run looks after the index until ctx ends.
func (k *generation) run(ctx context.Context) {
	part.Loop{
		Every: keepEvery, Wake: k.wake, Failing: "looking after the index is put off", Repeat: WarnEvery,
		Log: k.e.log,
	}.Run(ctx, func(ctx context.Context) (time.Duration, error) {
		err := k.keep(ctx)
		if err == nil {
			return 0, nil
		}
		if errors.Is(err, errNotLeader) {
			err = nil // the other process does it
		}
		part.Sleep(ctx, probeEvery/4) // also where an operation has just found the index lost again
		return time.Nanosecond, err
	})
}

// errNotLeader: another process rebuilds.
var errNotLeader = fmt.Errorf("another process rebuilds the index: %w", schedule.ErrRebuilding)

// keep compares generations, adopts or rebuilds. Nil: the index is as SQL says.
func (k *generation) keep(ctx context.Context) error {
	if k.e.o.Embedded && !k.content.is(doubtful) {
		return nil
	}
	end, err := k.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	meta, err := k.e.o.Store.IndexMeta(ctx, k.want())
	if err != nil {
		return fmt.Errorf("read the index's row: %w", err)
	}
	present, err := k.e.present(ctx)
	if err != nil && !errors.Is(err, schedule.ErrOlder) {
		return err
	}
	if present.all(meta.Generation) && meta.Built == meta.Generation && !k.isClosed(ctx) {
		if meta.Generation != k.get().Generation || k.left.Load() != 0 {
			k.e.log.Info("took over the index's generation", "generation", meta.Generation)
			k.set(meta)
			k.e.health.missedAll()
		}
		// No claimer is woken: one whose claim fails asks for this look, and the two would take turns without
		// a pause.
		k.happens("matches")
		return nil
	}
	if left, err := k.leaveAlone(ctx, meta); left || err != nil {
		return err
	}
	leader, err := k.leader.Lead(ctx)
	if err != nil {
		return err
	}
	if !leader {
		k.happens("odd")
		k.set(meta) // Accepts and results go into the new index while its leader still fills it.
		return errNotLeader
	}
	defer k.leader.Resign(ctx)
	// What was read before the lease was ours may be what its last holder has mended meanwhile.
	switch now, err := k.e.o.Store.IndexMeta(ctx, k.want()); {
	case err != nil:
		return fmt.Errorf("read the index's row: %w", err)
	case now != meta:
		return errNotLeader
	}
	if err := k.warnOfRestore(ctx, meta); err != nil {
		return err
	}
	_, err = k.rebuild(ctx, meta, nil)
	return err
}

// generations are what the shards have, in their order; zero: none.
type generations []int64

// present reads the generations of all shards. Its error is schedule.ErrOlder only if no shard is of a newer
// build, and all others could be read; those of an older build then count as none.
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

// all says whether every shard has the generation.
func (g generations) all(generation int64) bool {
	return !slices.ContainsFunc(g, func(has int64) bool { return has != generation })
}

// isClosed asks with a claim that wants nothing.
func (k *generation) isClosed(ctx context.Context) bool {
	for shard := range k.e.o.Schedule.Shards() {
		cctx, cancel := context.WithTimeout(ctx, Timeout)
		sent := time.Now()
		claimed, err := k.e.o.Schedule.Claim(cctx, shard, schedule.ClaimRequest{
			Owner: k.e.o.Name + "-keeper", Token: clock.NewToken(), Lease: time.Second,
			LaneLimit: k.e.o.LaneConcurrency,
		})
		cancel()
		if err == nil && (k.e.o.SendingOff || k.e.o.NoWorker) {
			// Who claims nothing would otherwise never learn what time it is.
			k.e.clock.Observe(claimed.Now, sent)
		}
		if errors.Is(err, schedule.ErrRebuilding) {
			return true
		}
	}
	return false
}

const (
	rollbackLease = "rollback"
	// rollbackTTL is how long the process that looks after an index that went back in time keeps the others
	// from it: they have noticed the same.
	rollbackTTL = 15 * time.Second
)

// A ShardVersion is how far one shard had come when a claim was answered: its generation, and the sequence
// that grows with every write to the shard.
type ShardVersion struct{ generation, Seq int64 }

// Fell takes the shard's present state, and says whether it is an older one of the same generation than was
// seen before the claim was sent. Then a replica without the last writes became the master, or a server came
// back with an older copy. An index that cannot be rolled back always says zero.
func (t *ShardVersion) Fell(generation, seq int64) bool {
	before := *t
	*t = ShardVersion{generation, seq}
	return before.generation == generation && seq < before.Seq
}

// RolledBack has every open row looked for in the index: what the older state lacks would otherwise be found
// by the sweep, and only after it was overdue. What the older state has too much is refused by the stamp. One
// process does it for all.
func (ix *Index) RolledBack(ctx context.Context, shard int, from, to int64) {
	ix.metrics.rollbacks.Inc()
	ix.log.Warn("the index went back in time; what it lacks is given to it again", "shard", shard,
		"sequence_before", from, "sequence", to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), SQLTimeout)
	defer cancel()
	first, err := ix.o.Store.TryLease(ctx, fmt.Sprintf("%s-%d", rollbackLease, shard), ix.o.Name,
		ix.clock.Now(), rollbackTTL)
	if err != nil {
		ix.log.Warn("who looks after the index cannot be agreed on; this process does", "error", err)
	}
	if first || err != nil {
		// Pauses, limits and rates first: what it lacks of them nobody else would tell it.
		if _, err := ix.SetLanes(ctx, 0); err != nil {
			ix.log.Warn("the index may lack settings of lanes", "error", err)
		}
		ix.health.missedAll()
	}
}
