package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// CancelDeleted cancels callbacks of deleted endpoints, at most 10,000 a call.
func (ix *Index) CancelDeleted(ctx context.Context) error {
	const batch, batches = 200, 50
	for range batches {
		rows, err := ix.o.Store.CancelDeleted(ctx, ix.clock.Now(), batch)
		if err != nil {
			return fmt.Errorf("cancel callbacks of deleted endpoints: %w", err)
		}
		if len(rows) == 0 {
			return nil
		}
		ix.observer.Ended(len(rows), store.Canceled, store.EndpointDeleted)
		ix.Ended(ctx, rows)
		if len(rows) < batch {
			return nil
		}
	}
	return nil
}

const (
	// sweepTime bounds one sweep; the next one continues where it ended.
	sweepTime = 2 * time.Second
	// lateSlack is how much later than in SQL an item may be due in the index: diverts and the spread of a
	// rebuild delay it.
	lateSlack = 2 * time.Minute
)

// Sweep walks the overdue rows and gives the index those that it lacks. It repairs every loss between SQL and
// the index: a lost enqueue, a lost settlement, a crash between two writes, a rollback of the index.
// Maintenance runs it every 15 s, in one process at a time; running twice does no harm.
func (ix *Index) Sweep(ctx context.Context) error {
	marks := ix.advanceMarks(ctx)
	cursor, err := ix.o.Store.SweepCursor(ctx)
	if err != nil {
		return fmt.Errorf("read the sweep's cursor: %w", err)
	}
	began := cursor
	started := time.Now()
	var unrepaired error
	for time.Since(started) < sweepTime {
		before := ix.clock.Now() - ix.times.Slack.Milliseconds()
		rows, err := ix.o.Store.Overdue(ctx, cursor, before, before, PageRows)
		if err != nil {
			return fmt.Errorf("read overdue rows: %w", err)
		}
		if err := ix.repairOverdue(ctx, rows); err != nil {
			unrepaired = err
			if !ix.reach.is(partly) {
				break
			}
		}
		// If only some shards answer, their rows are repaired, and the walk goes on for their sake.
		process.Failpoint("during_sweep")
		if len(rows) < PageRows {
			cursor = store.Cursor{}
			ix.metrics.sweeps.Inc()
			break
		}
		cursor = after(rows)
	}
	if cursor != began {
		if err := ix.o.Store.SetSweepCursor(ctx, cursor); err != nil {
			return fmt.Errorf("keep the sweep's cursor: %w", err)
		}
	}
	// Expiry and deleted endpoints do not need the index.
	return errors.Join(marks, unrepaired, ix.expire(ctx), ix.CancelDeleted(ctx))
}

// fullMarks is how often the low-water marks are searched from the first row on.
const fullMarks = 10 * time.Minute

// advanceMarks moves the low-water marks, where the sweep and other walks begin. If it fails, they begin
// where they did before.
func (ix *Index) advanceMarks(ctx context.Context) error {
	full := time.Since(ix.fullMarksAt) >= fullMarks
	if full {
		ix.fullMarksAt = time.Now()
	}
	if err := ix.o.Store.AdvanceMarks(ctx, ix.clock.Now(), full); err != nil {
		return fmt.Errorf("advance low-water marks: %w", err)
	}
	return nil
}

// repairOverdue ensures the rows in the index, and moves forward items that are due much later than in SQL.
func (ix *Index) repairOverdue(ctx context.Context, rows []store.OpenRow) error {
	items, late := openItems(rows), ix.clock.Now()+lateSlack.Milliseconds()
	moved := 0
	positions, err := ix.put(ctx, items, false, func(_ int, p schedule.Position) bool {
		isLate := p.Place == schedule.Delayed && p.Due > late
		if isLate {
			moved++
		}
		return isLate
	})
	if err != nil {
		ix.Failed("ensure", err)
		return fmt.Errorf("repair overdue rows: %w", err)
	}
	if absent := countAbsent(positions); absent+moved > 0 {
		ix.metrics.healed.Add(float64(absent + moved))
		ix.log.Info("sweep repaired the index", "absent", absent, "late", moved)
		ix.hintAll()
	}
	return nil
}

// expire ends callbacks that have expired and are not claimed, and removes them from the index.
func (ix *Index) expire(ctx context.Context) error {
	const batch = 200
	for range 50 {
		rows, err := ix.o.Store.Expire(ctx, ix.clock.Now(), batch)
		if err != nil {
			return fmt.Errorf("expire: %w", err)
		}
		if len(rows) > 0 {
			ix.observer.Expired(rows, ix.clock.Now())
			open := make([]store.OpenRow, len(rows))
			for i := range rows {
				open[i] = rows[i].OpenRow
			}
			ix.Ended(ctx, open)
		}
		if len(rows) < batch {
			return nil
		}
	}
	return nil
}
