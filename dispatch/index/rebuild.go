package index

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// spreadRate and spreadMost spread what is overdue in a rebuilt index, so that a long backlog does not
	// become due in one millisecond: ten a millisecond, over a minute at most.
	spreadRate = 10
	spreadMost = time.Minute
	// fillPatience is how long a rebuild waits for an index, or for SQL, that fails while the index is
	// filled.
	fillPatience = 30 * time.Second
)

// Rebuild empties the index and fills it from SQL, online: claims wait only until the attempts that are in
// flight are back in it. With dryRun it counts what it would do. One process rebuilds at a time.
func (ix *Index) Rebuild(ctx context.Context, dryRun bool, by store.Actor) (RebuildReport, error) {
	started := time.Now()
	if dryRun {
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
	end, err := ix.generation.begin(ctx)
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
	meta, err := ix.o.Store.IndexMeta(ctx, ix.generation.want())
	if err != nil {
		return RebuildReport{}, fmt.Errorf("read the index's row: %w", err)
	}
	// What newer builds work on is not emptied by an older one, whoever asks. A generation that cannot be
	// read is no reason not to rebuild: it may be what is to be mended.
	if _, err := ix.generation.newest(ctx); errors.Is(err, schedule.ErrNewer) {
		return RebuildReport{}, err
	}
	return ix.generation.rebuild(ctx, meta, &by)
}

// rebuild makes a new generation and fills it. The caller holds the lease, which is renewed meanwhile. A
// rebuild that dies is begun again by the next leader, because SQL then has no generation that was built to
// the end. by is for the audit. It is nil where the index was lost.
func (k *generation) rebuild(ctx context.Context, meta store.IndexMeta,
	by *store.Actor) (RebuildReport, error) {
	k.happens("begun")
	held, end := k.leader.Hold(ctx, errNotLeader)
	defer end()
	report, err := k.refill(held, meta, by)
	if err != nil {
		k.happens("failed")
		k.look() // the next leader fills what is half filled
	}
	if err != nil && ctx.Err() == nil && held.Err() != nil {
		err = context.Cause(held)
	}
	return report, err
}

func (k *generation) refill(ctx context.Context, meta store.IndexMeta,
	by *store.Actor) (RebuildReport, error) {
	started := time.Now()
	e := k.e
	generation, err := e.o.Store.NextGeneration(ctx, meta.Generation, e.clock.Now(), by)
	if err != nil {
		return RebuildReport{}, fmt.Errorf("make a new generation: %w", err)
	}
	report := RebuildReport{Generation: generation}
	meta.Generation = generation
	for shard := range e.o.Schedule.Shards() {
		if err := e.o.Schedule.Reset(ctx, shard, generation); err != nil {
			return report, fmt.Errorf("reset shard %d: %w", shard, err)
		}
	}
	k.set(meta)
	until, err := e.bound(ctx)
	if err != nil {
		return report, err
	}
	if _, err := e.SetLanes(ctx, 0); err != nil {
		return report, err
	}
	report.Claimed, err = k.adopt(ctx)
	if err != nil {
		return report, err
	}
	e.metrics.adopted.Add(float64(report.Claimed))
	for shard := range e.o.Schedule.Shards() {
		if err := e.o.Schedule.Open(ctx, shard); err != nil {
			return report, fmt.Errorf("open shard %d: %w", shard, err)
		}
	}
	e.hintAll()
	report.Open, err = k.fill(ctx, until)
	if err != nil {
		return report, err
	}
	if err := e.o.Store.MarkBuilt(ctx, generation, e.clock.Now()); err != nil {
		return report, fmt.Errorf("mark the generation as built: %w", err)
	}
	meta.Built = generation
	k.set(meta)
	k.happens("filled")
	e.hintAll()
	report.Took = time.Since(started)
	e.metrics.rebuilds.Inc()
	e.log.Info("index rebuilt", "generation", generation, "open", report.Open, "claimed", report.Claimed,
		"took", report.Took.Round(time.Millisecond))
	return report, nil
}

// adopt puts the attempts that are in flight anywhere back as leased, with their locks, before anybody may
// claim: the fence alone would keep them from being sent twice, but not their locks from being taken.
func (k *generation) adopt(ctx context.Context) (int, error) {
	if k.unclaimed.Swap(false) {
		return 0, nil
	}
	n := 0
	var cursor store.Cursor
	for {
		rows, err := k.e.o.Store.Claimed(ctx, cursor, k.e.clock.Now(), PageRows)
		if err != nil {
			return n, fmt.Errorf("read claimed rows: %w", err)
		}
		leases := make([]schedule.Lease, len(rows))
		for i := range rows {
			leases[i] = schedule.Lease{Item: OpenItem(&rows[i]), Token: rows[i].ClaimToken,
				Until: rows[i].ClaimUntil}
		}
		if err := k.e.o.Schedule.Adopt(ctx, leases); err != nil {
			return n, fmt.Errorf("adopt claimed rows: %w", err)
		}
		n += len(rows)
		if len(rows) < PageRows {
			return n, nil
		}
		cursor = after(rows)
	}
}

// fill streams every open row that is due by then into the index, by due order. After a failure it goes on
// with the page that failed: to fill an index with millions of rows must not begin again for one lost reply.
// It gives up what fails for fillPatience in a row, and an index that turns out to be another one.
func (k *generation) fill(ctx context.Context, until int64) (n int, err error) {
	left, overdue := span{until: until}, int64(0)
	worked := time.Now()
	for {
		err = k.e.walkOpen(ctx, left, func(rows []store.OpenRow) error {
			now, late := k.e.clock.Now(), overdue
			items := openItems(rows)
			for i := range items {
				if items[i].Due <= now {
					items[i].Due = now + min(late/spreadRate, spreadMost.Milliseconds())
					late++
				}
			}
			if _, err := k.e.put(ctx, items, false, nil); err != nil {
				return fmt.Errorf("fill the index: %w", err)
			}
			left.after, overdue, worked = after(rows), late, time.Now()
			n += len(rows)
			part.Failpoint("during_rebuild")
			return nil
		})
		if err == nil || errors.Is(err, schedule.ErrLost) || time.Since(worked) >= fillPatience {
			return n, err
		}
		part.Sleep(ctx, probeEvery/4)
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

// after is the place after the last one of the rows.
func after(rows []store.OpenRow) store.Cursor {
	last := &rows[len(rows)-1]
	return store.Cursor{DueAt: last.DueAt, ID: last.ID}
}

// walkOpen reads every open row of a span, a page at a time, in order of (due_at, id). The next page is read
// while the last one is worked on: SQL and the index then share the time that a long backlog takes.
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
	return ctx.Err() // without it the last page has come
}

// readOpen reads the next page of a span.
func (ix *Index) readOpen(ctx context.Context, after store.Cursor, until int64) ([]store.OpenRow, error) {
	if until == schedule.Forever {
		return ix.o.Store.Open(ctx, after, PageRows)
	}
	return ix.o.Store.OpenUntil(ctx, after, until, PageRows)
}
