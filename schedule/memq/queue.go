package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Ensure adds to the delay set what is absent, and answers each item in its place with where it was before.
func (ix *Index) Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	err := checkAll("ensure", len(items), func(i int) error { return checkItem(items[i]) })
	if err != nil {
		return nil, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.begin(ctx); err != nil {
		return nil, err
	}
	positions := make([]schedule.Position, len(items))
	for i := range items {
		s := &items[i]
		k, _ := parseKey(s.ID)
		if it := ix.items[k]; it != nil {
			positions[i] = it.position()
			continue
		}
		if ix.beyond(ix.moment(s.Due)) {
			continue
		}
		it := ix.put(k, s.ID, s.Lane)
		it.lock, it.kind = s.Lock, kindOf(s)
		ix.postpone(it, ix.moment(s.Due))
	}
	ix.hint()
	return positions, nil
}

// Cancel removes what is delayed or ready, leaves alone what is leased, and answers each with where it was before.
func (ix *Index) Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error) {
	err := checkAll("cancel", len(refs), func(i int) error { return checkRef(refs[i].ID, refs[i].Lane) })
	if err != nil {
		return nil, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.begin(ctx); err != nil {
		return nil, err
	}
	positions := make([]schedule.Position, len(refs))
	for i := range refs {
		k, _ := parseKey(refs[i].ID)
		it := ix.items[k]
		if it == nil {
			continue
		}
		positions[i] = it.position()
		if !it.is(schedule.Leased) {
			ix.detach(it)
			ix.drop(it)
		}
	}
	return positions, nil
}

// Move gives items another due time, and answers each in its place. What was ready waits in the delay set again; the
// next claim promotes it if it is due.
func (ix *Index) Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error) {
	err := checkAll("move", len(movements), func(i int) error { return checkRef(movements[i].ID, movements[i].Lane) })
	if err != nil {
		return nil, err
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if err := ix.begin(ctx); err != nil {
		return nil, err
	}
	replies := make([]schedule.Moved, len(movements))
	for i, m := range movements {
		k, _ := parseKey(m.ID)
		replies[i] = ix.move(ix.items[k], ix.moment(m.Due), m.Forced)
	}
	ix.hint()
	return replies, nil
}

func (ix *Index) move(it *item, due int64, forced bool) schedule.Moved {
	if it == nil {
		return schedule.MovedGone
	}
	if it.is(schedule.Leased) {
		if it.moved == 0 || due < it.moved {
			it.moved = due
		}
		if forced {
			it.kind |= isPushed
		}
		return schedule.MovedHeld
	}
	l := it.lane // which an item that goes beyond the watermark forgets, as it does whether it is forced
	ix.detach(it)
	if forced {
		it.kind |= isForced
	}
	forced = it.kind.has(isForced)
	ix.postpone(it, due)
	if ix.keeps(l, forced) {
		return schedule.MovedHeld
	}
	return schedule.MovedIt
}
