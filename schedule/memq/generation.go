package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Reset empties the index, with its locks and lane settings. It gives it the generation and closes it for
// claims. Reset and Generation work whatever generation the index has.
func (ix *Index) Reset(ctx context.Context, shard int, generation int64) error {
	return ix.locked(ctx, "reset", shard, func() error {
		ix.clear()
		ix.generation, ix.closed = generation, true
		return nil
	})
}

// Open allows claims after a rebuild.
func (ix *Index) Open(ctx context.Context, shard int) error {
	return ix.do(ctx, "open", shard, func() error {
		ix.closed = false
		return nil
	})
}

// Adopt puts running attempts in as leased, and takes their locks. An item that is leased under another token
// stays as it is. If another attempt holds the lock, the adopted one becomes its next holder (docs/adr/0014).
func (ix *Index) Adopt(ctx context.Context, leases []schedule.Lease) error {
	_, err := each(ctx, ix, "adopt", leases, schedule.Lease.ValidateRunning,
		func(l *schedule.Lease) struct{} {
			ix.adopt(l)
			return struct{}{}
		})
	return err
}

// adopt leases an item under the token of its claim in SQL. The lease counts. An item that is already leased
// under that token gets the later end.
func (ix *Index) adopt(a *schedule.Lease) {
	k, _ := parseKey(a.ID)
	it := ix.items[k]
	switch {
	case it == nil:
		it = ix.put(k, a.ID, a.Lane)
	case it.is(schedule.Leased):
		if it.token == a.Token {
			ix.prolong(it, ix.steadily(a.Until))
		}
		ix.adoptLock(a)
		return
	default:
		ix.detach(it)
	}
	ix.adapt(it, &a.Item)
	it.due = ix.moment(a.Due)
	ix.lease(it, a.Token, ix.steadily(a.Until))
	ix.refresh(it.lane)
	ix.adoptLock(a)
}

// adoptLock takes the lock of a running attempt, or makes it a next holder if another attempt has the lock.
// It does so even if the item is leased under another token: the lock guards the request that is on the wire.
// A running attempt never joins the queue of waiters.
func (ix *Index) adoptLock(a *schedule.Lease) {
	if a.Lock != "" && a.Until > ix.clock {
		k := ix.lock(a.Lock)
		ix.take(k, a.ID, a.Token, a.Until)
		ix.updateEnding(k)
	}
}
