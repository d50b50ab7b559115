package dispatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file says what keeps callbacks whatever their lane is: SQL, the processes, the index.

// sqlHalt says that SQL can be read and does not commit, and since when, as far as this process knows.
func (e *Engine) sqlHalt(ctx context.Context) (Block, bool) {
	since := e.sqlFailingSince(ctx)
	if since.IsZero() {
		return Block{}, false
	}
	return Block{
		Code: BlockSQLDown, Since: e.clock.at(since).UnixMilli(),
		Detail: "SQL can be read, and does not commit: nothing is claimed until it does.",
		Cure:   `Free the disk of the database or make it writable; "dispatcher doctor" says what is wrong.`,
	}, true
}

// sqlFailingSince returns when SQL began to refuse commits: those of claims and results, or the probe of a
// process that makes none. Zero: it commits.
func (e *Engine) sqlFailingSince(ctx context.Context) time.Time {
	var since time.Time
	if e.trouble.sqlIsDown() {
		since = e.trouble.sqlDownSince()
	}
	if err := e.pingSQL(ctx); err != nil {
		if failing := e.health.failingSince(); since.IsZero() || failing.Before(since) {
			since = failing
		}
	}
	return since
}

func (h *healthCache) failingSince() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.IsZero() {
		return time.Now()
	}
	return h.failing
}

// workerHalt says that no process sends: none with the role worker is there, or all of those were started
// with --hold. accepted is since when the callback in question waits, if that is known: where there never was
// a worker, it waits for the first one.
func (e *Engine) workerHalt(ctx context.Context, accepted int64) (Block, bool, error) {
	processes, err := e.Dispatchers(ctx)
	if err != nil {
		return Block{}, false, err
	}
	now := e.clock.now()
	workers, heldSince := 0, int64(0)
	for _, d := range processes {
		switch {
		case d.Workers == 0 || d.Draining || d.SeenAt < now-DispatcherSilence.Milliseconds():
		case !d.Held:
			return Block{}, false, nil
		default:
			workers++
			heldSince = max(heldSince, d.StartedAt)
		}
	}
	if workers > 0 {
		return Block{
			Code: BlockSendingHeld, Since: heldSince,
			Detail: fmt.Sprintf("All processes with the role worker were started with --hold: %d.", workers),
			Cure:   `Start them without --hold, or one more: "dispatcher serve --roles worker".`,
		}, true, nil
	}
	seen, err := e.o.Store.LastWorker(ctx)
	if err != nil {
		return Block{}, false, fmt.Errorf("find the last worker: %w", err)
	}
	b := Block{
		Code: BlockNoWorker, Since: min(seen, now), Detail: "No process with the role worker runs.",
		Cure: `Start one: "dispatcher serve --roles worker" with the same settings.`,
	}
	if seen == 0 {
		b.Since, b.Detail = accepted, "No process with the role worker has ever run."
	}
	return b, true, nil
}

// A rebuild is what is known of an index that is not as SQL says; since is zero for one that is.
type rebuild struct {
	since int64
	// generation is what is being filled; zero: no process has begun yet.
	generation int64
}

// rebuilding says since when the index is being filled, or lacks what it should have.
func (e *Engine) rebuilding(ctx context.Context) (rebuild, error) {
	meta, err := e.o.Store.IndexMeta(ctx, e.keeper.want())
	if err != nil {
		return rebuild{}, fmt.Errorf("read the index's row: %w", err)
	}
	switch {
	case meta.Built != meta.Generation && meta.MadeAt != 0:
		return rebuild{since: meta.MadeAt, generation: meta.Generation}, nil
	case meta.Built != meta.Generation || e.keeper.suspect.Load():
		return rebuild{since: e.keeper.suspectAt.Load()}, nil
	}
	return rebuild{}, nil
}

// rebuildHalt is the rebuild as what keeps callbacks.
func (e *Engine) rebuildHalt(ctx context.Context, r rebuild) Block {
	b := Block{
		Code: BlockIndexRebuilding, Since: r.since,
		Detail: "The index is empty or another one; a process is about to fill it from SQL.",
		Cure: `Wait: it goes by itself. "dispatcher verify" compares it with SQL, ` +
			`"dispatcher rebuild" starts over.`,
	}
	if r.since == 0 {
		b.Since = e.clock.now()
	}
	if r.generation == 0 {
		return b
	}
	b.Detail = fmt.Sprintf("The index is being filled from SQL, as generation %d.", r.generation)
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	if s, err := e.Stats(ctx); err == nil {
		b.Detail += fmt.Sprintf(" It holds %d callbacks so far.", s.Delayed+s.Ready+s.Leased)
	}
	return b
}

// unansweredHalt says that the index does not answer.
func (e *Engine) unansweredHalt() Block {
	return Block{
		Code: BlockIndexUnanswered, Since: e.clock.at(e.trouble.indexDownSince()).UnixMilli(),
		Detail: "The index does not answer, so nothing is claimed from it.",
		Cure:   `See to Redis; "dispatcher doctor" says what is wrong with it. Nothing is lost meanwhile.`,
	}
}

// halts are what keeps every callback for now, but for the index: accepted is as of workerHalt. While SQL
// does not commit no process can say that it is there.
func (e *Engine) halts(ctx context.Context, accepted int64) ([]Block, error) {
	if b, down := e.sqlHalt(ctx); down {
		return []Block{b}, nil
	}
	b, halted, err := e.workerHalt(ctx, accepted)
	if err != nil || !halted {
		return nil, err
	}
	return []Block{b}, nil
}

// indexHalt says what keeps the index from giving anything, after it was asked with that error: it does not
// answer, or it is being rebuilt. absent: it does not hold what it was asked for.
func (e *Engine) indexHalt(ctx context.Context, err error, absent bool) (Block, bool, error) {
	lost := errors.Is(err, schedule.ErrLost) || errors.Is(err, schedule.ErrRebuilding)
	if err != nil && !lost {
		return e.unansweredHalt(), true, nil
	}
	r, err := e.rebuilding(ctx)
	switch {
	case err != nil:
		return Block{}, false, err
	case !lost && r.since == 0:
		return Block{}, false, nil
	case !lost && !absent && !e.keeper.isClosed(ctx):
		return Block{}, false, nil // it is in the part that is filled
	}
	return e.rebuildHalt(ctx, r), true, nil
}

// askIndex asks the index where callbacks and how lanes are. An index that is known not to answer is not
// waited for again.
func (e *Engine) askIndex(
	ctx context.Context, refs []schedule.Ref, lanes []int64,
) (positions []schedule.Position, states []schedule.LaneState, err error) {
	if e.trouble.indexSilent() {
		return nil, nil, errIndexSilent
	}
	ctx, cancel := context.WithTimeout(ctx, e.trouble.indexTime())
	defer cancel()
	if positions, err = e.o.Schedule.Lookup(ctx, refs); err == nil {
		states, err = e.o.Schedule.LaneStates(ctx, lanes)
	}
	if err != nil {
		e.trouble.indexFailed("lookup", err)
		return nil, nil, err
	}
	return positions, states, nil
}

// errIndexSilent: only the probe asks the index for now.
var errIndexSilent = errors.New("the index does not answer")

// isEndless says whether the block has no known end.
func (b *Block) isEndless() bool {
	switch b.Code {
	case BlockSQLDown, BlockNoWorker, BlockSendingHeld, BlockIndexUnanswered, BlockIndexRebuilding,
		BlockEndpointOff, BlockOrder:
		return true
	}
	return b.Until == store.Forever
}
