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

// A Rebuild is what is known of an index that is not as SQL says; since is zero for one that is.
type Rebuild struct {
	Since int64
	// Generation is what is being filled; zero: no process has begun yet.
	Generation int64
}

// Rebuilding says since when the index is being filled, or lacks what it should have.
func (ix *Index) Rebuilding(ctx context.Context) (Rebuild, error) {
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.want())
	if err != nil {
		return Rebuild{}, fmt.Errorf("read the index's row: %w", err)
	}
	switch {
	case meta.Built != meta.Generation && meta.MadeAt != 0:
		return Rebuild{Since: meta.MadeAt, Generation: meta.Generation}, nil
	case meta.Built != meta.Generation || ix.generation.degraded():
		return Rebuild{Since: ix.generation.unsoundAt.Load()}, nil
	}
	return Rebuild{}, nil
}

// AskIndex asks the index where callbacks and how lanes are. An index that is known not to answer is not
// waited for again.
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

// errIndexSilent: only the probe asks the index for now.
var errIndexSilent = errors.New("the index does not answer")

// Stats sums the sizes of the index over its shards. Now, Next and Seq are the first shard's.
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

// A Status says what the index is, and what it should be.
type Status struct {
	// Prefix and Shards are what this process has opened it with. Embedded: it is this process's own, and has
	// no use of a prefix.
	Prefix   string
	Shards   int
	Embedded bool
	// Horizon is how far ahead this process has it hold callbacks; zero: all of them.
	Horizon time.Duration
	// Generation is what SQL says that it must have, Present what it has: another one than Generation, if any
	// shard has; zero: it is empty, another build's, or Down.
	Generation, Present int64
	// Down: it does not answer.
	Down bool
	// Rebuilding: a process fills it, or has begun to and died.
	Rebuilding bool
	// BuiltAt is when it was last filled to the end, in Unix milliseconds; zero: never, or before that was
	// kept.
	BuiltAt int64
}

// IndexStatus reads what SQL and the index say of the index. Its error is SQL's: an index that does not
// answer is Down.
func (ix *Index) IndexStatus(ctx context.Context) (Status, error) {
	s := Status{Prefix: ix.o.Prefix, Shards: ix.o.Schedule.Shards(), Embedded: ix.o.Embedded,
		Horizon: ix.o.Horizon}
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.want())
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
				s.Present = generation // the first one that differs
				break
			}
		}
	}
	return s, nil
}

// A Drift is what differs between SQL and the index, seen twice, two seconds apart. All zero: none.
type Drift struct {
	// Rows is how many open rows were compared, Items how many items of the index.
	Rows, Items int
	// Beyond is how many of the rows are beyond the horizon, so that the index need not hold them.
	Beyond int
	// Missing are open rows that the index does not hold; Late, those that it holds for a later time than SQL
	// says.
	Missing, Late int
	// Extra are items of the index whose row is not open: Unknown, which SQL has no row of, and Ended, whose
	// row is terminal.
	Extra, Unknown, Ended int
	// Of each, at most 100 ids are listed unless all were asked for; all are counted.
	MissingIDs, LateIDs, ExtraIDs, UnknownIDs, EndedIDs []string
	// Generation is what SQL says that the index must have. IndexGeneration is what it has; they differ only
	// while a held process leaves an index alone.
	Generation, IndexGeneration int64
}

// Clean says whether nothing differs.
func (d Drift) Clean() bool {
	return d.Missing == 0 && d.Late == 0 && d.Extra == 0 && d.Generation == d.IndexGeneration
}

// A RebuildReport is what a rebuild did, or with a dry run would do.
type RebuildReport struct {
	DryRun bool
	// Open is the open rows; Claimed, those of them whose claim is alive, put back as leased.
	Open, Claimed int
	Generation    int64
	Took          time.Duration
}
