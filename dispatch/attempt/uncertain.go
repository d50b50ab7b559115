package attempt

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A stamp that failed may have been written, in part or with only its reply lost. No attempt was made for it,
// but its rows stay claimed until the claim expires, and each then counts as a crash. After five in a row a
// callback would be dead as poison although it was never sent. So an uncertain stamp is remembered, and
// undone when SQL answers: it is written once more under the same token, which returns its fences, and then
// results without an attempt end the claims.
//
// The guard against a double send is the fence: the repeated stamp refuses rows that another claim has by
// now.

// maxUncertainStamps is the most stamps that are remembered; the claims of further ones expire. There are
// few: an outage of SQL stops claims.
const maxUncertainStamps = 1024

// An uncertainStamp is a stamp that may have been written, and the items of its leases by id.
type uncertainStamp struct {
	stamp store.Stamp
	items map[string]schedule.Item
}

// uncertainStamps keeps the stamps that may have been written. It implements index.Undoer: a probe that finds
// SQL working calls Undo. After an outage it does so before claims go on.
type uncertainStamps struct {
	rn       *Runner
	mu       sync.Mutex
	stamps   []uncertainStamp
	logLimit process.LogLimiter
}

// Pending returns whether there are uncertain stamps.
func (u *uncertainStamps) Pending() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.stamps) > 0
}

// warn logs a repeated failure, but not each time.
func (u *uncertainStamps) warn(text string, err error) {
	u.mu.Lock()
	due := u.logLimit.Again(time.Now())
	u.mu.Unlock()
	if due {
		u.rn.log.Warn(text, "error", err)
	}
}

// add remembers a stamp that failed.
func (u *uncertainStamps) add(s store.Stamp, leases []schedule.Lease) {
	stamp := uncertainStamp{stamp: s, items: make(map[string]schedule.Item, len(leases))}
	stamp.stamp.QuarantineAfter = 0 // the first write may have come before its rows were quarantined
	for i := range leases {
		stamp.items[leases[i].ID] = leases[i].Item
	}
	u.mu.Lock()
	if len(u.stamps) < maxUncertainStamps {
		u.stamps = append(u.stamps, stamp)
	}
	u.mu.Unlock()
	u.rn.index.ProbeSoon()
}

// Undo ends the claims of uncertain stamps. It returns whether none is left.
func (u *uncertainStamps) Undo(ctx context.Context) bool {
	u.mu.Lock()
	stamps := u.stamps
	u.stamps = nil
	u.mu.Unlock()
	for i := range stamps {
		err := u.undo(ctx, &stamps[i])
		switch {
		case err == nil:
		case errors.Is(err, store.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
			u.warn("undoing uncertain stamps failed; it is tried again", err)
			u.mu.Lock()
			u.stamps = append(u.stamps, stamps[i:]...)
			u.mu.Unlock()
			return false
		default:
			// SQL works, and refuses this stamp for good because of one of its rows. The other stamps must
			// not wait for it. Its claims expire.
			u.warn("an uncertain stamp cannot be undone; its claims expire", err)
		}
	}
	return true
}

// undo writes the stamp once more and ends its claims. Rows that another claim has are refused, and left
// alone.
func (u *uncertainStamps) undo(ctx context.Context, stamp *uncertainStamp) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	stamped, _, err := u.rn.o.Store.Stamp(ctx, stamp.stamp)
	if err != nil || len(stamped) == 0 {
		return err
	}
	results := make([]store.Result, len(stamped))
	for i := range stamped {
		cb := stamped[i]
		since := cb.DivertsSince()
		results[i] = store.Result{
			ID: cb.ID, Fence: cb.Fence, State: store.Scheduled, DueAt: cb.DueAt, FreeRetry: cb.FreeRetry,
			Stamped: cb, DivertsSince: since.Times, DivertReason: since.Reason,
		}
	}
	committed, err := u.rn.o.Store.Commit(ctx, results, u.rn.clock.Now())
	if err != nil {
		return err
	}
	var open []schedule.Item
	for i := range committed {
		if errors.Is(committed[i].Err, store.ErrUnavailable) {
			err = committed[i].Err // the next undo refuses the rows that are ended by now
		}
		if !committed[i].Won {
			continue
		}
		u.rn.metrics.undone.Inc()
		// A claim that met this one meanwhile has parked the callback until the end of the claim; it is due
		// sooner.
		item := stamp.items[results[i].ID]
		item.Due = max(results[i].DueAt, u.rn.clock.Now()+handBackDelay.Milliseconds())
		open = append(open, item)
	}
	u.rn.index.Missed(open)
	return err
}
