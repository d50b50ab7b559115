package queuetest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// concurrent lets several owners ensure, claim and settle at the same time. Every item must be acknowledged
// exactly once, after exactly one retry, and never be leased to two at once.
func concurrent(f *fixture) {
	const owners = 4
	each := 100
	if f.Full {
		each = 1000
	}
	var (
		mu     sync.Mutex
		leased = make(map[string]string)
		acked  = make(map[string]int)
		fault  error
	)
	report := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		if fault == nil {
			fault = fmt.Errorf(format, args...)
		}
	}
	take := func(l schedule.Lease) {
		mu.Lock()
		other := leased[l.ID]
		leased[l.ID] = l.Token
		mu.Unlock()
		if other != "" {
			report("%s is leased under %s and under %s", l.ID, other, l.Token)
		}
	}
	give := func(l schedule.Lease) {
		mu.Lock()
		defer mu.Unlock()
		delete(leased, l.ID)
		if l.Retry {
			acked[l.ID]++
		}
	}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return fault != nil || len(acked) == owners*each
	}
	batches := make([][]schedule.Item, owners)
	for o := range batches {
		for i := range each {
			batches[o] = append(batches[o], f.item(i%len(f.lanes), 0))
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, 2*hintTimeout)
	defer cancel()
	var owned sync.WaitGroup
	for o := range owners {
		owned.Go(func() {
			if err := own(ctx, f.Index, fmt.Sprintf("owner-%d", o), batches[o], take, give, done); err != nil {
				report("owner %d: %w", o, err)
			}
		})
	}
	owned.Wait()
	f.no(fault)
	for id, n := range acked {
		if n != 1 {
			f.Fatalf("%s was acknowledged %d times", id, n)
		}
	}
	if s := f.stats(); s.Delayed+s.Ready+s.Leased != 0 {
		f.Fatalf("something is left: %+v", s)
	}
	f.quiet()
}

// own is one owner's life: it puts its items in a few at a time, and claims and settles until all are done.
func own(ctx context.Context, ix Index, owner string, items []schedule.Item, take, give func(schedule.Lease), done func() bool) error {
	for n := 0; !done(); n++ {
		if len(items) > 0 {
			page := items[:min(7, len(items))]
			items = items[len(page):]
			if _, err := ix.Ensure(ctx, page); err != nil {
				return err
			}
		}
		c, err := ix.Claim(ctx, 0, schedule.ClaimRequest{
			Owner: owner, Token: fmt.Sprintf("%s-%d", owner, n), Max: 16, MaxUncertain: 16, MaxTimingOut: 16,
			Lease: time.Hour, LaneLimit: 32,
		})
		if err != nil {
			return err
		}
		settlements := make([]schedule.Settlement, len(c.Leases))
		for i, l := range c.Leases {
			take(l)
			settlements[i] = settled(l, schedule.Ack)
			settlements[i].Signal = schedule.Answered
			if !l.Retry {
				settlements[i].Outcome, settlements[i].Retry, settlements[i].Due = schedule.Reschedule, true, c.Now
			}
			give(l)
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
