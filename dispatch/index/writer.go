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

// Ended takes rows from the index that SQL has ended. Those that it cannot be told of stay until they are
// claimed: the stamp refuses and drops them. Those that were in strict order give up their turns.
func (ix *Index) Ended(ctx context.Context, rows []store.OpenRow) {
	ix.Remove(ctx, rows)
	ix.followEnded(ctx, rows)
}

// Remove takes rows from the lanes that they are in.
func (ix *Index) Remove(ctx context.Context, rows []store.OpenRow) {
	refs := make([]schedule.Ref, len(rows))
	for i := range rows {
		refs[i] = schedule.Ref{ID: rows[i].ID, Lane: rows[i].LaneID}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	for some := range slices.Chunk(refs, schedule.MaxBatch) {
		if _, err := ix.o.Schedule.Cancel(ctx, some); err != nil {
			ix.Failed("cancel", err)
			return
		}
	}
}

// Place tells the index of due times that a caller changed: present or absent, an item is due then, in its
// callback's lane.
func (ix *Index) Place(ctx context.Context, callbacks ...store.Callback) {
	items := make([]schedule.Item, len(callbacks))
	for i := range callbacks {
		items[i] = Item(&callbacks[i])
	}
	_, err := ix.put(context.WithoutCancel(ctx), items, true, anywhere)
	ix.placed(items, err)
}

// Relocate is Place for a callback that was in another lane before.
func (ix *Index) Relocate(ctx context.Context, c *store.Callback, from int64) {
	i := Item(c)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	ix.placed([]schedule.Item{i}, ix.relocate(ctx, i, from))
}

// placed remembers items that may not have been placed, and wakes the claimers otherwise.
func (ix *Index) placed(items []schedule.Item, err error) {
	if err != nil {
		ix.Failed("move", err)
		ix.Missed(items)
		return
	}
	ix.hintAll()
}

// relocate puts an item into its lane. It takes it out of another lane first, at most twice: a catch-up that
// read the row before its lane changed may have put it back there. The stamp decides in any case what is
// sent, and where to.
func (ix *Index) relocate(ctx context.Context, i schedule.Item, from int64) error {
	for range 2 {
		if from != i.Lane {
			if _, err := ix.o.Schedule.Cancel(ctx, []schedule.Ref{{ID: i.ID, Lane: from}}); err != nil {
				return err
			}
		}
		positions, err := ix.put(ctx, []schedule.Item{i}, true, anywhere)
		if err != nil || from == i.Lane || positions[0].Place == schedule.Absent {
			return err
		}
	}
	return nil
}

// anywhere names every item that the index holds as misplaced.
func anywhere(int, schedule.Position) bool { return true }

// put gives the index what it lacks of the items, and moves those that it holds and that misplaced names to
// their due times. Only with forced those that are moved become forced. It answers each item with where it
// was.
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
			movements = append(movements, schedule.Movement{Ref: items[i].Ref(), Due: items[i].Due,
				Forced: forced && items[i].Forced})
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

// maxWaiters is how many waiters a release tries before it leaves the rest to their timers.
const maxWaiters = 16

// Unlock releases the locks of those leases that have one, all at once, and wakes the next waiters. It says
// whether the locks are released; if they may not be, that is remembered.
func (ix *Index) Unlock(ctx context.Context, leases ...*schedule.Lease) bool {
	locked := slices.DeleteFunc(slices.Clone(leases), func(l *schedule.Lease) bool { return l.Lock == "" })
	if len(locked) == 0 {
		return true
	}
	if ix.health.indexSilent() {
		// Callbacks that are put back one after the other must not each wait for an index that hangs.
		ix.health.Locked(locked...)
		return false
	}
	if err := ix.release(context.WithoutCancel(ctx), locked); err != nil {
		ix.health.Failed("release", err)
		ix.health.Locked(locked...)
		return false
	}
	return true
}

// release releases locks and wakes the next waiters: of each lock the first that can be moved. A waiter that
// is not woken is due by its own timer.
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
			return nil
		}
		unlocks = nil
		for i, u := range waited {
			switch moved[i] {
			case schedule.MovedIt:
				continue
			case schedule.MovedGone:
				u.Gone = append(u.Gone, movements[i].ID)
			default:
				u.Skip = append(u.Skip, movements[i].ID)
			}
			unlocks = append(unlocks, u)
		}
		if len(unlocks) < len(movements) {
			ix.HintOnlyShard()
		}
		if len(unlocks) == 0 {
			return nil
		}
	}
	return nil
}

// Settle tells the index how leases ended. A settlement that the index does not hear of is remembered, and
// told again once the index answers; what is still open is ensured then, too.
//
// It says whether the index has heard of all of them.
func (ix *Index) Settle(ctx context.Context, settlements []schedule.Settlement) bool {
	heard := true
	for len(settlements) > 0 {
		n := min(len(settlements), schedule.MaxBatch)
		heard = ix.settleChunk(ctx, settlements[:n]) && heard
		settlements = settlements[n:]
	}
	return heard
}

func (ix *Index) settleChunk(ctx context.Context, settlements []schedule.Settlement) bool {
	if ix.health.indexSilent() {
		// Results must not wait, batch after batch, for an index that hangs: their claims would run out
		// before they are committed.
		ix.Unheard(settlements)
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ix.health.CallTime())
	defer cancel()
	settled, err := ix.o.Schedule.Settle(ctx, settlements)
	if err != nil {
		ix.health.Failed("settle", err)
		ix.Unheard(settlements)
		return false
	}
	for i := range settled {
		ix.metrics.settled(settlements[i].Outcome, settled[i])
	}
	return true
}

// HintOnlyShard wakes the claimer, if there is one only, after something that gives a lane room or may be due at
// once. With several shards only the index knows whose it is.
func (ix *Index) HintOnlyShard() {
	if ix.o.Schedule.Shards() == 1 {
		ix.listener.Wake(0)
	}
}

// Unheard remembers settlements that the index may not have heard of, and what it should hold of them.
func (ix *Index) Unheard(settlements []schedule.Settlement) {
	ix.health.unsettled(settlements)
	var open []schedule.Item
	for i := range settlements {
		if o := settlements[i].Outcome; o == schedule.Reschedule || o == schedule.Divert {
			open = append(open, settlements[i].Item)
		}
	}
	ix.health.Missed(open)
}
