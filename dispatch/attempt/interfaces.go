package attempt

import (
	"context"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// Stamp claims rows for a batch. Every claim is either among the stamped or among the refusals.
	Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error)
	// Commit records results, each by compare-and-set on its fence, and answers each in its place.
	Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error)
	// Attempts returns at most limit of a callback's attempts, those with the highest numbers below before,
	// newest first; before zero: from the last one on.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// PollDetail is store.ErrNotFound for what is no poll of the project.
	PollDetail(ctx context.Context, project, id string) (store.PollDetail, error)
}

// Schedule is what this package needs of the index. redisq.Index and memq.Index satisfy it.
type Schedule interface {
	// Shards is how many there are; it never changes. Claim takes one of 0..Shards-1; the rest find theirs by
	// lane.
	Shards() int
	// ShardOf returns the shard that has the lane.
	ShardOf(lane int64) int
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	// Extend lengthens leases and says of each whether it is still held.
	Extend(ctx context.Context, leases []schedule.Lease) ([]bool, error)
	Acquire(ctx context.Context, leases []schedule.Lease) ([]schedule.LockReply, error)
}
