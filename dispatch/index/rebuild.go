package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// spreadRate and spreadMost spread overdue callbacks in a rebuilt index, ten a millisecond over at most a
	// minute. Otherwise a long backlog would become due in one millisecond.
	spreadRate = 10
	spreadMost = time.Minute
	// fillTimeout is how long a rebuild goes on while each call to the index or to SQL fails.
	fillTimeout = 30 * time.Second
)

// Rebuild empties the index and fills it from SQL while the system runs. Claims wait only until the attempts
// in flight are back in the index. With dryRun it only counts. One process rebuilds at a time: if another one
// does, the error is schedule.ErrRebuilding.
func (ix *Index) Rebuild(ctx context.Context, dryRun bool, by store.Actor) (RebuildReport, error) {
	if dryRun {
		return ix.countRebuild(ctx)
	}
	end, err := ix.generation.takeTurn(ctx)
	if err != nil {
		return RebuildReport{}, err
	}
	defer end()
	leader, err := ix.generation.leader.Lead(ctx)
	if err != nil {
		return RebuildReport{}, err
	}
	if !leader {
		return RebuildReport{}, errNotLeader
	}
	defer ix.generation.leader.Resign(ctx)
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.firstMeta())
	if err != nil {
		return RebuildReport{}, fmt.Errorf("read the index's row: %w", err)
	}
	// An older build must not empty an index that newer builds work on. Another error does not stop the
	// rebuild: an unreadable generation may be the fault to repair.
	if _, err := ix.generation.newest(ctx); errors.Is(err, schedule.ErrNewer) {
		return RebuildReport{}, err
	}
	return ix.generation.rebuild(ctx, meta, &by)
}

// countRebuild counts what a rebuild would put into the index.
func (ix *Index) countRebuild(ctx context.Context) (RebuildReport, error) {
	started := time.Now()
	report := RebuildReport{DryRun: true, Generation: ix.generation.get().Generation}
	until := schedule.Forever
	if ix.o.Horizon > 0 {
		until = ix.clock.Now() + ix.o.Horizon.Milliseconds()
	}
	err := ix.walkOpen(ctx, span{until: until}, func(rows []store.OpenRow) error {
		now := ix.clock.Now()
		for i := range rows {
			report.Open++
			if rows[i].ClaimUntil > now {
				report.Claimed++
			}
		}
		return nil
	})
	report.Took = time.Since(started)
	return report, err
}

// rebuild makes a new generation and fills it. The caller holds the lease, which is renewed meanwhile, and
// its turn. If the process dies, SQL has no built generation, and the next leader starts again. by is the
// actor for the audit log; nil: the index was lost.
func (g *generation) rebuild(
	ctx context.Context, meta store.IndexMeta, by *store.Actor,
) (RebuildReport, error) {
	g.apply("begun")
	leading, end := g.leader.KeepRenewed(ctx, errNotLeader)
	defer end()
	report, err := g.refill(leading, meta, by)
	if err != nil {
		g.apply("failed")
		g.checkSoon() // the next leader starts again
	}
	if err != nil && ctx.Err() == nil && leading.Err() != nil {
		err = context.Cause(leading)
	}
	return report, err
}

// refill does the steps of a rebuild. ctx ends when the lease is lost. The order matters: the watermark, the
// lane settings and the claims in flight are in place before the shards open for claims. The rest follows
// while callbacks are sent.
func (g *generation) refill(
	ctx context.Context, meta store.IndexMeta, by *store.Actor,
) (RebuildReport, error) {
	started := time.Now()
	ix := g.ix
	generation, err := ix.o.Store.NextGeneration(ctx, meta.Generation, ix.clock.Now(), by)
	if err != nil {
		return RebuildReport{}, fmt.Errorf("make a new generation: %w", err)
	}
	report := RebuildReport{Generation: generation}
	meta.Generation = generation
	for shard := range ix.o.Schedule.Shards() {
		if err := ix.o.Schedule.Reset(ctx, shard, generation); err != nil {
			return report, fmt.Errorf("reset shard %d: %w", shard, err)
		}
	}
	g.set(meta)
	until, err := ix.setWatermarks(ctx)
	if err != nil {
		return report, err
	}
	if _, err := ix.SetLanes(ctx, 0); err != nil {
		return report, err
	}
	report.Claimed, err = g.adopt(ctx)
	if err != nil {
		return report, err
	}
	ix.metrics.adopted.Add(float64(report.Claimed))
	for shard := range ix.o.Schedule.Shards() {
		if err := ix.o.Schedule.Open(ctx, shard); err != nil {
			return report, fmt.Errorf("open shard %d: %w", shard, err)
		}
	}
	ix.hintAll()
	report.Open, err = g.fill(ctx, until)
	if err != nil {
		return report, err
	}
	if err := ix.o.Store.MarkBuilt(ctx, generation, ix.clock.Now()); err != nil {
		return report, fmt.Errorf("mark the generation as built: %w", err)
	}
	meta.Built = generation
	g.set(meta)
	g.apply("filled")
	ix.hintAll()
	report.Took = time.Since(started)
	ix.metrics.rebuilds.Inc()
	ix.log.Info("index rebuilt", "generation", generation, "open", report.Open, "claimed", report.Claimed,
		"took", report.Took.Round(time.Millisecond))
	return report, nil
}

