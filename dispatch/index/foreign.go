package index

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// emptyAndFill is what an operator does after looking at an index that was left unchanged.
const emptyAndFill = "run \"dispatcher rebuild\" or restart without --hold: " +
	"both empty the index and fill it from SQL"

// keepForeign returns whether an index that does not match SQL is left unchanged, because sending is off.
// After SQL was restored from a backup, only the index still has the callbacks that were accepted since. A
// rebuild would drop them before anyone has seen them. An empty index and an embedded one are filled as
// always.
func (g *generation) keepForeign(ctx context.Context, meta store.IndexMeta) (bool, error) {
	if !g.ix.o.SendingOff || g.ix.o.Embedded {
		return false, nil
	}
	newest, err := g.newest(ctx)
	if errors.Is(err, schedule.ErrOlder) {
		return false, fmt.Errorf("sending is off, so the index of an older build is left unchanged: %w: "+
			"run \"dispatcher verify\" with that build, then "+emptyAndFill, err)
	}
	if err != nil || newest == 0 {
		return false, err
	}
	if g.kept.Load() != newest {
		g.set(meta)
		// Reads and enqueues use the generation that the index has.
		g.ix.o.Schedule.SetGeneration(newest)
		g.kept.Store(newest)
		g.ix.log.Warn("sending is off, so the index is left unchanged although it does not match SQL",
			"index_generation", newest, "sql_generation", meta.Generation, "sql_built", meta.Built,
			"hint", "run \"dispatcher verify\", then "+emptyAndFill)
	}
	g.apply("left alone")
	return true, nil
}

// warnOfRestore logs, before a rebuild empties the index, that the index holds callbacks which SQL does not
// have. The caller holds the lease and has read meta since, so meta is not outdated by a rebuild of another
// process.
func (g *generation) warnOfRestore(ctx context.Context, meta store.IndexMeta) error {
	newest, err := g.newest(ctx)
	if errors.Is(err, schedule.ErrOlder) {
		g.ix.log.Warn("an older build wrote the index; it is emptied and filled from SQL", "cause", err)
		return nil
	}
	if err != nil || newest <= meta.Generation {
		return err
	}
	g.ix.log.Warn("the index is newer than SQL; it is emptied and filled from SQL",
		"index_generation", newest, "sql_generation", meta.Generation,
		"cause", "SQL was restored from a backup, or the index belongs to another database",
		"effect", "callbacks that only the index has are lost; --hold keeps them for \"dispatcher verify\"")
	return nil
}

// newest returns the highest generation of any shard; zero: every shard is empty.
func (g *generation) newest(ctx context.Context) (int64, error) {
	present, err := g.ix.present(ctx)
	return slices.Max(append(present, 0)), err
}
