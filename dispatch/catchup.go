package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// catchUp tells the index what it missed, all of it or as far as it lets us, and says which. Where some shards answer, all of it is
// tried, so that theirs arrives; what failed is tried again after the rest.
func (t *trouble) catchUp(ctx context.Context) bool {
	until := time.Now().Add(catchUpTime)
	ended := t.endLeases(ctx, until)
	if !ended && !t.partly.Load() {
		return false
	}
	t.mu.Lock()
	items, all := t.items, t.all
	t.items, t.all = nil, false
	t.mu.Unlock()
	if all {
		n, err := t.e.ensureOpen(ctx)
		if err != nil {
			t.warn(&t.catchUpSaid, "catching up with the index is put off", err)
			t.missedAll()
			return false
		}
		t.e.metrics.catchUps.Inc()
		t.e.log.Info("caught up with the index", "open", n)
		return ended
	}
	if len(items) > 0 {
		t.e.metrics.catchUps.Inc()
	}
	var left []schedule.Item
	for len(items) > 0 && time.Now().Before(until) {
		chunk := items[:min(len(items), enqueueBatch)]
		if err := t.ensure(ctx, chunk); err != nil {
			t.indexFailed("ensure", err)
			if !t.partly.Load() {
				break // The rest would only wait for the same index, and SQL's probe with it.
			}
			left = append(left, chunk...)
		}
		t.e.hintDue(chunk)
		items = items[len(chunk):]
	}
	t.missed(append(items, left...))
	return ended && len(items) == 0 && len(left) == 0
}

// warn writes a line now and then.
func (t *trouble) warn(said *complaint, text string, err error) {
	t.mu.Lock()
	now := time.Now()
	said.stands = false // it is said again while it lasts
	due := said.due(now)
	t.mu.Unlock()
	if due {
		t.e.log.Warn(text, "error", err)
	}
}

// endLeases settles and releases what ended unheard, and says whether the index took all of it.
func (t *trouble) endLeases(ctx context.Context, until time.Time) bool {
	t.mu.Lock()
	settlements, locks := t.settlements, t.locks
	t.settlements, t.locks = nil, nil
	t.mu.Unlock()
	var unsettled []schedule.Settlement
	var locked []*schedule.Lease
	defer func() {
		t.unsettled(append(settlements, unsettled...))
		t.locked(append(locks, locked...)...)
	}()
	for len(settlements) > 0 && time.Now().Before(until) {
		chunk := slices.Clone(settlements[:min(len(settlements), enqueueBatch)])
		for i := range chunk {
			// So long after its commit a result may have been followed by others. Only a lease that is still this one ends.
			chunk[i].Won = false
		}
		sctx, cancel := context.WithTimeout(ctx, t.indexTime())
		_, err := t.e.o.Schedule.Settle(sctx, chunk)
		cancel()
		if err != nil {
			t.indexFailed("settle", err)
			if !t.partly.Load() {
				return false
			}
			unsettled = append(unsettled, chunk...)
		}
		settlements = settlements[len(chunk):]
		t.e.hintAll()
	}
	for len(locks) > 0 && time.Now().Before(until) {
		chunk := locks[:min(len(locks), enqueueBatch)]
		if err := t.release(ctx, chunk); err != nil {
			t.indexFailed("release", err)
			if !t.partly.Load() {
				return false
			}
			locked = append(locked, chunk...)
		}
		locks = locks[len(chunk):]
	}
	return len(settlements)+len(unsettled)+len(locks)+len(locked) == 0
}

// release frees locks that ended unheard, all at once: one after the other would take longer than they come in where the index
// fails now and then.
func (t *trouble) release(ctx context.Context, leases []*schedule.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, t.indexTime())
	defer cancel()
	unlocks := make([]schedule.Unlock, len(leases))
	for i, l := range leases {
		unlocks[i] = schedule.Unlock{Lock: l.Lock, ID: l.ID, Token: l.Token}
	}
	waiters, err := t.e.o.Schedule.Release(ctx, unlocks)
	if err != nil {
		return err
	}
	var movements []schedule.Movement
	var of []*schedule.Lease
	for i, w := range waiters {
		if w.ID != "" {
			movements, of = append(movements, schedule.Movement{Ref: schedule.Ref(w), Due: t.e.clock.now()}), append(of, leases[i])
		}
	}
	if len(movements) == 0 {
		return nil
	}
	moved, err := t.e.o.Schedule.Move(ctx, movements)
	if err != nil {
		return err
	}
	for i := range moved {
		if moved[i] != schedule.MovedIt {
			t.e.unlock(ctx, of[i]) // finds the next waiter; if it cannot it remembers
		}
	}
	t.e.hintAll()
	return nil
}

// ensure adds what the index lacks, and moves forward what it holds for later than was wanted. Where that is out of date by
// now the stamp parks it again.
func (t *trouble) ensure(ctx context.Context, items []schedule.Item) error {
	ctx, cancel := context.WithTimeout(ctx, t.indexTime())
	defer cancel()
	positions, err := t.e.o.Schedule.Ensure(ctx, items)
	if err != nil {
		return err
	}
	var movements []schedule.Movement
	for i, p := range positions {
		if p.Place == schedule.Delayed && p.Due > items[i].Due {
			movements = append(movements, schedule.Movement{Ref: items[i].Ref(), Due: items[i].Due})
		}
	}
	if len(movements) == 0 {
		return nil
	}
	_, err = t.e.o.Schedule.Move(ctx, movements)
	return err
}
