package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// PurgeLease bounds one run. A run goes on as long as there is something to remove, and ends before its
	// lease does: then any process may go on.
	PurgeLease = time.Minute
	purgeTime  = 50 * time.Second
	// purgeIdle is how often a process looks that has nothing to remove.
	purgeIdle = time.Minute
	// purgeTurn is how many rows of one kind are looked at before the next kind has its turn. The store
	// removes them in transactions of its own size.
	purgeTurn = 2000
	// feedRetention is how long the feed is kept.
	feedRetention = 30 * 24 * time.Hour
)

// lastPurge is when the last run of this process began, and whether it removed some rows.
type lastPurge struct {
	at   time.Time
	some bool
}

// A purger removes up to limit rows of one kind, and says whether there may be more.
type purger struct {
	what string
	run  func(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
}

// purgers are those of all kinds.
func (ct *Controller) purgers() []purger {
	// Of kinds of which there are few the store says how many went: fewer than the limit are all.
	type remove = func(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
	few := func(purge func(ctx context.Context, now int64, limit int) (int, error)) remove {
		return func(ctx context.Context, now int64, limit int) (int, bool, error) {
			n, err := purge(ctx, now, limit)
			return n, n >= limit, err
		}
	}
	return []purger{
		{"callback", ct.purgeCallbacks},
		{"key", ct.o.Store.PurgeKeys},
		{"version", func(ctx context.Context, now int64, limit int) (int, bool, error) {
			return ct.o.Store.PurgeVersions(ctx, now, ct.retention(now).Callbacks, limit)
		}},
		{"outcome", func(ctx context.Context, now int64, limit int) (int, bool, error) {
			return ct.o.Store.PurgeOutcomes(ctx, now, ct.retention(now).Outcomes, limit)
		}},
		{"activity", few(ct.o.Store.PurgeActivity)},
		{"session", few(ct.o.Store.PurgeSessions)},
		{"dispatcher", few(ct.o.Store.PurgeDispatchers)},
	}
}

// retention says what goes now.
func (ct *Controller) retention(now int64) store.Retention {
	return store.Retention{
		Now:       now,
		Payloads:  now - ct.o.RetentionPayload.Milliseconds(),
		Callbacks: now - ct.o.RetentionMetadata.Milliseconds(),
		Outcomes:  now - feedRetention.Milliseconds(),
	}
}

// Purge removes what is no longer kept. The kinds take turns until nothing is left or the run's time is over.
// A kind that fails has no other turn in this run, and keeps no other kind from its turns.
//
// After a run that removed something the next one is seconds later. An idle process looks once a minute.
func (ct *Controller) Purge(ctx context.Context) error {
	if !ct.purged.some && time.Since(ct.purged.at) < purgeIdle {
		return nil
	}
	ct.purged = lastPurge{at: time.Now()}
	var failed error
	left := ct.purgers()
	for started := time.Now(); len(left) > 0 && time.Since(started) < purgeTime; {
		var again []purger
		for _, p := range left {
			n, more, err := p.run(ctx, ct.clock.Now(), purgeTurn)
			ct.metrics.purged.WithLabelValues(p.what).Add(float64(n))
			ct.purged.some = ct.purged.some || n > 0
			switch {
			case ctx.Err() != nil:
				return failed
			case err != nil:
				failed = errors.Join(failed, fmt.Errorf("purge %s: %w", p.what, err))
			case more:
				again = append(again, p)
			}
		}
		left = again
	}
	return failed
}

// overstaying are the kinds whose oldest row is looked for.
var overstaying = []string{"callback", "payload", "key", "version", "outcome"}

// NoteOverstays sets the metric of rows that retention should have removed.
func (ct *Controller) NoteOverstays(ctx context.Context) error {
	r := ct.retention(ct.clock.Now())
	oldest, err := ct.o.Store.Overstays(ctx, r)
	if err != nil {
		return fmt.Errorf("look for what retention has not removed: %w", err)
	}
	for _, what := range overstaying {
		before := r.Callbacks
		switch what {
		case "payload":
			before = r.Payloads
		case "outcome":
			before = r.Outcomes
		case "key":
			before = r.Now - store.IdempotencyAge.Milliseconds()
		}
		overdue := 0.0
		if at, ok := oldest[what]; ok {
			overdue = float64(before-at) / 1000
		}
		ct.metrics.overdue.WithLabelValues(what).Set(overdue)
	}
	return nil
}

// purgeCallbacks removes callbacks, and payloads of those that stay. It returns how many callbacks.
func (ct *Controller) purgeCallbacks(
	ctx context.Context, now int64, limit int,
) (removed int, more bool, err error) {
	p, err := ct.o.Store.Purge(ctx, ct.retention(now), limit)
	ct.metrics.purged.WithLabelValues("payload").Add(float64(p.Payloads))
	ct.purged.some = ct.purged.some || p.Payloads > 0
	return p.Callbacks, p.More, err
}
