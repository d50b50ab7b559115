package attempt

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A callback whose attempt takes the process down with it must not take down the others with which it was
// claimed: each crash counts against all that were in flight. So who has been in flight at quarantineAfter
// crashes in a row is a suspect: it is stamped alone, and the next one only after its result is committed. A
// crash then counts against one suspect only, and the innocent ones clear themselves.
const (
	quarantineAfter = 2
	// quarantineTime is how long the quarantined of one claim go on one after the other; the rest is handed back
	// then, before its leases run out.
	quarantineTime = 10 * time.Second
	// quarantineDelay is when quarantined are due again that found others at their turn.
	quarantineDelay = time.Second
)

// attemptQuarantined attempts quarantined of a claim one by one, in no order, so that one that always crashes is not
// always the first. The claim was asked for at sent.
func (rn *Runner) attemptQuarantined(ctx context.Context, quarantined []schedule.Lease, sent time.Time) {
	rand.Shuffle(len(quarantined), func(i, k int) { quarantined[i], quarantined[k] = quarantined[k], quarantined[i] })
	select {
	case rn.quarantine <- struct{}{}:
	default:
		rn.handBack(ctx, quarantined, quarantineDelay)
		return
	}
	defer func() { <-rn.quarantine }()
	began := time.Now()
	for i := range quarantined {
		if ctx.Err() != nil || rn.draining.Load() || time.Since(began) > quarantineTime {
			rn.handBack(ctx, quarantined[i:], quarantineDelay)
			return
		}
		rn.attemptAlone(ctx, &quarantined[i], sent)
	}
}

// attemptAlone stamps and attempts one, and returns when what came of it is committed.
func (rn *Runner) attemptAlone(ctx context.Context, l *schedule.Lease, sent time.Time) {
	// Its place is taken before the stamp: what is stamped and put back would count as no crash.
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
		r := ready{cb: stamped[i], lease: l, claimed: began, notBefore: dueFrom(began, s.Now, stamped[i].DueAt)}
		rn.awaitDue(&r)
		rn.slots.begin(&r, true)
		if next, more := rn.attemptOne(ctx, r, committed); more {
			rn.start(ctx, next)
		}
		select {
		case <-committed:
		case <-rn.drain: // whose end must not wait for SQL
		}
	}
}

// stampFailed hands a batch back that SQL could not stamp. The stamp may have been written all the same: it
// is taken back as soon as SQL answers.
func (rn *Runner) stampFailed(ctx context.Context, err error, s store.Stamp, leases []schedule.Lease) {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		rn.index.SQLFailed(err)
	} else {
		rn.log.Error("stamp", "error", err, "callbacks", len(leases))
	}
	rn.handBack(ctx, leases, handBackDelay)
	rn.uncertain.add(s, leases)
}

// splitQuarantined takes the quarantined from what SQL refused.
func splitQuarantined(byID map[string]*schedule.Lease,
	refused []store.Refusal) (quarantined []schedule.Lease, rest []store.Refusal) {
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
