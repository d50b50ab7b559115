package attempt

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Sender makes the request of one attempt. outbound.Client implements it.
type Sender interface {
	Send(ctx context.Context, r outbound.Request) outbound.Response
}

// An Observer counts the results of attempts. Times are by the index's clock, in Unix milliseconds. Its
// methods must not block.
type Observer interface {
	// Settled gets results and the replies of SQL, each reply in the place of its result.
	Settled(results []store.Result, committed []store.Committed, now int64)
	// Crashed gets a stamped callback whose previous claim ended without a result.
	Crashed(cb *store.Stamped, now int64)
}

// Store is the part of SQL that this package uses. sqlstore.DB implements it.
type Store interface {
	// Stamp claims rows for a batch. Each claim is in the reply, either stamped or refused. After an error
	// the stamp may still have been written.
	Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error)
	// Commit records results. Each takes effect only if the row's fence is still the result's. The reply has
	// one entry per result, in its place.
	Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error)
	// Attempts returns at most limit of a callback's attempts with numbers below before, newest first; before
	// zero: from the last attempt on.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// PollDetail returns store.ErrNotFound if the id is no poll of the project.
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
}

// Schedule is the part of the index that this package uses. redisq.Index and memq.Index implement it.
type Schedule interface {
	// Shards returns the number of shards; it never changes. Claim takes a shard from 0 to Shards-1. The
	// other calls find the shard by the lane.
	Shards() int
	// ShardOf returns the lane's shard.
	ShardOf(lane int64) int
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	// Extend extends leases and returns for each whether it is still leased.
	Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error)
	Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error)
}
