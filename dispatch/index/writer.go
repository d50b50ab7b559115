package index

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Timeout bounds every call to the index.
const Timeout = 5 * time.Second

// Ended removes rows from the index that SQL has ended, and moves forward the callbacks whose turn it is in
// strict order after them. A row that the index does not remove is dropped at its next claim: the stamp
// refuses it.
func (ix *Index) Ended(ctx context.Context, rows []store.OpenRow) {
	ix.Remove(ctx, rows)
	ix.wakeNextInOrder(ctx, rows)
}

// Remove removes rows from the lanes that they are in.
func (ix *Index) Remove(ctx context.Context, rows []store.OpenRow) {
	refs := make([]schedule.Ref, len(rows))
	for i := range rows {
		refs[i] = schedule.Ref{ID: rows[i].ID, Lane: rows[i].LaneID}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	for chunk := range slices.Chunk(refs, schedule.MaxBatch) {
		if _, err := ix.o.Schedule.Cancel(ctx, chunk); err != nil {
			ix.Failed("cancel", err)
			return
		}
	}
}

// Place gives the index the due times that a caller has changed in SQL: it adds a callback that it lacks and
// moves one that it holds, in the callback's lane.
func (ix *Index) Place(ctx context.Context, callbacks ...store.Callback) {
	items := make([]schedule.Item, len(callbacks))
	for i := range callbacks {
		items[i] = Item(&callbacks[i])
	}
	_, err := ix.put(context.WithoutCancel(ctx), items, true, always)
	ix.afterPlace(items, err)
}

// Relocate is Place for a callback that was in the lane from before.
func (ix *Index) Relocate(ctx context.Context, c *store.Callback, from int64) {
	i := Item(c)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	ix.afterPlace([]schedule.Item{i}, ix.relocate(ctx, i, from))
}

// afterPlace remembers items that may not have been placed, or wakes the claimers.
func (ix *Index) afterPlace(items []schedule.Item, err error) {
	if err != nil {
		ix.Failed("move", err)
		ix.Missed(items)
		return
	}
	ix.hintAll()
}

// relocate puts an item into its lane, and first removes it from the old one. A catch-up that read the row
// before the change may put it back into the old lane in between. Then Ensure finds the item present, and
// relocate tries once more. An item in both lanes does no harm: the stamp decides whether and where it is
// sent.
func (ix *Index) relocate(ctx context.Context, i schedule.Item, from int64) error {
	for range 2 {
		if from != i.Lane {
			if _, err := ix.o.Schedule.Cancel(ctx, []schedule.Ref{{ID: i.ID, Lane: from}}); err != nil {
				return err
			}
		}
		positions, err := ix.put(ctx, []schedule.Item{i}, true, always)
		if err != nil || from == i.Lane || positions[0].Place == schedule.Absent {
			return err
		}
	}
	return nil
}

// always says that an item is misplaced, so that put moves all items that the index holds.
func always(int, schedule.Position) bool { return true }

// put adds the items that the index lacks, and moves those that it holds and for which misplaced is true to
// their due times. With forced, moved items that are forced become so in the index. It returns where each
// item was before.
func (ix *Index) put(
	ctx context.Context, items []schedule.Item, forced bool, misplaced func(i int, p schedule.Position) bool,
) ([]schedule.Position, error) {
	if len(items) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, ix.CallTime())
	defer cancel()
	positions, err := ix.o.Schedule.Ensure(ctx, items)
	if err != nil {
		return nil, fmt.Errorf("ensure: %w", err)
	}
	var movements []schedule.Movement
	for i, p := range positions {
		if p.Place != schedule.Absent && misplaced != nil && misplaced(i, p) {
			movements = append(movements, schedule.Movement{
				Ref: items[i].Ref(), Due: items[i].Due, Forced: forced && items[i].Forced,
			})
		}
	}
	if len(movements) > 0 {
		if _, err := ix.o.Schedule.Move(ctx, movements); err != nil {
			return nil, fmt.Errorf("move: %w", err)
		}
	}
	ix.hintDue(items)
	return positions, nil
}

// maxWaiters is how many waiters a release tries. The rest wait for their timers.
const maxWaiters = 16

