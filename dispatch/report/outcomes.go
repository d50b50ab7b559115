package report

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// MaxOutcomeWait is the longest wait of a reader of the feed.
	MaxOutcomeWait = 30 * time.Second
	// feedEvery is how often the feed is read for a waiting reader.
	feedEvery = 250 * time.Millisecond
)

// Outcomes returns the callbacks that became terminal in the project after the cursor, in the order of their
// commits and without gaps, and the next cursor. If there are none it waits for wait, at most MaxOutcomeWait,
// and returns at once when this process drains.
func (rp *Reporter) Outcomes(ctx context.Context, project string, after store.OutcomeCursor, limit int,
	wait time.Duration) ([]store.TerminalEvent, store.OutcomeCursor, error) {
	deadline := time.Now().Add(min(wait, MaxOutcomeWait))
	for {
		events, next, err := rp.o.Store.Outcomes(ctx, project, after, limit)
		if err != nil {
			return nil, after, fmt.Errorf("read the feed: %w", err)
		}
		left := time.Until(deadline)
		if len(events) > 0 || left <= 0 || rp.o.Draining() {
			return events, next, nil
		}
		process.Sleep(ctx, min(left, feedEvery))
		if ctx.Err() != nil {
			return nil, after, ctx.Err()
		}
	}
}
