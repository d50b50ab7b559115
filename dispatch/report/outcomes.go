package report

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// MaxOutcomeWait is the longest that a reader of the feed is kept waiting.
	MaxOutcomeWait = 30 * time.Second
	// feedEvery is how often the feed is looked at for a reader that waits.
	feedEvery = 250 * time.Millisecond
)

// Outcomes returns what became terminal in the project after the cursor, in the order in which it was
// committed, none left out, and where to go on. Where there is nothing it waits for as long as wait, at most
// MaxOutcomeWait.
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
		part.Sleep(ctx, min(left, feedEvery))
		if ctx.Err() != nil {
			return nil, after, ctx.Err()
		}
	}
}
