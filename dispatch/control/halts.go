package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// DispatcherSilence is for how long a process that runs may not be heard of. One that has not reported itself
// for longer has died, or cannot reach SQL.
const DispatcherSilence = 30 * time.Second

// This file says what keeps callbacks whatever their lane is: SQL, the processes, the index.

// sqlHalt says that SQL can be read and does not commit, and since when, as far as this process knows.
func (ct *Controller) sqlHalt(ctx context.Context) []Block {
	since := ct.index.SQLFailingSince(ctx)
	if since.IsZero() {
		return nil
	}
	return []Block{{
		Code: BlockSQLDown, Since: ct.clock.At(since).UnixMilli(),
		Detail: "SQL can be read, and does not commit: nothing is claimed until it does.",
		Cure:   `Free the disk of the database or make it writable; "dispatcher doctor" says what is wrong.`,
	}}
}

// workerHalt says that no process sends: none with the role worker is there, or all of those were started
// with --hold. accepted is since when the callback in question waits, if that is known: where there never was
// a worker, it waits for the first one.
func (ct *Controller) workerHalt(ctx context.Context, accepted int64) ([]Block, error) {
	processes, err := ct.o.Processes(ctx)
	if err != nil {
		return nil, err
	}
	now := ct.clock.Now()
	workers, heldSince := 0, int64(0)
	for _, d := range processes {
		switch {
		case d.Workers == 0 || d.Draining || d.SeenAt < now-DispatcherSilence.Milliseconds():
		case !d.Held:
			return nil, nil
		default:
			workers++
			heldSince = max(heldSince, d.StartedAt)
		}
	}
	if workers > 0 {
		return []Block{{
			Code: BlockSendingHeld, Since: heldSince,
			Detail: fmt.Sprintf("All processes with the role worker were started with --hold: %d.", workers),
			Cure:   `Start them without --hold, or one more: "dispatcher serve --roles worker".`,
		}}, nil
	}
	seen, err := ct.o.Store.LastWorker(ctx)
	if err != nil {
		return nil, fmt.Errorf("find the last worker: %w", err)
	}
	b := Block{
		Code: BlockNoWorker, Since: min(seen, now), Detail: "No process with the role worker runs.",
		Cure: `Start one: "dispatcher serve --roles worker" with the same settings.`,
	}
	if seen == 0 {
		b.Since, b.Detail = accepted, "No process with the role worker has ever run."
	}
	return []Block{b}, nil
}

// rebuildHalt is the rebuild as what keeps callbacks.
func (ct *Controller) rebuildHalt(ctx context.Context, r index.Rebuild) Block {
	b := Block{
		Code: BlockIndexRebuilding, Since: r.Since,
		Detail: "The index is empty or another one; a process is about to fill it from SQL.",
		Cure: `Wait: it goes by itself. "dispatcher verify" compares it with SQL, ` +
			`"dispatcher rebuild" starts over.`,
	}
	if r.Since == 0 {
		b.Since = ct.clock.Now()
	}
	if r.Generation == 0 {
		return b
	}
	b.Detail = fmt.Sprintf("The index is being filled from SQL, as generation %d.", r.Generation)
	ctx, cancel := context.WithTimeout(ctx, ct.index.CallTime())
	defer cancel()
	if s, err := ct.index.Stats(ctx); err == nil {
		b.Detail += fmt.Sprintf(" It holds %d callbacks so far.", s.Delayed+s.Ready+s.Leased)
	}
	return b
}

// halts are what keeps every callback for now: accepted is as of workerHalt, asked and absent as of
// indexHalt. While SQL does not commit no process can say that it is there.
func (ct *Controller) halts(ctx context.Context, accepted int64, asked error, absent bool) ([]Block, error) {
	halts := ct.sqlHalt(ctx)
	if halts == nil {
		var err error
		halts, err = ct.workerHalt(ctx, accepted)
		if err != nil {
			return nil, err
		}
	}
	index, err := ct.indexHalt(ctx, asked, absent)
	return append(halts, index...), err
}

// indexHalt says what keeps the index from giving anything, after it was asked with that error: it does not
// answer, or it is being rebuilt. absent: it does not hold what it was asked for.
func (ct *Controller) indexHalt(ctx context.Context, asked error, absent bool) ([]Block, error) {
	lost := errors.Is(asked, schedule.ErrLost) || errors.Is(asked, schedule.ErrRebuilding)
	if asked != nil && !lost {
		return []Block{{
			Code: BlockIndexUnanswered, Since: ct.clock.At(ct.index.IndexDownSince()).UnixMilli(),
			Detail: "The index does not answer, so nothing is claimed from it.",
			Cure:   `See to Redis; "dispatcher doctor" says what is wrong with it. Nothing is lost meanwhile.`,
		}}, nil
	}
	r, err := ct.index.Rebuilding(ctx)
	switch {
	case err != nil || !lost && r.Since == 0:
		return nil, err
	case !lost && !absent && !ct.index.IsClosed(ctx):
		return nil, nil // it is in the part that is filled
	}
	return []Block{ct.rebuildHalt(ctx, r)}, nil
}

// isEndless says whether the block has no known end.
func (b Block) isEndless() bool {
	switch b.Code {
	case BlockSQLDown, BlockNoWorker, BlockSendingHeld, BlockIndexUnanswered, BlockIndexRebuilding,
		BlockEndpointOff, BlockOrder:
		return true
	}
	return b.Until == store.Forever
}
