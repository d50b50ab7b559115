package attempt

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A stamp that failed may have been written all the same: only its reply is lost. Nothing was sent for it,
// and yet its rows would be claimed until the claim runs out, and each would count as a crash: with five in a
// row a callback would be dead as poison that was never sent at all. So the stamp is remembered, and taken
// back as soon as SQL answers: made once more under the same token, which tells its fences, and ended with
// results that say that nothing came of it.

// maxUncertainStamps is how many such stamps are remembered; SQL that fails stops claims, so that there are few.
const maxUncertainStamps = 1024

// A doubt is a stamp of which nobody knows whether it was written.
type uncertainStamp struct {
	stamp store.Stamp
	items map[string]schedule.Item
}

// uncertainStamps are those of which it is not known whether they were written.
type uncertainStamps struct {
	rn       *Runner
	mu       sync.Mutex
	stamps   []uncertainStamp
	logLimit part.Limiter
}

// Pending says whether there are any.
func (u *uncertainStamps) Pending() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.stamps) > 0
}

// warn writes a line now and then.
func (u *uncertainStamps) warn(text string, err error) {
	u.mu.Lock()
	due := u.logLimit.Again(time.Now())
	u.mu.Unlock()
	if due {
		u.rn.log.Warn(text, "error", err)
	}
}

// doubt remembers a stamp that failed.
func (u *uncertainStamps) add(s store.Stamp, leases []schedule.Lease) {
	d := uncertainStamp{stamp: s, items: make(map[string]schedule.Item, len(leases))}
	d.stamp.QuarantineAfter = 0 // it may have been written before its rows became quarantined
	for i := range leases {
		d.items[leases[i].ID] = leases[i].Item
	}
	u.mu.Lock()
	if len(u.stamps) < maxUncertainStamps {
		u.stamps = append(u.stamps, d)
	}
	u.mu.Unlock()
	u.rn.index.Poke()
}

// Undo ends the claims of stamps that failed, and says whether none is left.
func (u *uncertainStamps) Undo(ctx context.Context) bool {
	u.mu.Lock()
	stamps := u.stamps
	u.stamps = nil
	u.mu.Unlock()
	for i := range stamps {
		err := u.undo(ctx, &stamps[i])
		switch {
		case err == nil:
		case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil ||
			errors.Is(err, context.DeadlineExceeded):
			u.warn("claims whose stamp was not answered cannot be taken back yet", err)
			u.mu.Lock()
			u.stamps = append(u.stamps, stamps[i:]...)
			u.mu.Unlock()
			return false
		default:
			// SQL works, and refuses this one for good, because of one of its rows: the others must not wait
			// for it. Its claims run out.
			u.warn("claims whose stamp was not answered cannot be taken back; they run out", err)
		}
	}
	return true
}

// end makes the stamp once more and ends what it claimed. Rows that somebody else has by now are refused, and
// left alone.
func (u *uncertainStamps) undo(ctx context.Context, d *uncertainStamp) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	stamped, _, err := u.rn.o.Store.Stamp(ctx, d.stamp)
	if err != nil || len(stamped) == 0 {
		return err
	}
	results := make([]store.Result, len(stamped))
	for i := range stamped {
		cb := stamped[i]
		results[i] = store.Result{ID: cb.ID, Fence: cb.Fence, State: store.Scheduled, DueAt: cb.DueAt,
			FreeRetry: cb.FreeRetry, Stamped: cb}
	}
	committed, err := u.rn.o.Store.Commit(ctx, results, u.rn.clock.Now())
	if err != nil {
		return err
	}
	var open []schedule.Item
	for i := range committed {
		if errors.Is(committed[i].Err, store.ErrUnavailable) {
			err = committed[i].Err // what is ended by now is refused the next time
		}
		if !committed[i].Won {
			continue
		}
		u.rn.metrics.undone.Inc()
		// Whoever met the claim meanwhile has parked the callback until its end.
		item := d.items[results[i].ID]
		item.Due = max(results[i].DueAt, u.rn.clock.Now()+handBackDelay.Milliseconds())
		open = append(open, item)
	}
	u.rn.index.Missed(open)
	return err
}
