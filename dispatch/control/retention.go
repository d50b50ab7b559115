package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// PurgeLease is the lease of one run. A run goes on while there is something to remove, and ends before
	// its lease. Then any process may run the next one.
	PurgeLease = time.Minute
	purgeTime  = 50 * time.Second
	// purgeIdle is the pause between two runs that find nothing to remove.
	purgeIdle = time.Minute
	// purgeTurn is how many rows of one kind are examined before the next kind has its turn. The store splits
	// them into its own transactions.
	purgeTurn = 2000
	// feedRetention is how long the feed of outcomes is kept.
	feedRetention = 30 * 24 * time.Hour
)

// lastPurge is the start of this process's last run, and whether that run removed any rows.
type lastPurge struct {
	at   time.Time
	some bool
}

// A purger examines up to limit rows of one kind. It returns how many it removed, and whether there may be
// more.
type purger struct {
	kind string
	run  func(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
}

// purgers returns one purger for each kind.
func (ct *Controller) purgers() []purger {
	// The store reports no "more" for small kinds: a full page means that there may be more.
	type remove = func(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
	counted := func(purge func(ctx context.Context, now int64, limit int) (int, error)) remove {
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
		{"activity", counted(ct.o.Store.PurgeActivity)},
		{"session", counted(ct.o.Store.PurgeSessions)},
		{"dispatcher", counted(ct.o.Store.PurgeDispatchers)},
		{"reconcile", counted(ct.purgeReconciles)},
	}
}

// purgedKinds are the kinds of rows that the purge removes. Payloads are removed together with callbacks.
var purgedKinds = []string{
	"callback", "payload", "key", "version", "outcome", "activity", "session", "dispatcher", "reconcile",
}

// retention returns the times before which rows are removed now.
func (ct *Controller) retention(now int64) store.Retention {
	return store.Retention{
		Now:       now,
		Payloads:  now - ct.o.RetentionPayload.Milliseconds(),
		Callbacks: now - ct.o.RetentionMetadata.Milliseconds(),
		Outcomes:  now - feedRetention.Milliseconds(),
	}
}

// Purge removes rows whose retention has ended. The kinds take turns until nothing is left or purgeTime has
// passed. A kind that fails gets no further turn in this run and delays no other kind.
//
// After a run that removed rows the next run follows in seconds. Otherwise it follows after purgeIdle.
func (ct *Controller) Purge(ctx context.Context) error {
	if !ct.purged.some && time.Since(ct.purged.at) < purgeIdle {
		return nil
	}
	ct.purged = lastPurge{at: time.Now()}
	var failed error
	left := ct.purgers()
	for started := time.Now(); len(left) > 0 && time.Since(started) < purgeTime; {
		var unfinished []purger
		for _, p := range left {
			n, more, err := p.run(ctx, ct.clock.Now(), purgeTurn)
			ct.metrics.purged.WithLabelValues(p.kind).Add(float64(n))
			ct.purged.some = ct.purged.some || n > 0
			switch {
			case ctx.Err() != nil:
				return failed
			case err != nil:
				failed = errors.Join(failed, fmt.Errorf("purge %s: %w", p.kind, err))
			case more:
				unfinished = append(unfinished, p)
			}
		}
		left = unfinished
	}
	return failed
}

// overdueKinds are the kinds whose oldest row is measured.
var overdueKinds = []string{"callback", "payload", "key", "version", "outcome"}

// MeasureOverdue sets the metric of rows that retention should have removed.
func (ct *Controller) MeasureOverdue(ctx context.Context) error {
	r := ct.retention(ct.clock.Now())
	oldest, err := ct.o.Store.Overstays(ctx, r)
	if err != nil {
		return fmt.Errorf("find overdue rows: %w", err)
	}
	for _, kind := range overdueKinds {
		before := r.Callbacks
		switch kind {
		case "payload":
			before = r.Payloads
		case "outcome":
			before = r.Outcomes
		case "key":
			before = r.Now - store.IdempotencyAge.Milliseconds()
		}
		overdue := 0.0
		if at, ok := oldest[kind]; ok {
			overdue = float64(before-at) / 1000
		}
		ct.metrics.overdue.WithLabelValues(kind).Set(overdue)
	}
	return nil
}

// purgeCallbacks removes callbacks, and payloads of callbacks that stay. It returns the number of callbacks.
func (ct *Controller) purgeCallbacks(
	ctx context.Context, now int64, limit int,
) (removed int, more bool, err error) {
	p, err := ct.o.Store.Purge(ctx, ct.retention(now), limit)
	ct.metrics.purged.WithLabelValues("payload").Add(float64(p.Payloads))
	ct.purged.some = ct.purged.some || p.Payloads > 0
	return p.Callbacks, p.More, err
}
