package index

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// catchUp gives the index what it missed: at least one chunk of each kind, and more until the time is up.
// took is whether the index took all chunks; more is whether it has missed more that can be given now. If
// only some shards answer, all chunks are given in turn, so that those shards get theirs.
func (h *health) catchUp(ctx context.Context, until time.Time) (took, more bool) {
	h.mu.Lock()
	settlements, locks, items := h.missedSettlements, h.missedUnlocks, h.missedItems
	h.missedSettlements, h.missedUnlocks, h.missedItems = nil, nil, nil
	h.mu.Unlock()
	if len(items) > 0 {
		h.ix.metrics.catchUps.Inc()
	}
	settle := func(chunk []schedule.Settlement) error { return h.settle(ctx, chunk) }
	settlements, settled := giveChunks(h, until, "settle", settlements, settle)
	h.addMissedSettlements(settlements)
	locks, released := giveChunks(h, until, "release", locks, func(chunk []*schedule.Lease) error {
		return h.ix.release(ctx, chunk)
	})
	h.MissedUnlocks(locks...)
	items, ensured := giveChunks(h, until, "ensure", items, func(chunk []schedule.Item) error {
		// An item that is held for later than it should be is moved. If that is outdated by now, the stamp
		// parks the callback again.
		_, err := h.ix.put(ctx, chunk, false, func(i int, p schedule.Position) bool {
			return p.Place == schedule.Delayed && p.Due > chunk[i].Due
		})
		return err
	})
	h.Missed(items)
	walked, err := h.continueWalk(ctx, until)
	if err != nil {
		h.warn(&h.catchUpLog, "catch-up of the index failed; it is tried again", err)
	}
	took = settled && released && ensured && walked
	h.mu.Lock()
	defer h.mu.Unlock()
	return took, took && err == nil && h.hasMissed()
}

// giveChunks gives the index one chunk, and more until the time is up. It returns what is left, and whether
// the index took each chunk. The first failure ends it, unless some shards answer. In that case the failed
// chunks come after the rest.
func giveChunks[T any](
	h *health, until time.Time, op string, all []T, give func([]T) error,
) (left []T, took bool) {
	var failed []T
	for first := true; len(all) > 0 && (first || time.Now().Before(until)); first = false {
		chunk := all[:min(len(all), enqueueBatch)]
		if err := give(chunk); err != nil {
			h.Failed(op, err)
			if !h.reach.is(partly) {
				return all, false // The rest would wait for the same index, and so would the probe of SQL.
			}
			failed = append(failed, chunk...)
		}
		all = all[len(chunk):]
	}
	return append(all, failed...), len(failed) == 0
}

// An openWalk is a catch-up of all open rows: the span of rows that are left, and how many the index got.
type openWalk struct {
	span
	given int
}

// continueWalk gives the index all open rows if it may lack any: one page, and more until the time is up. It
// continues where it ended the last time. took is whether the index took each page. The error is one of SQL,
// or of an index whose watermarks cannot be read.
func (h *health) continueWalk(ctx context.Context, until time.Time) (took bool, err error) {
	took = true
	for first := true; first || time.Now().Before(until); first = false {
		rows, err := h.nextWalkPage(ctx)
		if err != nil || len(rows) == 0 {
			return took, err
		}
		items := openItems(rows)
		if _, err := h.ix.put(ctx, items, false, nil); err != nil {
			h.Failed("ensure", err)
			if !h.reach.is(partly) {
				return false, nil
			}
			h.Missed(items) // The shards that answer get theirs, and the rest is remembered as missed.
			took = false
		}
		h.noteWalked(rows)
	}
	return took, nil
}

// nextWalkPage reads the next page of the walk, and begins a walk if one is needed. No rows: no walk is
// needed, or it has ended. Only the goroutine of run calls it.
func (h *health) nextWalkPage(ctx context.Context) ([]store.OpenRow, error) {
	h.mu.Lock()
	walk, begin := h.walk, h.walk == nil && h.needsWalk
	h.mu.Unlock()
	if begin {
		until, err := h.ix.acceptedUntil(ctx)
		if err != nil {
			return nil, err
		}
		walk = &openWalk{span: span{until: until}}
		h.mu.Lock()
		h.walk, h.needsWalk = walk, false
		h.mu.Unlock()
	}
	if walk == nil {
		return nil, nil
	}
	rows, err := h.ix.readOpen(ctx, walk.after, walk.until)
	if err == nil && len(rows) == 0 {
		h.endWalk()
	}
	return rows, err
}

// noteWalked notes that the index got these rows. A page that is not full ends the walk: callbacks that are
// accepted meanwhile are enqueued in the normal way, and a walk that waited for an empty page might never
// end.
func (h *health) noteWalked(rows []store.OpenRow) {
	h.mu.Lock()
	h.walk.after = after(rows)
	h.walk.given += len(rows)
	h.mu.Unlock()
	if len(rows) < PageRows {
		h.endWalk()
	}
}

// endWalk ends the walk that is under way.
func (h *health) endWalk() {
	h.mu.Lock()
	given := h.walk.given
	h.walk = nil
	h.mu.Unlock()
	h.ix.metrics.catchUps.Inc()
	h.ix.log.Info("index caught up with SQL", "open", given)
}

// warn logs a failure that lasts, but not each time.
func (h *health) warn(limit *process.LogLimiter, text string, err error) {
	h.mu.Lock()
	due := limit.Again(time.Now())
	h.mu.Unlock()
	if due {
		h.ix.log.Warn(text, "error", err)
	}
}

// settle repeats settlements that the index missed.
func (h *health) settle(ctx context.Context, settlements []schedule.Settlement) error {
	ctx, cancel := context.WithTimeout(ctx, h.CallTime())
	defer cancel()
	if _, err := h.ix.o.Schedule.Settle(ctx, settlements); err != nil {
		return err
	}
	h.ix.hintAll()
	return nil
}

// An outageTimer keeps when something failed and recovered, and from when on it may be probed: at once, or
// after a relapse only after a while.
type outageTimer struct {
	recoveredAt  time.Time // when it last recovered
	failingSince time.Time // since when it fails; a relapse does not change it
	retryAt      time.Time // when it may be probed
}

// failed notes that it has just begun to fail. It returns whether that is a relapse: it had recovered less
// than within before.
func (o *outageTimer) failed(now time.Time, within, wait time.Duration) (relapse bool) {
	if o.recoveredAt.IsZero() || now.Sub(o.recoveredAt) >= within {
		o.failingSince = now
		return false
	}
	o.retryAt = now.Add(wait)
	return true
}
