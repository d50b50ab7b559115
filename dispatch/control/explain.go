package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Other is the bare id of the callback that blocks this one, by its order or its lock. Empty: none, or
	// not known.
	Other string
}

// The codes of blocks, in the order of an explanation: first what stops every callback, then what people have
// stopped, then what the callback waits for, then its lane and its lock.
const (
	// BlockAttempting: since it was claimed.
	BlockAttempting = "attempting"
	// BlockSQLDown: since the first commit, or probe, that failed in this process.
	BlockSQLDown = "sql_down"
	// BlockSendingStopped: since all sending of the installation was stopped.
	BlockSendingStopped = "sending_stopped"
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
	// BlockLock: since the holder of the lock was claimed, until the end of its claim. If the holder is
	// unknown: since this callback is due, until it is tried again.
	BlockLock = "lock_held"
	// BlockIndexMissing: since the callback is due, or since its last change if that was later.
	BlockIndexMissing = "index_missing"
)

// BlockCodes are all codes, in the order of an explanation.
var BlockCodes = []string{
	BlockAttempting, BlockSQLDown, BlockSendingStopped, BlockNoWorker, BlockSendingHeld,
	BlockIndexUnanswered, BlockIndexRebuilding, BlockProjectPaused, BlockEndpointPaused, BlockLanePaused,
	BlockEndpointOff, BlockEndpointDeleted, BlockNotDue, BlockOrder, BlockBreakerOpen, BlockRetryAfter,
	BlockRate, BlockConcurrency, BlockLock, BlockIndexMissing,
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
	// holder is another callback that holds the lock; zero: none is found.
	holder   store.LockHolder
	position schedule.Position
	state    schedule.LaneState
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
	all, err := ct.ExplainAll(ctx, project, []store.Callback{c})
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", id, err)
	}
	return all[0], nil
}

// ExplainAll explains callbacks of the project, which were just read, in their order. It reads what they need
// at once: only callbacks with different lock keys that are due, or in strict order, cost a read each.
func (ct *Controller) ExplainAll(
	ctx context.Context, project string, callbacks []store.Callback,
) ([]Explanation, error) {
	all := make([]Explanation, len(callbacks))
	facts := make([]callbackFacts, len(callbacks))
	var open []*callbackFacts
	now := ct.clock.Now()
	for i := range callbacks {
		facts[i] = callbackFacts{c: callbacks[i], now: now}
		if callbacks[i].State.Terminal() {
			all[i] = facts[i].explainEnded()
		} else {
			open = append(open, &facts[i])
		}
	}
	if len(open) == 0 {
		return all, nil
	}
	for _, read := range []func(context.Context, string, []*callbackFacts) error{
		ct.readEndpoints, ct.readLanes, ct.readTimes, ct.readPredecessors, ct.readIndex,
	} {
		if err := read(ctx, project, open); err != nil {
			return nil, err
		}
	}
	for i := range facts {
		if !callbacks[i].State.Terminal() {
			all[i] = facts[i].explain()
		}
	}
	return all, nil
}

// readEndpoints reads the endpoints, from the catalog's cache. An endpoint may be missing.
func (ct *Controller) readEndpoints(ctx context.Context, _ string, open []*callbackFacts) (err error) {
	for _, s := range open {
		if s.c.EndpointID == "" {
			continue
		}
		s.endpoint, err = ct.accept.Catalog.Endpoint(ctx, s.c.EndpointID)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	return nil
}

// readLanes reads the settings of the lanes. A lane may be missing.
func (ct *Controller) readLanes(ctx context.Context, project string, open []*callbackFacts) error {
	keys := make([]string, len(open))
	for i, s := range open {
		keys[i] = s.c.Lane
	}
	slices.Sort(keys)
	lanes, err := ct.o.Store.LanesByKey(ctx, project, slices.Compact(keys))
	for i := range lanes {
		for _, s := range open {
			if s.c.Lane == lanes[i].Key {
				s.lane = lanes[i]
			}
		}
	}
	return err
}

// readTimes reads when the callbacks were claimed and attempted.
func (ct *Controller) readTimes(ctx context.Context, project string, open []*callbackFacts) error {
	ids := make([]string, len(open))
	for i, s := range open {
		ids[i] = s.c.ID
	}
	times, err := ct.o.Store.AttemptTimes(ctx, project, ids)
	for _, t := range times {
		for _, s := range open {
			if s.c.ID == t.CallbackID {
				s.claimedAt, s.endedAt = t.ClaimedAt, t.EndedAt
			}
		}
	}
	return err
}

// readPredecessors reads the other callbacks of the lock keys. The order matters only to strict callbacks,
// the holder of a lock only to a callback that is due.
func (ct *Controller) readPredecessors(ctx context.Context, project string, open []*callbackFacts) error {
	firsts, holders := make(map[string]string), make(map[string]store.LockHolder)
	for _, s := range open {
		key := s.c.LockKey
		if _, read := firsts[key]; s.c.Strict && !read {
			first, err := ct.o.Store.NextStrict(ctx, project, key)
			if err != nil {
				return err
			}
			firsts[key] = ""
			if first != nil {
				firsts[key] = first.ID
			}
		}
		if _, read := holders[key]; key != "" && s.c.DueAt <= s.now && !read {
			holder, err := ct.o.Store.LockHolder(ctx, project, key, s.now)
			if err != nil {
				return err
			}
			holders[key] = holder
		}
		if first := firsts[key]; s.c.Strict && first != "" && first < s.c.ID {
			s.waitsFor = first
		}
		if holder := holders[key]; key != "" && holder.ID != s.c.ID {
			s.holder = holder
		}
	}
	return nil
}

// readIndex reads the places of the callbacks and the states of their lanes from the index, and then the
// blocks of every callback.
func (ct *Controller) readIndex(ctx context.Context, _ string, open []*callbackFacts) error {
	refs, lanes := make([]schedule.Ref, len(open)), make([]int64, len(open))
	for i, s := range open {
		refs[i], lanes[i] = schedule.Ref{ID: s.c.ID, Lane: s.c.LaneID}, s.c.LaneID
	}
	positions, states, indexErr := ct.index.AskIndex(ctx, refs, lanes)
	global := make(map[bool][]Block, 2) // by whether the index lacks the callback
	for i, s := range open {
		s.indexDown = indexErr != nil
		if !s.indexDown {
			s.position, s.state = positions[i], states[i]
		}
		absent := s.position.Place == schedule.Absent
		if _, read := global[absent]; !read {
			var err error
			global[absent], err = ct.globalBlocks(ctx, indexErr, absent)
			if err != nil {
				return err
			}
		}
		s.global = slices.Clone(global[absent])
		for k := range s.global {
			if b := &s.global[k]; b.Since == 0 {
				b.Since = s.c.CreatedAt // no worker ever ran, see workerBlock
			}
		}
	}
	return nil
}

func at(ms int64) string { return "at " + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
