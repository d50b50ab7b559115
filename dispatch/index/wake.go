package index

import (
	"context"
	"slices"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// RunHints passes the index's hints on to the claimers.
func (ix *Index) RunHints(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := ix.o.Schedule.Run(ctx); err != nil && ctx.Err() == nil {
			ix.log.Error("the index's hints ended; claimers re-poll", "error", err)
		}
	})
	hints := ix.o.Schedule.Hints()
	for {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case shard := <-hints:
			if shard >= 0 && shard < ix.o.Schedule.Shards() {
				ix.listener.Wake(shard)
			}
		}
	}
}

// hintDue wakes the claimer if one of the items is due now, so that it need not wait for the index's own hint to come
// round. With several shards only the index knows whose item it is.
func (ix *Index) hintDue(items []schedule.Item) {
	now := ix.clock.Now()
	if slices.ContainsFunc(items, func(i schedule.Item) bool { return i.Due <= now }) {
		ix.HintAlone()
	}
}

// hintAll wakes every claimer.
func (ix *Index) hintAll() {
	for shard := range ix.o.Schedule.Shards() {
		ix.listener.Wake(shard)
	}
}