// Unlock releases the locks of those leases that have one, with one call, and wakes the next waiters. It
// returns whether the locks are released; if that is uncertain, it is remembered and repeated.
func (ix *Index) Unlock(ctx context.Context, leases ...*schedule.Lease) bool {
	locked := slices.DeleteFunc(slices.Clone(leases), func(l *schedule.Lease) bool { return l.Lock == "" })
	if len(locked) == 0 {
		return true
	}
	if ix.health.indexSilent() {
		// Do not wait for an index that hangs: callbacks that are put back one after another would each wait.
		ix.health.MissedUnlocks(locked...)
		return false
	}
	if err := ix.release(context.WithoutCancel(ctx), locked); err != nil {
		ix.health.Failed("release", err)
		ix.health.MissedUnlocks(locked...)
		return false
	}
	return true
}

// release releases locks, and moves the next waiter of each lock to now. If a waiter cannot be moved, the
// lock is released again, which releases nothing but returns the waiter after it. A waiter that is not moved
// is due by its own timer.
func (ix *Index) release(ctx context.Context, leases []*schedule.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, ix.health.CallTime())
	defer cancel()
	unlocks := make([]schedule.Unlock, len(leases))
	for i, l := range leases {
		unlocks[i] = schedule.Unlock{Lock: l.Lock, ID: l.ID, Token: l.Token}
	}
	for range maxWaiters {
		waiters, err := ix.o.Schedule.Release(ctx, unlocks)
		if err != nil {
			return err
		}
		var movements []schedule.Movement
		var waited []schedule.Unlock
		for i, w := range waiters {
			if w.ID != "" {
				movements = append(movements, schedule.Movement{Ref: schedule.Ref(w), Due: ix.clock.Now()})
				waited = append(waited, unlocks[i])
			}
		}
		if len(movements) == 0 {
			return nil
		}
		moved, err := ix.o.Schedule.Move(ctx, movements)
		if err != nil {
			ix.health.Failed("move", err)
			return nil // the locks are released
		}
		unlocks = unlocksOfUnmoved(waited, movements, moved)
		if len(unlocks) < len(movements) {
			ix.HintOnlyShard()
		}
		if len(unlocks) == 0 {
			return nil
		}
	}
	return nil
}

// unlocksOfUnmoved returns the unlocks whose waiter could not be moved. That waiter leaves the queue if it is
// gone, and is skipped if it cannot run now.
func unlocksOfUnmoved(
	waited []schedule.Unlock, movements []schedule.Movement, moved []schedule.Moved,
) (again []schedule.Unlock) {
	for i, u := range waited {
		switch moved[i] {
		case schedule.MovedIt:
			continue
		case schedule.MovedGone:
			u.Gone = append(u.Gone, movements[i].ID)
		default:
			u.Skip = append(u.Skip, movements[i].ID)
		}
		again = append(again, u)
	}
	return again
}

// Settle settles leases in the index, and returns whether the index has all settlements. Those that it may
// not have are remembered and repeated when it answers again, and the items that are still open are then
// ensured. Repeating a settlement is safe: the index compares the token of the lease.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) bool {
	applied := true
	for len(settlements) > 0 {
		n := min(len(settlements), schedule.MaxBatch)
		applied = ix.settleChunk(ctx, settlements[:n]) && applied
		settlements = settlements[n:]
	}
	return applied
}

// settleChunk settles up to schedule.MaxBatch leases with one call.
func (ix *Index) settleChunk(ctx context.Context, settlements []schedule.Settlement) bool {
	if ix.health.indexSilent() {
		// Do not wait for an index that hangs: results would queue up batch after batch, and their claims
		// would expire before they are committed.
		ix.MissedSettlements(settlements)
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ix.health.CallTime())
	defer cancel()
	settled, err := ix.o.Schedule.Settle(ctx, settlements)
	if err != nil {
		ix.health.Failed("settle", err)
		ix.MissedSettlements(settlements)
		return false
	}
	for i := range settled {
		ix.metrics.settled(settlements[i].Outcome, settled[i])
	}
	return true
}

// HintOnlyShard wakes the claimer of an index with one shard after a change that gives a lane room or makes a
// callback due. With several shards only the index knows the shard, and it sends the hint.
func (ix *Index) HintOnlyShard() {
	if ix.o.Schedule.Shards() == 1 {
		ix.listener.Wake(0)
	}
}

// MissedSettlements remembers settlements that the index may not have, and the items that are open after
// them.
func (ix *Index) MissedSettlements(settlements []schedule.Settlement) {
	ix.health.addMissedSettlements(settlements)
	var open []schedule.Item
	for i := range settlements {
		if o := settlements[i].Outcome; o == schedule.Reschedule || o == schedule.Divert {
			open = append(open, settlements[i].Item)
		}
	}
	ix.health.Missed(open)
}
