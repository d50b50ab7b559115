package memq

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// Reset empties the index, locks and lane settings included, gives it the generation and closes it for
// claims. It is the one operation, besides Generation, that works whatever generation the index has.
func (ix *Index) Reset(ctx context.Context, shard int, generation int64) error {
	return ix.locked(ctx, "reset", shard, func() error {
		ix.clear()
		ix.generation, ix.closed = generation, true
		return nil
	})
}

// Open lets claims in.
func (ix *Index) Open(ctx context.Context, shard int) error {
	return ix.do(ctx, "open", shard, func() error {
		ix.closed = false
		return nil
	})
}

// Adopt puts running attempts in as leased and their locks as held. What is leased under another token is
// left as it is. A lock that another attempt holds passes on to the adopted one when that one lets it go.
func (ix *Index) Adopt(ctx context.Context, leases []schedule.Lease) error {
	_, err := each(ctx, ix, "adopt", leases, schedule.Lease.ValidateRunning,
		func(l *schedule.Lease) struct{} {
			ix.adopt(l)
			return struct{}{}
		})
	return err
}

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

// adoptLock takes the lock of an attempt that is running, or lets it inherit the lock from the attempt that
// has it. It does so even where the lease is another's, for the lock guards the wire. Who runs joins no
// queue.
func (ix *Index) adoptLock(a *schedule.Lease) {
	if a.Lock != "" && a.Until > ix.clock {
		k := ix.lock(a.Lock)
		ix.take(k, a.ID, a.Token, a.Until)
		ix.reckon(k)
	}
}
