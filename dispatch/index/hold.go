package index

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// leaveAlone says whether an index that is not as SQL says is left as it is, because this process is held.
// After SQL was restored from a backup, the index is all that still knows which callbacks were accepted
// since: a rebuild would forget them before anybody has seen them. An index that holds nothing, and one of
// this process's own, is filled as ever.
func (k *generation) leaveAlone(ctx context.Context, meta store.IndexMeta) (bool, error) {
	if !k.e.o.SendingOff || k.e.o.Embedded {
		return false, nil
	}
	newest, err := k.newest(ctx)
	if errors.Is(err, schedule.ErrOlder) {
		return false, fmt.Errorf("sending is held, so the index is left as it was found: %w: look at "+
			"\"dispatcher verify\" with that build, "+
			"then run \"dispatcher rebuild\" or start without --hold, which both empty it and fill it from SQL", err)
	}
	if err != nil || newest == 0 {
		return false, err
	}
	if k.left.Load() != newest {
		k.set(meta)
		// The index is read, and told of accepts, by the generation that it has.
		k.e.o.Schedule.SetGeneration(newest)
		k.left.Store(newest)
		k.e.log.Warn("sending is held, so the index is left as it was found although SQL says otherwise: "+
			"look at \"dispatcher verify\", "+
			"then run \"dispatcher rebuild\" or start without --hold, which both empty it and fill it from SQL",
			"index_generation", newest, "sql_generation", meta.Generation, "sql_built", meta.Built)
	}
	k.happens("left")
	return true, nil
}

// warnOfRestore says, before a rebuild empties the index, that it holds what SQL cannot know. The caller
// holds the lease and has read the row since, so that no rebuild of another process is mistaken for it.
func (k *generation) warnOfRestore(ctx context.Context, meta store.IndexMeta) error {
	newest, err := k.newest(ctx)
	if errors.Is(err, schedule.ErrOlder) {
		k.e.log.Warn("the index is emptied and filled from SQL, because this build writes it otherwise",
			"cause", err)
		return nil
	}
	if err != nil || newest <= meta.Generation {
		return err
	}
	k.e.log.Warn("the index is newer than SQL says: SQL was restored from a backup, or this is another "+
		"database's index; "+
		"it is emptied and filled from SQL now, and what only the index knew is forgotten (with --hold it is kept for \"dispatcher verify\")",
		"index_generation", newest, "sql_generation", meta.Generation)
	return nil
}

// newest is the highest generation of any shard; zero: every shard is empty.
func (k *generation) newest(ctx context.Context) (int64, error) {
	present, err := k.e.present(ctx)
	return slices.Max(append(present, 0)), err
}
