package index

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is strict order. SQL decides: the stamp refuses a callback while one that was accepted before it
// is open, and the index diverts it for as long as a lock's waiter. What is here only spares it that wait:
// whoever ends one has the next claimed at once.

// maxFollow is how many lock keys are looked at for those that ended at once.
const maxFollow = 100

// BringForward has the index give out rows that wait in it for longer than SQL says.
func (ix *Index) BringForward(ctx context.Context, rows []store.OpenRow) {
	if len(rows) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ix.health.CallTime())
	defer cancel()
	movements := make([]schedule.Movement, len(rows))
	for i := range rows {
		it := OpenItem(&rows[i])
		movements[i] = schedule.Movement{Ref: it.Ref(), Due: it.Due}
	}
	moved, err := ix.o.Schedule.Move(ctx, movements)
	if err != nil {
		ix.health.Failed("move", err) // their own timers heal it
		return
	}
	for i := range moved {
		if moved[i] == schedule.MovedGone {
			ix.Add(OpenItem(&rows[i]))
		}
	}
	ix.hintAll()
}

// followEnded has those claimed whose turn it is after rows that ended otherwise than by a result. Of many at
// once the first ones' next are looked for; the others' wait for their timers.
func (ix *Index) followEnded(ctx context.Context, rows []store.OpenRow) {
	type strictKey struct{ project, lock string }
	asked := make(map[strictKey]bool)
	var next []store.OpenRow
	for i := range rows {
		k := strictKey{rows[i].Project, rows[i].LockKey}
		if !rows[i].Strict || asked[k] || len(asked) >= maxFollow {
			continue
		}
		asked[k] = true
		row, err := ix.o.Store.NextStrict(ctx, k.project, k.lock)
		if err != nil {
			ix.log.Warn("whose turn it is in strict order cannot be read; it waits for its timer", "error",
				err)
			break
		}
		if row != nil {
			next = append(next, *row)
		}
	}
	ix.BringForward(ctx, next)
}
