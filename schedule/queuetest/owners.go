package queuetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// concurrent lets several owners ensure, claim and settle at the same time. Every item must be acknowledged
// exactly once, after exactly one retry, and must never be leased twice at a time.
func concurrent(f *fixture) {
	const owners = 4
	each := 100
	if f.Full {
		each = 1000
	}
	l := &leaseTable{want: int64(owners * each)}
	timed, cancel := context.WithTimeout(f.ctx, 2*hintTimeout)
	defer cancel()
	group, ctx := errgroup.WithContext(timed)
	for o := range owners {
		var items []schedule.Item
		for i := range each {
			items = append(items, f.item(i%len(f.lanes), 0))
		}
		group.Go(func() error { return l.runOwner(ctx, f.Index, fmt.Sprint("owner-", o), items) })
	}
	f.noErr(group.Wait())
	if s := f.stats(); s.Delayed+s.Ready+s.Leased != 0 {
		f.Fatalf("something is left: %+v", s)
	}
	f.expectNoRepair()
}

// leaseTable has the tokens of the owners' leases and of acknowledged items, by id.
type leaseTable struct {
	tokens      sync.Map
	want, acked int64
}

// runOwner is one owner: it adds its items a few at a time, and claims and settles until all items are done.
func (l *leaseTable) runOwner(ctx context.Context, ix Index, owner string, items []schedule.Item) error {
	for n := 0; atomic.LoadInt64(&l.acked) < l.want; n++ {
		page := items[:min(7, len(items))]
		items = items[len(page):]
		if _, err := ix.Ensure(ctx, page); err != nil {
			return err
		}
		c, err := ix.Claim(ctx, 0, schedule.ClaimRequest{
			Owner: owner, Token: fmt.Sprintf("%s-%d", owner, n), Max: 16, MaxUncertain: 16, MaxTimingOut: 16,
			Lease: time.Hour, LaneLimit: 32,
		})
		if err != nil {
			return err
		}
		var settlements []schedule.Settlement
		for _, lease := range c.Leases {
			if other, taken := l.tokens.LoadOrStore(lease.ID, lease.Token); taken {
				return fmt.Errorf("%s is leased under %s, and was under %q or is done", lease.ID, lease.Token,
					other)
			}
			s := settled(lease, schedule.Ack)
			s.Signal = schedule.Answered
			if lease.Retry {
				atomic.AddInt64(&l.acked, 1)
			} else {
				s.Outcome, s.Retry, s.Due = schedule.Reschedule, true, c.Now
				l.tokens.Delete(lease.ID)
			}
			settlements = append(settlements, s)
		}
		replies, err := ix.Settle(ctx, settlements)
		if err != nil {
			return err
		}
		for i, reply := range replies {
			if reply != schedule.Applied {
				return fmt.Errorf("settling %s: %d, want applied", settlements[i].ID, reply)
			}
		}
	}
	return nil
}

// backlog checks that items of lanes with few items do not wait behind a lane with many.
func backlog(f *fixture) {
	size := 10_000
	if f.Full {
		size = 100_000
	}
	f.answer(0, 6, schedule.Answered)
	for range size / schedule.MaxBatch {
		f.ensure(f.items(0, schedule.MaxBatch)...)
	}
	f.promoteAll()
	light := []schedule.Item{f.item(1, 0), f.item(2, 0), f.item(3, 0)}
	f.ensure(light...)
	waiting := map[string]bool{light[0].ID: true, light[1].ID: true, light[2].ID: true}
	for range 3 {
		req := f.wide()
		req.Max = 16
		for _, l := range f.claim(req).Leases {
			delete(waiting, l.ID)
		}
	}
	if len(waiting) > 0 {
		f.Fatalf("after three claims of 16 light items still wait behind a backlog of %d: %v", size, waiting)
	}
}
