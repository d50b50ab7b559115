package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Now returns the index's clock in Unix milliseconds.
func (ix *Index) Now() int64 { return ix.clock.Now() }

// A Rebuild says whether the index does not match SQL at present. Since is zero if it matches, else since
// when it does not, in Unix milliseconds.
type Rebuild struct {
	Since int64
	// Generation is the generation that is being filled; zero: no process has begun yet.
	Generation int64
}

// Rebuilding returns since when the index is being filled or does not match SQL.
func (ix *Index) Rebuilding(ctx context.Context) (Rebuild, error) {
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.firstMeta())
	if err != nil {
		return Rebuild{}, fmt.Errorf("read the index's row: %w", err)
	}
	switch {
	case meta.Built != meta.Generation && meta.MadeAt != 0:
		return Rebuild{Since: meta.MadeAt, Generation: meta.Generation}, nil
	case meta.Built != meta.Generation || ix.generation.degraded():
		return Rebuild{Since: ix.generation.mismatchAt.Load()}, nil
	}
	return Rebuild{}, nil
}

// AskIndex looks up callbacks and lanes in the index. If the index is known not to answer, it returns an
// error at once.
func (ix *Index) AskIndex(
	ctx context.Context, refs []schedule.Ref, lanes []int64,
) (positions []schedule.Position, states []schedule.LaneState, err error) {
	if ix.health.indexSilent() {
		return nil, nil, errIndexSilent
	}
	ctx, cancel := context.WithTimeout(ctx, ix.health.CallTime())
	defer cancel()
	positions, err = ix.o.Schedule.Lookup(ctx, refs)
	if err == nil {
		states, err = ix.o.Schedule.LaneStates(ctx, lanes)
	}
	if err != nil {
		ix.health.Failed("lookup", err)
		return nil, nil, err
	}
	return positions, states, nil
}

// maxBreakers is how many open breakers OpenBreakers reads from each shard.
const maxBreakers = 5000

// OpenBreakers returns lanes whose breaker is open, those of each shard that opened first.
func (ix *Index) OpenBreakers(ctx context.Context) (lanes []int64, err error) {
	if ix.health.indexSilent() {
		return nil, errIndexSilent
	}
	ctx, cancel := context.WithTimeout(ctx, ix.health.CallTime())
	defer cancel()
	for shard := range ix.o.Schedule.Shards() {
		open, err := ix.o.Schedule.OpenBreakers(ctx, shard, maxBreakers)
		if err != nil {
			ix.health.Failed("breakers", err)
			return nil, err
		}
		lanes = append(lanes, open...)
	}
	return lanes, nil
}

// errIndexSilent: the index does not answer, and only the probe calls it.
var errIndexSilent = errors.New("the index does not answer")

// Stats returns the sizes of the index, summed over its shards. Now, Next and Seq are those of the first
// shard.
func (ix *Index) Stats(ctx context.Context) (schedule.Stats, error) {
	var sum schedule.Stats
	for shard := range ix.o.Schedule.Shards() {
		s, err := ix.o.Schedule.Stats(ctx, shard)
		if err != nil {
			return sum, fmt.Errorf("stats of shard %d: %w", shard, err)
		}
		if shard == 0 {
			sum = s
			continue
		}
		sum.Delayed += s.Delayed
		sum.Ready += s.Ready
		sum.Leased += s.Leased
		sum.RunnableLanes += s.RunnableLanes
		sum.BlockedLanes += s.BlockedLanes
		sum.OpenBreakers += s.OpenBreakers
		sum.Locks += s.Locks
		sum.Waiters += s.Waiters
		sum.Quarantined += s.Quarantined
		if s.HeadDue != 0 && (sum.HeadDue == 0 || s.HeadDue < sum.HeadDue) {
			sum.HeadDue = s.HeadDue
		}
		for name, n := range s.Counters {
			sum.Counters[name] += n
		}
	}
	return sum, nil
}

// A Status describes the index as it is and as SQL says it should be.
type Status struct {
	// Prefix and Shards are what this process has opened the index with. Embedded: the index is in this
	// process, and has no prefix.
	Prefix   string
	Shards   int
	Embedded bool
	// Horizon is how far ahead this process loads callbacks into the index; zero: all of them.
	Horizon time.Duration
	// Generation is the generation that SQL names. Present is the one that the index has; if a shard has
	// another than Generation, that one. Present is zero if the index is empty, was written by another build,
	// or is Down.
	Generation, Present int64
	// Down: the index does not answer.
	Down bool
	// Rebuilding: a process fills the index, or died while it did.
	Rebuilding bool
	// BuiltAt is when the index was last filled to the end, in Unix milliseconds; zero: never, or not
	// recorded.
	BuiltAt int64
}

// IndexStatus reads the status of the index from SQL and from the index. Its error is SQL's; an index that
// does not answer is Down.
func (ix *Index) IndexStatus(ctx context.Context) (Status, error) {
	s := Status{Prefix: ix.o.Prefix, Shards: ix.o.Schedule.Shards(), Embedded: ix.o.Embedded,
		Horizon: ix.o.Horizon}
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.firstMeta())
	if err != nil {
		return s, fmt.Errorf("read the index's row: %w", err)
	}
	s.Generation, s.BuiltAt = meta.Generation, meta.BuiltAt
	s.Rebuilding = meta.Built != meta.Generation || ix.generation.content.is(rebuilding)
	s.Down = ix.health.indexSilent()
	if s.Down {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	switch present, err := ix.present(ctx); {
	case errors.Is(err, schedule.ErrOlder), errors.Is(err, schedule.ErrNewer):
	case err != nil:
		s.Down = true
	default:
		s.Present = meta.Generation
		for _, generation := range present {
			if generation != meta.Generation {
				s.Present = generation // the first that differs
				break
			}
		}
	}
	return s, nil
}

// A Drift is the difference between SQL and the index that was found twice, two seconds apart. There is
// none if Missing, Late and Extra are zero.
type Drift struct {
	// Rows is how many open rows were compared, Items how many items of the index.
	Rows, Items int
	// Beyond is how many of the rows are due beyond the horizon, so that the index need not hold them.
	Beyond int
	// Missing counts open rows that the index does not hold. Late counts those that it holds for a later time
	// than SQL.
	Missing, Late int
	// Extra counts items of the index whose row is not open: Unknown ones have no row in SQL, Ended ones have
	// a terminal row.
	Extra, Unknown, Ended int
	// The ids of each kind, at most 100 unless all were requested. The numbers above count all.
	MissingIDs, LateIDs, ExtraIDs, UnknownIDs, EndedIDs []string
	// Generation is the generation that SQL names, IndexGeneration the one that the index has. They differ
	// only while a process with sending off leaves the index unchanged.
	Generation, IndexGeneration int64
}

// Clean returns whether nothing differs.
func (d Drift) Clean() bool {
	return d.Missing == 0 && d.Late == 0 && d.Extra == 0 && d.Generation == d.IndexGeneration
}

// A RebuildReport is what a rebuild did or, with DryRun, would do.
type RebuildReport struct {
	DryRun bool
	// Open counts the open rows. Claimed counts those of them with a live claim, which were put back as
	// leased.
	Open, Claimed int
	Generation    int64
	Took          time.Duration
}
