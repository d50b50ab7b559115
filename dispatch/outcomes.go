package dispatch

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Feed is what has ended, in order.
type Feed interface {
	// Outcomes returns up to limit outcomes of the project after the cursor, in order, and where to go on.
	Outcomes(ctx context.Context, project string, after store.OutcomeCursor, limit int) ([]store.TerminalEvent, store.OutcomeCursor, error)
	// PurgeOutcomes removes up to limit rows of what came into the feed before that time, and returns how many.
	PurgeOutcomes(ctx context.Context, before int64, limit int) (int, error)
}

const (
	// MaxOutcomeWait is the longest that a reader of the feed is kept waiting.
	MaxOutcomeWait = 30 * time.Second
	// feedEvery is how often the feed is looked at for a reader that waits.
	feedEvery = 250 * time.Millisecond
	// feedRetention is how long the feed is kept.
	feedRetention = 30 * 24 * time.Hour
)

// Outcomes returns what became terminal in the project after the cursor, in the order in which it was committed, none left out, and
// where to go on. Where there is nothing it waits for as long as wait, at most MaxOutcomeWait.
func (e *Engine) Outcomes(ctx context.Context, project string, after store.OutcomeCursor, limit int, wait time.Duration) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	deadline := time.Now().Add(min(wait, MaxOutcomeWait))
	for {
		events, next, err := e.o.Store.Outcomes(ctx, project, after, limit)
		if err != nil {
			return nil, after, fmt.Errorf("read the feed: %w", err)
		}
		left := time.Until(deadline)
		if len(events) > 0 || left <= 0 || e.draining.Load() {
			return events, next, nil
		}
		timer := time.NewTimer(min(left, feedEvery))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil, after, ctx.Err()
		case <-timer.C:
		}
	}
}

// purgeFeed removes what the feed no longer keeps, a bounded number of batches at a time.
func (e *Engine) purgeFeed(ctx context.Context) error {
	const batch, batches = 200, 20
	before := e.clock.now() - feedRetention.Milliseconds()
	for range batches {
		n, err := e.o.Store.PurgeOutcomes(ctx, before, batch)
		if err != nil {
			return fmt.Errorf("purge the feed: %w", err)
		}
		e.metrics.purged.WithLabelValues("outcome").Add(float64(n))
		if n < batch {
			return nil
		}
	}
	return nil
}
