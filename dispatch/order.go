package dispatch

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is strict order. SQL decides: the stamp refuses a callback while one that was accepted before it is open, and the index
// diverts it for as long as a lock's waiter. What is here only spares it that wait: whoever ends one has the next claimed at once.

// maxFollow is how many lock keys are looked at for those that ended at once.
const maxFollow = 100

// followOn has those claimed whose turn it is after results of a batch.
func (e *Engine) followOn(ctx context.Context, batch []ended) {
	var next []store.OpenRow
	for i := range batch {
		if batch[i].next != nil {
			next = append(next, *batch[i].next)
		}
	}
	e.bringForward(ctx, next)
}

// bringForward has the index give out rows that wait in it for longer than SQL says.
func (e *Engine) bringForward(ctx context.Context, rows []store.OpenRow) {
	if len(rows) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.trouble.indexTime())
	defer cancel()
	movements := make([]schedule.Movement, len(rows))
	for i := range rows {
		it := openItem(&rows[i])
		movements[i] = schedule.Movement{Ref: it.Ref(), Due: it.Due}
	}
	moved, err := e.o.Schedule.Move(ctx, movements)
	if err != nil {
		e.trouble.indexFailed("move", err) // their own timers heal it
		return
	}
	for i := range moved {
		if moved[i] == schedule.MovedGone {
			e.enqueue.add(openItem(&rows[i]))
		}
	}
	e.hintAll()
}

// followEnded has those claimed whose turn it is after rows that ended otherwise than by a result. Of many at once the first ones' next are
// looked for; the others' wait for their timers.
func (e *Engine) followEnded(ctx context.Context, rows []store.OpenRow) {
	type strictKey struct{ project, lock string }
	asked := make(map[strictKey]bool)
	var next []store.OpenRow
	for i := range rows {
		k := strictKey{rows[i].Project, rows[i].LockKey}
		if !rows[i].Strict || asked[k] || len(asked) >= maxFollow {
			continue
		}
		asked[k] = true
		row, err := e.o.Store.NextStrict(ctx, k.project, k.lock)
		if err != nil {
			e.log.Warn("whose turn it is in strict order cannot be read; it waits for its timer", "error", err)
			break
		}
		if row != nil {
			next = append(next, *row)
		}
	}
	e.bringForward(ctx, next)
}

// followCanceled is followEnded for callbacks that were canceled.
func (e *Engine) followCanceled(ctx context.Context, list []store.CanceledCallback) {
	var rows []store.OpenRow
	for i := range list {
		if c := &list[i].Callback; list[i].Result == store.CancelDone && c.Strict {
			rows = append(rows, store.OpenRow{Project: c.Project, LockKey: c.LockKey, Strict: true})
		}
	}
	e.followEnded(ctx, rows)
}
