package index

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// enqueueQueue is how many accepted items may wait for the index; beyond it they are left to the catch-up sweep, so that an
	// index that hangs delays no accept.
	enqueueQueue = 16384
	enqueueBatch = 500
)

// An enqueuer tells the index of accepted callbacks, in batches of what has gathered.
type enqueuer struct {
	e     *Index
	items chan schedule.Item
}

func newEnqueuer(e *Index) *enqueuer {
	return &enqueuer{e: e, items: make(chan schedule.Item, enqueueQueue)}
}

// add passes an item on. It never blocks: when the queue is full the item is remembered as missed.
func (q *enqueuer) add(i schedule.Item) {
	select {
	case q.items <- i:
	default:
		q.e.metrics.enqueueDropped.Inc()
		q.e.health.Missed([]schedule.Item{i})
	}
}

// run enqueues until ctx ends and the queue is empty.
func (q *enqueuer) run(ctx context.Context) {
	batch := make([]schedule.Item, 0, enqueueBatch)
	for {
		batch = batch[:0]
		select {
		case i := <-q.items:
			batch = append(batch, i)
		default:
			select {
			case i := <-q.items:
				batch = append(batch, i)
			case <-ctx.Done():
				return
			}
		}
		for len(batch) < enqueueBatch && len(q.items) > 0 {
			batch = append(batch, <-q.items)
		}
		q.flush(context.WithoutCancel(ctx), batch)
	}
}

func (q *enqueuer) flush(ctx context.Context, batch []schedule.Item) {
	if q.e.health.indexSilent() {
		// It is told when it answers again; to ask it once for every accept would be a load of its own.
		q.e.health.Missed(batch)
		return
	}
	if _, err := q.e.put(ctx, batch, false, nil); err != nil {
		q.e.Failed("ensure", err)
		q.e.Missed(batch)
	}
}

// lockID names a callback's lock in the index: short, without the characters that keys forbid, and its project's own.
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
	return schedule.Item{ID: r.ID, Lane: r.LaneID, Due: r.DueAt, Lock: lockID(r.Project, r.LockKey), Retry: r.Retry, Forced: r.Manual}
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
