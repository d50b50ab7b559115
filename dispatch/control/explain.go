package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Block is one reason why a callback or a lane is not sent now. Times are Unix milliseconds.
type Block struct {
	Code string
	// Since is when the block began; the comment of each code defines it. Zero: unknown, such as for a
	// Retry-After pause that a process of an older build recorded. Until is when the block ends without
	// action; zero: unknown, or never.
	Since, Until int64
	// Detail describes the block and Cure the action that ends it, both for people.
	Detail, Cure string
}

// The codes of blocks, in the order of an explanation: first what stops every callback, then what people have
// stopped, then what the callback waits for, then its lane and its lock.
const (
	// BlockAttempting: since it was claimed.
	BlockAttempting = "attempting"
	// BlockSQLDown: since the first commit, or probe, that failed in this process.
	BlockSQLDown = "sql_down"
	// BlockNoWorker: since a process with workers was last seen. If none ever ran: since the callback was
	// accepted.
	BlockNoWorker = "no_worker"
	// BlockSendingHeld: since the start of the newest process with workers. All of them run with --hold.
	BlockSendingHeld = "sending_held"
	// BlockIndexUnanswered: since the first call to the index that failed in this process.
	BlockIndexUnanswered = "index_unanswered"
	// BlockIndexRebuilding: since the rebuild began. If none has begun: since this process found the index
	// lost.
	BlockIndexRebuilding = "index_rebuilding"
	// BlockProjectPaused, BlockEndpointPaused, BlockLanePaused: since the pause began. Extending a pause does
	// not change that.
	BlockProjectPaused  = "project_paused"
	BlockEndpointPaused = "endpoint_paused"
	BlockLanePaused     = "lane_paused"
	// BlockEndpointOff, BlockEndpointDeleted: since the endpoint was disabled or deleted.
	BlockEndpointOff     = "endpoint_disabled"
	BlockEndpointDeleted = "endpoint_deleted"
	// BlockNotDue: since the last attempt ended. Without an attempt: since the callback was accepted.
	BlockNotDue = "not_due"
	// BlockOrder: since this callback was accepted. The one that it waits for was accepted earlier.
	BlockOrder = "order"
	// BlockBreakerOpen: since the breaker opened. BlockRetryAfter: since the lane's pause began; pauses that
	// follow each other without a gap count as one.
	BlockBreakerOpen = "breaker_open"
	BlockRetryAfter  = "retry_after"
	// BlockRate, BlockConcurrency: since the callback is due. For a lane: since its oldest open callback is
	// due.
	BlockRate        = "rate_limited"
	BlockConcurrency = "concurrency"
	// BlockLock: since the holder of the lock was claimed. If that is unknown: since this callback is due.
	BlockLock = "lock_held"
	// BlockIndexMissing: since the callback is due, or since its last change if that was later.
	BlockIndexMissing = "index_missing"
)

// BlockCodes are all codes, in the order of an explanation.
var BlockCodes = []string{
	BlockAttempting, BlockSQLDown, BlockNoWorker, BlockSendingHeld, BlockIndexUnanswered,
	BlockIndexRebuilding, BlockProjectPaused, BlockEndpointPaused, BlockLanePaused, BlockEndpointOff,
	BlockEndpointDeleted, BlockNotDue, BlockOrder, BlockBreakerOpen, BlockRetryAfter, BlockRate,
	BlockConcurrency, BlockLock, BlockIndexMissing,
}

// An Explanation says why a callback has not been sent yet. A terminal callback has only a Summary.
type Explanation struct {
	// Summary names the first block, or the end of the callback.
	Summary string
	// NextAt is the earliest time of the next attempt, in Unix milliseconds. Zero: unknown, or no attempt
	// follows.
	NextAt   int64
	Blocking []Block
}

// callbackFacts is what an explanation is made from, read in several calls.
type callbackFacts struct {
	c        store.Callback
	endpoint *store.Endpoint
	lane     store.Lane
	// global are the blocks of every callback.
	global []Block
	// claimedAt is the time of the last claim, endedAt the end of the last attempt; zero: never.
	claimedAt, endedAt int64
	// waitsFor is the bare id of the callback that must be terminal first, by strict order; empty: none.
	waitsFor string
	// holder is the bare id of another callback that holds the lock, and holderSince the time of its claim.
	// Empty if no holder is found.
	holder      string
	holderSince int64
	position    schedule.Position
	state       schedule.LaneState
	// indexDown: the index did not answer, so position and state are zero.
	indexDown bool
	now       int64
}

// Explain says why a callback of the project has not been sent yet. Its error is store.ErrNotFound for an
// unknown callback.
func (ct *Controller) Explain(ctx context.Context, project, id string) (Explanation, error) {
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", id, err)
	}
	s := callbackFacts{c: c, now: ct.clock.Now()}
	if c.State.Terminal() {
		return s.explainEnded(), nil
	}
	for _, read := range []func(context.Context, *callbackFacts) error{
		ct.readSettings, ct.readPredecessors, ct.readIndex,
	} {
		if err := read(ctx, &s); err != nil {
			return Explanation{}, fmt.Errorf("explain %s: %w", id, err)
		}
	}
	return s.explain(), nil
}

// readSettings reads the endpoint and the lane. Either may be missing.
func (ct *Controller) readSettings(ctx context.Context, s *callbackFacts) (err error) {
	if s.c.EndpointID != "" {
		s.endpoint, err = ct.accept.Catalog.Endpoint(ctx, s.c.EndpointID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	s.lane, err = ct.o.Store.LaneByKey(ctx, s.c.Project, s.c.Lane)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// readPredecessors reads the callback's last attempt and the other callbacks of its lock key.
func (ct *Controller) readPredecessors(ctx context.Context, s *callbackFacts) (err error) {
	c := &s.c
	s.claimedAt, s.endedAt, err = ct.o.Store.Attempted(ctx, c.Project, c.ID)
	if err != nil {
		return err
	}
	if c.Strict {
		first, err := ct.o.Store.NextStrict(ctx, c.Project, c.LockKey)
		if err != nil {
			return err
		}
		if first != nil && first.ID < c.ID {
			s.waitsFor = first.ID
		}
	}
	if c.LockKey != "" {
		holder, since, err := ct.o.Store.LockHolder(ctx, c.Project, c.LockKey, s.now)
		if err != nil {
			return err
		}
		if holder != c.ID {
			s.holder, s.holderSince = holder, since
		}
	}
	return nil
}

// readIndex reads the callback's place and the lane's state from the index, and then the blocks of every
// callback.
func (ct *Controller) readIndex(ctx context.Context, s *callbackFacts) (err error) {
	refs, lanes := []schedule.Ref{{ID: s.c.ID, Lane: s.c.LaneID}}, []int64{s.c.LaneID}
	positions, states, indexErr := ct.index.AskIndex(ctx, refs, lanes)
	s.indexDown = indexErr != nil
	if !s.indexDown {
		s.position, s.state = positions[0], states[0]
	}
	s.global, err = ct.globalBlocks(ctx, s.c.CreatedAt, indexErr, s.position.Place == schedule.Absent)
	return err
}

func at(ms int64) string { return "at " + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
