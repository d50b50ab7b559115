package attempt

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A callback whose attempt crashes the process must not take the others of its batch down with it again and
// again: each crash counts against all callbacks that were claimed. So a callback that had quarantineAfter
// claims in a row without a result is quarantined. It is stamped alone, and the next one only after its
// result is committed. A crash then counts against that callback only, and the innocent ones get a result.
const (
	quarantineAfter = 2
	// quarantineTime is how long the quarantined callbacks of one claim are attempted one after another. The
	// rest is then handed back, before its leases expire.
	quarantineTime = 10 * time.Second
	// quarantineDelay is the wait of quarantined callbacks that are handed back.
	quarantineDelay = time.Second
)

// attemptQuarantined attempts the quarantined leases of one claim one by one, in random order, so that a
// callback that always crashes is not always the first. sent is when the claim was sent. Only one batch at a
// time is attempted in this process; another is handed back. The leases are not stamped yet.
func (rn *Runner) attemptQuarantined(ctx context.Context, leases []schedule.Lease, sent time.Time) {
	rand.Shuffle(len(leases), func(i, k int) { leases[i], leases[k] = leases[k], leases[i] })
	select {
	case rn.quarantine <- struct{}{}:
	default:
		rn.handBack(ctx, leases, quarantineDelay)
		return
	}
	defer func() { <-rn.quarantine }()
	began := time.Now()
	for i := range leases {
		if ctx.Err() != nil || rn.draining.Load() || time.Since(began) > quarantineTime {
			rn.handBack(ctx, leases[i:], quarantineDelay)
			return
		}
		rn.attemptAlone(ctx, &leases[i], sent)
	}
}

// attemptAlone stamps and attempts one quarantined lease. It returns when the result is committed or given
// up, or when a drain begins.
func (rn *Runner) attemptAlone(ctx context.Context, l *schedule.Lease, sent time.Time) {
	// The place in the lane is taken before the stamp. A stamp that is put back has a result, which clears
	// the count of claims without a result.
	if rn.index.Paused(l.Lane) || rn.limits.start(&ready{lease: l, claimed: sent}, false) != begins {
		rn.handBack(ctx, []schedule.Lease{*l}, quarantineDelay)
		return
	}
	began := time.Now()
	sctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), index.SQLTimeout)
	defer cancel()
	s := store.Stamp{
		Token: l.Token, Now: rn.clock.Now(), Lookahead: claimLookahead.Milliseconds(),
		Margin: rn.times.Margin.Milliseconds(),
		Claims: []store.StampClaim{{ID: l.ID, Diverts: l.Diverts}},
	}
	stamped, refused, err := rn.o.Store.Stamp(sctx, s)
	if err != nil {
		rn.stampFailed(ctx, err, s, []schedule.Lease{*l})
		return
	}
	rn.refuse(ctx, map[string]*schedule.Lease{l.ID: l}, refused)
	for i := range stamped {
		committed := make(chan struct{})
		addDiverts(stamped[i], l)
		notBefore := dueFrom(began, s.Now, stamped[i].DueAt)
		r := ready{cb: stamped[i], lease: l, claimed: began, notBefore: notBefore}
		rn.awaitDue(&r)
		rn.slots.begin(&r, true)
		if next, more := rn.attemptOne(ctx, r, committed); more {
			rn.start(ctx, next)
		}
		select {
		case <-committed:
		case <-rn.drain: // a drain must not wait for SQL here
		}
	}
}

// splitQuarantined separates the leases that SQL refused because they are quarantined from the other
// refusals.
func splitQuarantined(
	byID map[string]*schedule.Lease, refused []store.Refusal,
) (quarantined []schedule.Lease, rest []store.Refusal) {
	for i := range refused {
		l, ok := byID[refused[i].ID]
		if refused[i].Quarantined && ok {
			quarantined = append(quarantined, *l)
			continue
		}
		rest = append(rest, refused[i])
	}
	return quarantined, rest
}
