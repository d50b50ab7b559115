package index

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// enqueueQueue is how many accepted items may wait for the index; beyond it they are left to the catch-up
	// sweep, so that an index that hangs delays no accept.
	enqueueQueue = 16384
	enqueueBatch = 500
)

// Add has the index hold an item from now on. It never blocks: when the queue is full the item is remembered
// as missed.
func (ix *Index) Add(i schedule.Item) {
	select {
	case ix.added <- i:
	default:
		ix.metrics.enqueueDropped.Inc()
		ix.Missed([]schedule.Item{i})
	}
}

// runAdded tells the index of added items, in batches of what has gathered, until ctx ends and the queue is
// empty.
func (ix *Index) runAdded(ctx context.Context) {
	batch := make([]schedule.Item, 0, enqueueBatch)
	for {
		batch = batch[:0]
		select {
		case i := <-ix.added:
			batch = append(batch, i)
		case <-ctx.Done():
			if len(ix.added) == 0 {
				return
			}
		}
		for len(batch) < enqueueBatch && len(ix.added) > 0 {
			batch = append(batch, <-ix.added)
		}
		ix.enqueue(context.WithoutCancel(ctx), batch)
	}
}

func (ix *Index) enqueue(ctx context.Context, batch []schedule.Item) {
	if ix.indexSilent() {
		// It is told when it answers again; to ask it once for every accept would be a load of its own.
		ix.Missed(batch)
		return
	}
	if _, err := ix.put(ctx, batch, false, nil); err != nil {
		ix.Failed("ensure", err)
		ix.Missed(batch)
	}
}

// lockID names a callback's lock in the index: short, without the characters that keys forbid, and its
// project's own.
func lockID(project, key string) string {
	if key == "" {
		return ""
	}
	return clock.ShortHash(project, key)
}

// Item is what the index knows of an accepted callback.
func Item(c *store.Callback) schedule.Item {
	return schedule.Item{
		ID:    c.ID,
		Lane:  c.LaneID,
		Due:   c.DueAt,
		Lock:  lockID(c.Project, c.LockKey),
		Retry: c.AttemptCount > 0,

		Forced: c.Trigger == store.Manual,
	}
}

// OpenItem is what the index knows of an open row.
func OpenItem(r *store.OpenRow) schedule.Item {
	return schedule.Item{ID: r.ID, Lane: r.LaneID, Due: r.DueAt, Lock: lockID(r.Project, r.LockKey),
		Retry: r.Retry, Forced: r.Manual}
}

// openItems are what the index knows of open rows.
func openItems(rows []store.OpenRow) []schedule.Item {
	items := make([]schedule.Item, len(rows))
	for i := range rows {
		items[i] = OpenItem(&rows[i])
	}
	return items
}

// countAbsent counts the items that the index did not hold.
func countAbsent(positions []schedule.Position) (n int) {
	for i := range positions {
		if positions[i].Place == schedule.Absent {
			n++
		}
	}
	return n
}
