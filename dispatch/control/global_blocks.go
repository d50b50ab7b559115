package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// DispatcherSilence is how old the last heartbeat of a running process may be. A process with an older one
// has died, or cannot reach SQL.
const DispatcherSilence = 30 * time.Second

// sqlBlock returns a block while SQL serves reads but this process cannot commit.
func (ct *Controller) sqlBlock(ctx context.Context) []Block {
	since := ct.index.SQLFailingSince(ctx)
	if since.IsZero() {
		return nil
	}
	return []Block{{
		Code: BlockSQLDown, Since: ct.clock.At(since).UnixMilli(),
		Detail: "The database can be read but rejects writes. Nothing is sent until it accepts them.",
		Cure:   `Free disk space or make the database writable. "dispatcher doctor" shows the cause.`,
	}}
}

// stopBlock returns a block while all sending of the installation is stopped.
func (ct *Controller) stopBlock(ctx context.Context) ([]Block, error) {
	s, err := ct.SendingStop(ctx)
	if err != nil || s.At == 0 {
		return nil, err
	}
	return []Block{{
		Code: BlockSendingStopped, Since: s.At, Until: s.Until,
		Detail: withReason("All sending of the installation is stopped, by "+s.By, s.Reason),
		Cure:   `POST /v1/start with the admin key of the settings, or "dispatcher start".`,
	}}, nil
}

// workerBlock returns a block while no process sends: either none has the role worker, or all of those run
// with --hold. Since is zero if no worker ever ran: then nothing of what waits was ever sent.
func (ct *Controller) workerBlock(ctx context.Context) ([]Block, error) {
	processes, err := ct.o.Processes(ctx)
	if err != nil {
		return nil, err
	}
	now := ct.clock.Now()
	workers, offSince := 0, int64(0)
	for _, d := range processes {
		switch {
		case d.Workers == 0 || d.Draining || d.SeenAt < now-DispatcherSilence.Milliseconds():
		case !d.SendingOff:
			return nil, nil
		default:
			workers++
			offSince = max(offSince, d.StartedAt)
		}
	}
	if workers > 0 {
		return []Block{{
			Code: BlockSendingHeld, Since: offSince,
			Detail: fmt.Sprintf("Every process with the role worker (%d) was started with --hold.", workers),
			Cure:   `Restart them without --hold, or start another one: "dispatcher serve --roles worker".`,
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
		b.Detail = "No process with the role worker has ever run."
	}
	return []Block{b}, nil
}

// rebuildBlock describes a rebuild that runs (Generation > 0) or is about to begin.
func (ct *Controller) rebuildBlock(ctx context.Context, r index.Rebuild) Block {
	b := Block{
		Code: BlockIndexRebuilding, Since: r.Since,
		Detail: "The queue is empty or was replaced. A process is about to fill it from SQL.",
		Cure: `Wait until the rebuild ends. "dispatcher verify" compares the queue with SQL; ` +
			`"dispatcher rebuild" starts over.`,
	}
	if r.Since == 0 {
		b.Since = ct.clock.Now()
	}
	if r.Generation == 0 {
		return b
	}
	b.Detail = fmt.Sprintf("The queue is being filled from SQL (version %d).", r.Generation)
	ctx, cancel := context.WithTimeout(ctx, ct.index.CallTime())
	defer cancel()
	if s, err := ct.index.Stats(ctx); err == nil {
		b.Detail += fmt.Sprintf(" It holds %d callbacks so far.", s.Delayed+s.Ready+s.Leased)
	}
	return b
}

// globalBlocks are the blocks of every callback and every lane: SQL, a stop, the workers, the index. The
// parameters are those of indexBlock.
//
// While SQL rejects writes no process can record a heartbeat, so the workers are not checked then.
func (ct *Controller) globalBlocks(
	ctx context.Context, indexErr error, absent bool,
) ([]Block, error) {
	blocks := ct.sqlBlock(ctx)
	stop, err := ct.stopBlock(ctx)
	if err != nil {
		return nil, err
	}
	var workers []Block
	if blocks == nil {
		workers, err = ct.workerBlock(ctx)
		if err != nil {
			return nil, err
		}
	}
	index, err := ct.indexBlock(ctx, indexErr, absent)
	return slices.Concat(blocks, stop, workers, index), err
}

// indexBlock returns a block while the index gives out no callbacks: it does not answer, or a rebuild fills
// it. indexErr is the error of the last call to the index. absent: the index lacks the callback that the call
// was about.
func (ct *Controller) indexBlock(ctx context.Context, indexErr error, absent bool) ([]Block, error) {
	lost := errors.Is(indexErr, schedule.ErrLost) || errors.Is(indexErr, schedule.ErrRebuilding)
	if indexErr != nil && !lost {
		return []Block{{
			Code: BlockIndexUnanswered, Since: ct.clock.At(ct.index.IndexDownSince()).UnixMilli(),
			Detail: "The queue does not answer, so nothing is sent.",
			Cure:   `Check Redis. "dispatcher doctor" shows the cause. No callbacks are lost.`,
		}}, nil
	}
	r, err := ct.index.Rebuilding(ctx)
	switch {
	case err != nil || !lost && r.Since == 0:
		return nil, err
	case !lost && !absent && !ct.index.IsClosed(ctx):
		return nil, nil // claims are open, and the rebuild has added the callback already
	}
	return []Block{ct.rebuildBlock(ctx, r)}, nil
}

// isEndless reports whether the end of the block is unknown.
func (b Block) isEndless() bool {
	switch b.Code {
	case BlockSQLDown, BlockNoWorker, BlockSendingHeld, BlockIndexUnanswered, BlockIndexRebuilding,
		BlockEndpointOff, BlockOrder:
		return true
	}
	return b.Until == store.Forever
}
