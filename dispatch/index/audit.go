package index

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
)

// auditTime bounds one audit; the next one goes on where it ended. An index of a million takes a few.
const auditTime = 20 * time.Second

// An auditPlace is where the audit goes on: a page of a shard.
type auditPlace struct {
	shard  int
	cursor string
}

// Audit checks each shard's records against each other, and mends what differs, until it has seen them all or its time is over.
func (ix *Index) Audit(ctx context.Context) error {
	for started := time.Now(); time.Since(started) < auditTime; {
		at := &ix.audited
		page, err := ix.o.Schedule.Audit(ctx, at.shard, at.cursor)
		if err != nil {
			at.cursor = ""
			ix.health.Failed("audit", err)
			return fmt.Errorf("audit shard %d: %w", at.shard, err)
		}
		if page.Repaired > 0 {
			ix.metrics.repaired.Add(float64(page.Repaired))
			ix.log.Warn("audit mended the index", "shard", at.shard, "repaired", page.Repaired)
		}
		if at.cursor = page.Next; at.cursor == "" {
			if at.shard = (at.shard + 1) % ix.o.Schedule.Shards(); at.shard == 0 {
				return nil
			}
		}
		// Off-peak by construction: the index has its pauses between pages.
		if part.Sleep(ctx, 5*time.Millisecond); ctx.Err() != nil {
			return nil
		}
	}
	return nil
}
