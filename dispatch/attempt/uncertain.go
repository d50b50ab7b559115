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

// maxDoubts is how many such stamps are remembered; SQL that fails stops claims, so that there are few.
const maxDoubts = 1024

// A doubt is a stamp of which nobody knows whether it was written.
type doubt struct {
	stamp store.Stamp
	items map[string]schedule.Item
}

// uncertainStamps are those of which it is not known whether they were written.
type uncertainStamps struct {
	e      *Runner
	mu     sync.Mutex
	doubts []doubt
	said   part.Limiter
}

// Pending says whether there are any.
func (t *uncertainStamps) Pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.doubts) > 0
}

// warn writes a line now and then.
func (t *uncertainStamps) warn(text string, err error) {
	t.mu.Lock()
	due := t.said.Again(time.Now())
	t.mu.Unlock()
	if due {
		t.e.log.Warn(text, "error", err)
	}
}

// doubt remembers a stamp that failed.
func (t *uncertainStamps) doubt(s store.Stamp, leases []schedule.Lease) {
	d := doubt{stamp: s, items: make(map[string]schedule.Item, len(leases))}
	d.stamp.QuarantineAfter = 0 // it may have been written before its rows became suspects
	for i := range leases {
		d.items[leases[i].ID] = leases[i].Item
	}
	t.mu.Lock()
	if len(t.doubts) < maxDoubts {
		t.doubts = append(t.doubts, d)
	}
	t.mu.Unlock()
	t.e.index.Poke()
}

// Undo ends the claims of stamps that failed, and says whether none is left.
func (t *uncertainStamps) Undo(ctx context.Context) bool {
	t.mu.Lock()
	doubts := t.doubts
	t.doubts = nil
	t.mu.Unlock()
	for i := range doubts {
		err := t.end(ctx, &doubts[i])
		switch {
		case err == nil:
		case errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil ||
			errors.Is(err, context.DeadlineExceeded):
			t.warn("claims whose stamp was not answered cannot be taken back yet", err)
			t.mu.Lock()
			t.doubts = append(t.doubts, doubts[i:]...)
			t.mu.Unlock()
			return false
		default:
			// SQL works, and refuses this one for good, because of one of its rows: the others must not wait
			// for it. Its claims run out.
			t.warn("claims whose stamp was not answered cannot be taken back; they run out", err)
		}
	}
	return true
}

// end makes the stamp once more and ends what it claimed. Rows that somebody else has by now are refused, and
// left alone.
func (t *uncertainStamps) end(ctx context.Context, d *doubt) error {
	ctx, cancel := context.WithTimeout(ctx, index.SQLTimeout)
	defer cancel()
	stamped, _, err := t.e.o.Store.Stamp(ctx, d.stamp)
	if err != nil || len(stamped) == 0 {
		return err
	}
	results := make([]store.Result, len(stamped))
	for i := range stamped {
		w := stamped[i]
		results[i] = store.Result{ID: w.ID, Fence: w.Fence, State: store.Scheduled, DueAt: w.DueAt,
			FreeRetry: w.FreeRetry, Stamped: w}
	}
	committed, err := t.e.o.Store.Commit(ctx, results, t.e.clock.Now())
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
		t.e.metrics.takenBack.Inc()
		// Whoever met the claim meanwhile has parked the callback until its end.
		item := d.items[results[i].ID]
		item.Due = max(results[i].DueAt, t.e.clock.Now()+handBackDelay.Milliseconds())
		open = append(open, item)
	}
	t.e.index.Missed(open)
	return err
}
