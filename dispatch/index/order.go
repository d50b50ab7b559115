package index

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is about strict order. SQL decides it: the stamp refuses a callback while an older open one has
// the same lock key, and the index then diverts it until its timer ends. The calls here only save that wait:
// when a callback ends, the next one in order is moved to now. If a call is lost, the timer repairs it.

// maxNextInOrder is the most lock keys that one call of wakeNextInOrder looks up.
const maxNextInOrder = 100

// BringForward moves rows, which wait in the index for longer than SQL says, to their due times. A row that
// the index does not hold is added.
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
		ix.health.Failed("move", err) // their own timers repair it
		return
	}
	for i := range moved {
		if moved[i] == schedule.MovedGone {
			ix.Add(OpenItem(&rows[i]))
		}
	}
	ix.hintAll()
}

// wakeNextInOrder moves forward the callbacks whose turn it is after rows that ended without a result. It
// looks up the first maxNextInOrder lock keys; the callbacks of the others wait for their timers.
func (ix *Index) wakeNextInOrder(ctx context.Context, rows []store.OpenRow) {
	type strictKey struct{ project, lock string }
	seen := make(map[strictKey]bool)
	var next []store.OpenRow
	for i := range rows {
		key := strictKey{rows[i].Project, rows[i].LockKey}
		if !rows[i].Strict || seen[key] || len(seen) >= maxNextInOrder {
			continue
		}
		seen[key] = true
		row, err := ix.o.Store.NextStrict(ctx, key.project, key.lock)
		if err != nil {
			ix.log.Warn("next callback in strict order cannot be read; it waits for its timer", "error", err)
			break
		}
		if row != nil {
			next = append(next, *row)
		}
	}
	ix.BringForward(ctx, next)
}