// adopt puts the attempts in flight of all processes back into the index as leased, with their locks, before
// any claim is allowed. The fence alone would prevent a double send, but another callback could take their
// locks.
func (g *generation) adopt(ctx context.Context) (int, error) {
	if g.noClaims.Swap(false) {
		return 0, nil
	}
	n := 0
	var cursor store.Cursor
	for {
		rows, err := g.ix.o.Store.Claimed(ctx, cursor, g.ix.clock.Now(), PageRows)
		if err != nil {
			return n, fmt.Errorf("read claimed rows: %w", err)
		}
		leases := make([]schedule.Lease, len(rows))
		for i := range rows {
			leases[i] = schedule.Lease{Item: OpenItem(&rows[i]), Token: rows[i].ClaimToken,
				Until: rows[i].ClaimUntil}
		}
		if err := g.ix.o.Schedule.Adopt(ctx, leases); err != nil {
			return n, fmt.Errorf("adopt claimed rows: %w", err)
		}
		n += len(rows)
		if len(rows) < PageRows {
			return n, nil
		}
		cursor = after(rows)
	}
}

// fill puts all open rows that are due at until or before into the index, in order of due times. After a
// failure it continues with the page that failed, so that one lost reply does not start millions of rows
// again. It gives up after fillTimeout of failures in a row, or if the index turns out to be lost again.
func (g *generation) fill(ctx context.Context, until int64) (n int, err error) {
	left, overdue := span{until: until}, int64(0)
	worked := time.Now()
	for {
		err = g.ix.walkOpen(ctx, left, func(rows []store.OpenRow) error {
			now, late := g.ix.clock.Now(), overdue
			items := openItems(rows)
			for i := range items {
				if items[i].Due <= now {
					items[i].Due = now + min(late/spreadRate, spreadMost.Milliseconds())
					late++
				}
			}
			if _, err := g.ix.put(ctx, items, false, nil); err != nil {
				return fmt.Errorf("fill the index: %w", err)
			}
			left.after, overdue, worked = after(rows), late, time.Now()
			n += len(rows)
			process.Failpoint("during_rebuild")
			return nil
		})
		if err == nil || errors.Is(err, schedule.ErrLost) || time.Since(worked) >= fillTimeout {
			return n, err
		}
		process.Sleep(ctx, probeEvery/4)
		if ctx.Err() != nil {
			return n, err
		}
	}
}

// A span is the open rows after a cursor that are due at until or before.
type span struct {
	after store.Cursor
	until int64
}

// after returns the cursor of the last row.
func after(rows []store.OpenRow) store.Cursor {
	last := &rows[len(rows)-1]
	return store.Cursor{DueAt: last.DueAt, ID: last.ID}
}

// walkOpen calls page with all open rows of a span, a page at a time, in order of (due_at, id). It reads the
// next page while the last one is processed, so that SQL and the index work at the same time.
func (ix *Index) walkOpen(ctx context.Context, s span, page func([]store.OpenRow) error) error {
	reading, stop := context.WithCancel(ctx)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer stop()
	type read struct {
		rows []store.OpenRow
		err  error
	}
	pages := make(chan read)
	reader.Go(func() {
		defer close(pages)
		for cursor := s.after; ; {
			rows, err := ix.readOpen(reading, cursor, s.until)
			select {
			case pages <- read{rows, err}:
			case <-reading.Done():
				return
			}
			if err != nil || len(rows) < PageRows {
				return
			}
			cursor = after(rows)
		}
	})
	for next := range pages {
		if next.err != nil {
			return fmt.Errorf("read open rows: %w", next.err)
		}
		if len(next.rows) == 0 {
			continue
		}
		if err := page(next.rows); err != nil {
			return err
		}
	}
	return ctx.Err() // nil: the last page was processed
}

// readOpen reads the next page of a span.
func (ix *Index) readOpen(ctx context.Context, after store.Cursor, until int64) ([]store.OpenRow, error) {
	if until == schedule.Forever {
		return ix.o.Store.Open(ctx, after, PageRows)
	}
	return ix.o.Store.OpenUntil(ctx, after, until, PageRows)
}
