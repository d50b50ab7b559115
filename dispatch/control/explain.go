package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Block is one thing that keeps a callback, or a lane, from being sent. Times are Unix milliseconds.
type Block struct {
	Code string
	// Since is since when the thing stands; beside each code is what that is. Zero: not known, as of a hold
	// that a process of an older build has noted. Until is when it ends by itself; zero: that is not known,
	// or never.
	Since, Until int64
	// Detail says what it is, Cure what can be done about it; both for people.
	Detail, Cure string
}

// The codes of what keeps a callback, in the order in which they are listed: what stops everything, what
// people have stopped, what the callback waits for, what its lane and its lock do.
const (
	// BlockAttempting: since it was claimed.
	BlockAttempting = "attempting"
	// BlockSQLDown: since the first commit, or probe, that failed in this process.
	BlockSQLDown = "sql_down"
	// BlockNoWorker: since a process with workers was last seen; where there never was one, since the
	// callback was accepted.
	BlockNoWorker = "no_worker"
	// BlockSendingHeld: since the last of the processes with workers was started, all of them with --hold.
	BlockSendingHeld = "sending_held"
	// BlockIndexUnanswered: since the first call to the index that failed in this process.
	BlockIndexUnanswered = "index_unanswered"
	// BlockIndexRebuilding: since the rebuild began; before it has, since this process found the index lost.
	BlockIndexRebuilding = "index_rebuilding"
	// BlockProjectPaused, BlockEndpointPaused, BlockLanePaused: since it was paused; one that is paused anew
	// before its pause has ended is paused since the first time.
	BlockProjectPaused  = "project_paused"
	BlockEndpointPaused = "endpoint_paused"
	BlockLanePaused     = "lane_paused"
	// BlockEndpointOff, BlockEndpointDeleted: since that was done.
	BlockEndpointOff     = "endpoint_disabled"
	BlockEndpointDeleted = "endpoint_deleted"
	// BlockNotDue: since its last attempt ended; without one, since it was accepted.
	BlockNotDue = "not_due"
	// BlockOrder: since it was accepted; the callback that it waits for was accepted before it.
	BlockOrder = "order"
	// BlockBreakerOpen: since the breaker opened. BlockRetryAfter: since the lane is held without a gap.
	BlockBreakerOpen = "breaker_open"
	BlockRetryAfter  = "retry_after"
	// BlockRate, BlockConcurrency: since the callback is due; of a lane, since its oldest open callback is.
	BlockRate        = "rate_limited"
	BlockConcurrency = "concurrency"
	// BlockLock: since the callback that has the lock was claimed; where that is not known, since this one is
	// due.
	BlockLock = "lock_held"
	// BlockIndexMissing: since it is due, or was last changed, if that was later.
	BlockIndexMissing = "index_missing"
)

// BlockCodes are all codes, in their order.
var BlockCodes = []string{
	BlockAttempting, BlockSQLDown, BlockNoWorker, BlockSendingHeld, BlockIndexUnanswered,
	BlockIndexRebuilding, BlockProjectPaused, BlockEndpointPaused, BlockLanePaused, BlockEndpointOff,
	BlockEndpointDeleted, BlockNotDue, BlockOrder, BlockBreakerOpen, BlockRetryAfter, BlockRate,
	BlockConcurrency, BlockLock, BlockIndexMissing,
}

// An Explanation says why a callback has not been sent yet.
type Explanation struct {
	// Summary is one sentence.
	Summary string
	// NextAt is when the next attempt is made at the earliest, as far as that is known; zero: it is not, or
	// there is none.
	NextAt   int64
	Blocking []Block
}

// A standing is what an explanation is made from.
type standing struct {
	c        store.Callback
	endpoint *store.Endpoint
	lane     store.Lane
	// halts are what keeps every callback.
	halts []Block
	// claimedAt is when it was last claimed, endedAt when its last attempt ended; zero: never.
	claimedAt, endedAt int64
	// behind is the bare id of the callback that must be terminal first; empty: there is none.
	behind string
	// holder is the bare id of the callback that has its lock, if another is known to, since holderSince.
	holder      string
	holderSince int64
	position    schedule.Position
	state       schedule.LaneState
	// mute: the index says nothing of it.
	mute bool
	now  int64
}

// Explain says why a callback of the project has not been sent yet. It is store.ErrNotFound for one that does
// not exist.
func (ct *Controller) Explain(ctx context.Context, project, id string) (Explanation, error) {
	c, err := ct.o.Store.Get(ctx, project, id)
	if err != nil {
		return Explanation{}, fmt.Errorf("explain %s: %w", id, err)
	}
	s := standing{c: c, now: ct.clock.Now()}
	if c.State.Terminal() {
		return s.over(), nil
	}
	for _, read := range []func(context.Context, *standing) error{
		ct.readSettings, ct.readNeighbours, ct.readIndex,
	} {
		if err := read(ctx, &s); err != nil {
			return Explanation{}, fmt.Errorf("explain %s: %w", id, err)
		}
	}
	return s.explain(), nil
}

// readSettings reads what people have set for it.
func (ct *Controller) readSettings(ctx context.Context, s *standing) (err error) {
	if s.c.EndpointID != "" {
		s.endpoint, err = ct.accept.Catalog.Endpoint(ctx, s.c.EndpointID)
		if err != nil &&
			!errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	s.lane, err = ct.o.Store.LaneByKey(ctx, s.c.Project, s.c.Lane)
	if err != nil &&
		!errors.Is(err, store.ErrNotFound) {
		return err
	}
	return nil
}

// readNeighbours reads what came before it: its last attempt, those of its lock key.
func (ct *Controller) readNeighbours(ctx context.Context, s *standing) (err error) {
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
			s.behind = first.ID
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

// readIndex asks the index where the callback and its lane are, and reads what keeps every callback.
func (ct *Controller) readIndex(ctx context.Context, s *standing) (err error) {
	refs, lanes := []schedule.Ref{{ID: s.c.ID, Lane: s.c.LaneID}}, []int64{s.c.LaneID}
	positions, states, asked := ct.index.AskIndex(ctx, refs, lanes)
	s.mute = asked != nil
	if !s.mute {
		s.position, s.state = positions[0], states[0]
	}
	s.halts, err = ct.halts(ctx, s.c.CreatedAt, asked, s.position.Place == schedule.Absent)
	return err
}

func at(ms int64) string { return "at " + time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z") }
