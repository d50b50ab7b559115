package dispatch

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// catchUp gives the index what it missed: at least a chunk of each kind, and more until the time is up. It
// says whether the index took all that it was given, and whether there is more that can be given now. Where
// only some shards answer it is given all of it in turn, so that theirs arrives.
func (t *trouble) catchUp(ctx context.Context, until time.Time) (took, more bool) {
	t.mu.Lock()
	settlements, locks, items := t.settlements, t.locks, t.items
	t.settlements, t.locks, t.items = nil, nil, nil
	t.mu.Unlock()
	if len(items) > 0 {
		t.e.metrics.catchUps.Inc()
	}
	settle := func(chunk []schedule.Settlement) error { return t.settle(ctx, chunk) }
	settlements, settled := giveInChunks(t, until, "settle", settlements, settle)
	t.unsettled(settlements)
	locks, released := giveInChunks(t, until, "release", locks, func(chunk []*schedule.Lease) error {
		return t.e.release(ctx, chunk)
	})
	t.locked(locks...)
	items, ensured := giveInChunks(t, until, "ensure", items, func(chunk []schedule.Item) error {
		return t.ensureBy(ctx, chunk)
	})
	t.missed(items)
	walked, err := t.walkOn(ctx, until)
	if err != nil {
		t.warn(&t.catchUpSaid, "catching up with the index is put off", err)
	}
	took = settled && released && ensured && walked
	t.mu.Lock()
	defer t.mu.Unlock()
	return took, took && err == nil && t.behind()
}

// giveInChunks gives the index one chunk, and more until the time is up. It returns what is left, and whether
// the index took each chunk. The first failure ends it, unless some shards answer: then what failed comes
// after the rest.
func giveInChunks[T any](
	t *trouble, until time.Time, op string, all []T, give func([]T) error,
) (left []T, took bool) {
	var failed []T
	for first := true; len(all) > 0 && (first || time.Now().Before(until)); first = false {
		chunk := all[:min(len(all), enqueueBatch)]
		if err := give(chunk); err != nil {
			t.indexFailed(op, err)
			if !t.partly.Load() {
				return all, false // The rest would only wait for the same index, and SQL's probe with it.
			}
			failed = append(failed, chunk...)
		}
		all = all[len(chunk):]
	}
	return append(all, failed...), len(failed) == 0
}

// An openWalk is a catch-up of every open row: those that are yet to be given to the index, and how many it
// was given.
type openWalk struct {
	span
	given int
}

// walkOn gives the index every open row if it may lack any of them: one page, and more until the time is up.
// It goes on where it ended the last time, and says whether the index took each page. An error is of SQL, or
// of an index that does not say how far it is filled.
func (t *trouble) walkOn(ctx context.Context, until time.Time) (took bool, err error) {
	took = true
	for first := true; first || time.Now().Before(until); first = false {
		rows, err := t.nextOpen(ctx)
		if err != nil || len(rows) == 0 {
			return took, err
		}
		items := make([]schedule.Item, len(rows))
		for i := range rows {
			items[i] = openItem(&rows[i])
		}
		if _, err := t.ensure(ctx, items); err != nil {
			t.indexFailed("ensure", err)
			if !t.partly.Load() {
				return false, nil
			}
			t.missed(items) // Those of the shards that answer must not wait for the others.
			took = false
		}
		t.walked(rows)
	}
	return took, nil
}

// nextOpen reads the next page of open rows that are to be given to the index; none: no walk is asked for, or
// it is at its end.
func (t *trouble) nextOpen(ctx context.Context) ([]store.OpenRow, error) {
	t.mu.Lock()
	walk, begin := t.walk, t.walk == nil && t.all
	t.mu.Unlock()
	if begin {
		until, err := t.e.takenUntil(ctx)
		if err != nil {
			return nil, err
		}
		walk = &openWalk{span: span{until: until}}
		t.mu.Lock()
		t.walk, t.all = walk, false
		t.mu.Unlock()
	}
	if walk == nil {
		return nil, nil
	}
	rows, err := t.e.readOpen(ctx, walk.after, walk.until)
	if err == nil && len(rows) == 0 {
		t.endWalk()
	}
	return rows, err
}

// walked notes that the index was given these open rows. A page that is not full is the last one: what is
// accepted meanwhile reaches the index by itself, and a walk that waited for an empty page would not end.
func (t *trouble) walked(rows []store.OpenRow) {
	last := &rows[len(rows)-1]
	t.mu.Lock()
	t.walk.after = store.Cursor{DueAt: last.DueAt, ID: last.ID}
	t.walk.given += len(rows)
	t.mu.Unlock()
	if len(rows) < pageRows {
		t.endWalk()
	}
}

func (t *trouble) endWalk() {
	t.mu.Lock()
	given := t.walk.given
	t.walk = nil
	t.mu.Unlock()
	t.e.metrics.catchUps.Inc()
	t.e.log.Info("caught up with the index", "open", given)
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

// settle ends leases whose attempts ended unheard.
func (t *trouble) settle(ctx context.Context, settlements []schedule.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, t.indexTime())
	defer cancel()
	if _, err := t.e.o.Schedule.Settle(ctx, settlements); err != nil {
		return err
	}
	t.e.hintAll()
	return nil
}

// ensureBy adds what the index lacks, and moves forward what it holds for later than was wanted. Where that
// is out of date by now the stamp parks it again.
func (t *trouble) ensureBy(ctx context.Context, items []schedule.Item) error {
	positions, err := t.ensure(ctx, items)
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
	ctx, cancel := context.WithTimeout(ctx, t.indexTime())
	defer cancel()
	if _, err = t.e.o.Schedule.Move(ctx, movements); err != nil {
		return err
	}
	t.e.hintDue(items)
	return nil
}

// ensure adds what the index lacks, and says where each item was.
func (t *trouble) ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, t.indexTime())
	defer cancel()
	positions, err := t.e.o.Schedule.Ensure(ctx, items)
	if err != nil {
		return nil, err
	}
	t.e.hintDue(items)
	return positions, nil
}
