package dispatch

import (
	"context"
	"fmt"
	"time"
)

const (
	rollbackLease = "rollback"
	// rollbackTTL is how long the process that looks after an index that went back in time keeps the others from it: they have
	// noticed the same.
	rollbackTTL = 15 * time.Second
)

// A tide is how far one shard had come when a claim was answered: its generation, and the sequence that grows with every
// write to the shard.
type tide struct{ generation, seq int64 }

// fell takes the shard's present state, and says whether it is an older one of the same generation than was seen before the
// claim was sent. Then a replica without the last writes became the master, or a server came back with an older copy. An
// index that cannot be rolled back always says zero.
func (t *tide) fell(generation, seq int64) bool {
	before := *t
	*t = tide{generation, seq}
	return before.generation == generation && seq < before.seq
}

// rolledBack has every open row looked for in the index: what the older state lacks would otherwise be found by the sweep, and
// only after it was overdue. What the older state has too much is refused by the stamp. One process does it for all.
func (e *Engine) rolledBack(ctx context.Context, shard int, from, to int64) {
	e.metrics.rollbacks.Inc()
	e.log.Warn("the index went back in time; what it lacks is given to it again", "shard", shard, "sequence_before", from, "sequence", to)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqlTimeout)
	defer cancel()
	first, err := e.o.Store.TryLease(ctx, fmt.Sprintf("%s-%d", rollbackLease, shard), e.o.Name, e.clock.now(), rollbackTTL)
	if err != nil {
		e.log.Warn("who looks after the index cannot be agreed on; this process does", "error", err)
	}
	if first || err != nil {
		// Pauses, limits and rates first: what it lacks of them nobody else would tell it.
		if _, err := e.setLanes(ctx, 0); err != nil {
			e.log.Warn("the index may lack settings of lanes", "error", err)
		}
		e.trouble.missedAll()
	}
}
