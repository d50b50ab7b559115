package index

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// catchUp gives the index what it missed: at least a chunk of each kind, and more until the time is up. It
// says whether the index took all that it was given, and whether there is more that can be given now. Where
// only some shards answer it is given all of it in turn, so that theirs arrives.
func (t *health) catchUp(ctx context.Context, until time.Time) (took, more bool) {
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
	t.Locked(locks...)
	items, ensured := giveInChunks(t, until, "ensure", items, func(chunk []schedule.Item) error {
		// What it holds for later than was wanted is moved. Where that is out of date by now the stamp parks
		// it again.
		_, err := t.e.put(ctx, chunk, false, func(i int, p schedule.Position) bool {
			return p.Place == schedule.Delayed && p.Due > chunk[i].Due
		})
		return err
	})
	t.Missed(items)
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
	t *health, until time.Time, op string, all []T, give func([]T) error,
) (left []T, took bool) {
	var failed []T
	for first := true; len(all) > 0 && (first || time.Now().Before(until)); first = false {
		chunk := all[:min(len(all), enqueueBatch)]
		if err := give(chunk); err != nil {
			t.Failed(op, err)
			if !t.reach.is(partly) {
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
func (t *health) walkOn(ctx context.Context, until time.Time) (took bool, err error) {
	took = true
	for first := true; first || time.Now().Before(until); first = false {
		rows, err := t.nextOpen(ctx)
		if err != nil || len(rows) == 0 {
			return took, err
		}
		items := openItems(rows)
		if _, err := t.e.put(ctx, items, false, nil); err != nil {
			t.Failed("ensure", err)
			if !t.reach.is(partly) {
				return false, nil
			}
			t.Missed(items) // Those of the shards that answer must not wait for the others.
			took = false
		}
		t.walked(rows)
	}
	return took, nil
}

// nextOpen reads the next page of open rows that are to be given to the index; none: no walk is asked for, or
// it is at its end.
func (t *health) nextOpen(ctx context.Context) ([]store.OpenRow, error) {
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
func (t *health) walked(rows []store.OpenRow) {
	t.mu.Lock()
	t.walk.after = after(rows)
	t.walk.given += len(rows)
	t.mu.Unlock()
	if len(rows) < PageRows {
		t.endWalk()
	}
}

func (t *health) endWalk() {
	t.mu.Lock()
	given := t.walk.given
	t.walk = nil
	t.mu.Unlock()
	t.e.metrics.catchUps.Inc()
	t.e.log.Info("caught up with the index", "open", given)
}

// warn writes a line now and then.
func (t *health) warn(said *part.Limiter, text string, err error) {
	t.mu.Lock()
	due := said.Again(time.Now())
	t.mu.Unlock()
	if due {
		t.e.log.Warn(text, "error", err)
	}
}

// settle ends leases whose attempts ended unheard.
func (t *health) settle(ctx context.Context, settlements []schedule.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, t.CallTime())
	defer cancel()
	if _, err := t.e.o.Schedule.Settle(ctx, settlements); err != nil {
		return err
	}
	t.e.hintAll()
	return nil
}

// A patience says when what failed may be asked again: at once, unless it is half down.
type patience struct {
	back  time.Time // when it worked again
	since time.Time // when it began to fail, relapses apart
	askAt time.Time // when it may be asked next
}

// failed notes that it has just begun to fail, and says whether it had worked again only just before.
func (p *patience) failed(now time.Time, within, wait time.Duration) (relapse bool) {
	if p.back.IsZero() || now.Sub(p.back) >= within {
		p.since = now
		return false
	}
	p.askAt = now.Add(wait)
	return true
}
