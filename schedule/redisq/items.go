package redisq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Ensure adds to the delay set what is absent, and answers each item in its place with where it was before.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Item, schedule.Position]{
		script: "ensure", check: schedule.Item.Validate, ref: schedule.Item.Ref,
		encode: func(it schedule.Item) []any { return []any{it.ID, encodeRecord(it)} },
		decode: (*reply).position,
	}, items)
}

// Lookup answers each ref with where the item is, and changes nothing.
func (ix *Index) Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.byRef(ctx, "lookup", refs)
}

// Cancel removes what is delayed or ready, leaves alone what is leased, and answers each with where it was before.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	return ix.byRef(ctx, "cancel", refs)
}

func (ix *Index) byRef(ctx context.Context, script string, refs []schedule.Ref) ([]schedule.Position, error) {
	return each(ctx, ix, operation[schedule.Ref, schedule.Position]{
		script: script, check: schedule.Ref.Validate,
		ref:    func(r schedule.Ref) schedule.Ref { return r },
		encode: func(r schedule.Ref) []any { return []any{r.ID} },
		decode: (*reply).position,
	}, refs)
}

// Move gives items another due time, and answers each in its place. What was ready waits in the delay set again; the
// next claim promotes it if it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	return each(ctx, ix, operation[schedule.Movement, schedule.Moved]{
		script: "move", check: schedule.Movement.Validate,
		ref:    func(m schedule.Movement) schedule.Ref { return m.Ref },
		encode: func(m schedule.Movement) []any { return []any{m.ID, moment(min(m.Due, maxDue)), m.Forced} },
		decode: func(r *reply) schedule.Moved { return schedule.Moved(r.int()) },
	}, movements)
}
