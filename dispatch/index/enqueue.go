package index

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// enqueueQueue is how many accepted items may wait for the index. Further items are left to the catch-up
	// (outage.go), so that an index that hangs delays no accept.
	enqueueQueue = 16384
	enqueueBatch = 500
)

// Add enqueues an item of a callback that was just committed. It never blocks: if the queue is full, the item
// is remembered as missed. A crash before the index has the item is repaired by the sweep.
func (ix *Index) Add(i schedule.Item) {
	select {
	case ix.added <- i:
	default:
		ix.metrics.enqueueDropped.Inc()
		ix.Missed([]schedule.Item{i})
	}
}

// runEnqueue gives added items to the index, in batches of what has gathered, until ctx ends and the queue is
// empty.
func (ix *Index) runEnqueue(ctx context.Context) {
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

// enqueue ensures a batch in the index, or remembers it as missed.
func (ix *Index) enqueue(ctx context.Context, batch []schedule.Item) {
	if ix.indexSilent() {
		// A call for each accept would be extra load on an index that is down. The catch-up gives it the
		// items.
		ix.Missed(batch)
		return
	}
	if _, err := ix.put(ctx, batch, false, nil); err != nil {
		ix.Failed("ensure", err)
		ix.Missed(batch)
	}
}

// lockID returns the name of a callback's lock in the index: a hash of project and lock key, because lock
// keys may be long and have any characters. Projects do not share locks.
func lockID(project, key string) string {
	if key == "" {
		return ""
	}
	return clock.ShortHash(project, key)
}

// Item returns the item of an accepted callback.
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

// OpenItem returns the item of an open row.
func OpenItem(r *store.OpenRow) schedule.Item {
	return schedule.Item{ID: r.ID, Lane: r.LaneID, Due: r.DueAt, Lock: lockID(r.Project, r.LockKey),
		Retry: r.Retry, Forced: r.Manual}
}

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
