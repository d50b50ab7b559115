package dispatch

import (
	"context"

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
	e     *Engine
	items chan schedule.Item
}

func newEnqueuer(e *Engine) *enqueuer {
	return &enqueuer{e: e, items: make(chan schedule.Item, enqueueQueue)}
}

// add passes an item on. It never blocks: when the queue is full the item is remembered as missed.
func (q *enqueuer) add(i schedule.Item) {
	select {
	case q.items <- i:
	default:
		q.e.metrics.enqueueDropped.Inc()
		q.e.trouble.missed([]schedule.Item{i})
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
	if q.e.trouble.indexSilent() {
		// It is told when it answers again; to ask it once for every accept would be a load of its own.
		q.e.trouble.missed(batch)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, q.e.trouble.indexTime())
	defer cancel()
	if _, err := q.e.o.Schedule.Ensure(ctx, batch); err != nil {
		q.e.trouble.indexFailed("ensure", err)
		q.e.trouble.missed(batch)
		return
	}
	q.e.hintDue(batch)
}

// lockID names a callback's lock in the index: short, without the characters that keys forbid, and its project's own.
func lockID(project, key string) string {
	if key == "" {
		return ""
	}
	return shortHash(project, key)
}

// item is what the index knows of an accepted callback.
func item(c *store.Callback) schedule.Item {
	return schedule.Item{
		ID:    c.ID,
		Lane:  c.LaneID,
		Due:   c.DueAt,
		Lock:  lockID(c.Project, c.LockKey),
		Retry: c.AttemptCount > 0,

		Forced: c.Trigger == store.Manual,
	}
}

// openItem is what the index knows of an open row.
func openItem(r *store.OpenRow) schedule.Item {
	return schedule.Item{ID: r.ID, Lane: r.LaneID, Due: r.DueAt, Lock: lockID(r.Project, r.LockKey), Retry: r.Retry, Forced: r.Manual}
}
