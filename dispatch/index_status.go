package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// An IndexStatus says what the index is, and what it should be.
type IndexStatus struct {
	// Prefix and Shards are what this process has opened it with. Embedded: it is this process's own, and has no use of a prefix.
	Prefix   string
	Shards   int
	Embedded bool
	// Horizon is how far ahead this process has it hold callbacks; zero: all of them.
	Horizon time.Duration
	// Generation is what SQL says that it must have, Present what it has: another one than Generation, if any shard has; zero: it is empty,
	// another build's, or Down.
	Generation, Present int64
	// Down: it does not answer.
	Down bool
	// Rebuilding: a process fills it, or has begun to and died.
	Rebuilding bool
	// BuiltAt is when it was last filled to the end, in Unix milliseconds; zero: never, or before that was kept.
	BuiltAt int64
}

// IndexStatus reads what SQL and the index say of the index. Its error is SQL's: an index that does not answer is Down.
func (e *Engine) IndexStatus(ctx context.Context) (IndexStatus, error) {
	s := IndexStatus{Prefix: e.o.Prefix, Shards: e.o.Schedule.Shards(), Embedded: e.o.Alone, Horizon: e.o.Horizon}
	meta, err := e.o.Store.IndexMeta(ctx, e.keeper.want())
	if err != nil {
		return s, fmt.Errorf("read the index's row: %w", err)
	}
	s.Generation, s.BuiltAt = meta.Generation, meta.BuiltAt
	s.Rebuilding = meta.Built != meta.Generation || e.keeper.rebuilding.Load()
	if s.Down = e.trouble.indexSilent(); s.Down {
		return s, nil
	}
	if s.Present, err = e.presentGeneration(ctx, meta.Generation); err != nil {
		s.Down = true
	}
	return s, nil
}

// presentGeneration returns the first generation of a shard that is not the wanted one; the wanted one, if there is none.
func (e *Engine) presentGeneration(ctx context.Context, wanted int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, indexTimeout)
	defer cancel()
	for shard := range e.o.Schedule.Shards() {
		got, err := e.o.Schedule.Generation(ctx, shard)
		if errors.Is(err, schedule.ErrOlder) || errors.Is(err, schedule.ErrNewer) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		if got != wanted {
			return got, nil
		}
	}
	return wanted, nil
}
