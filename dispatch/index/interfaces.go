package index

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is the part of SQL that this package uses. sqlstore.DB implements it. Times are in Unix milliseconds.
type Store interface {
	// CancelDeleted cancels up to limit open callbacks of deleted endpoints, and returns them.
	CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	// OpenUntil returns open rows after the cursor that are due at until or before, at most limit, in order
	// of (due_at, id). It sees what was committed before the call.
	OpenUntil(ctx context.Context, after store.Cursor, until int64, limit int) ([]store.OpenRow, error)
	// NextStrict returns the first open callback in strict order of a lock key; nil: there is none.
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
	// Overdue returns rows after the cursor that are scheduled, due before dueBefore, and have no claim that
	// lives at claimedBefore or later.
	Overdue(
		ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64, limit int,
	) ([]store.OpenRow, error)
	// Open returns open rows after the cursor, with any due time.
	Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error)
	// Claimed returns the rows whose claim lives at now, in order of (due_at, id).
	Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error)
	// ByID returns the open rows with these ids.
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	// Known returns the ids that have a row, in any state.
	Known(ctx context.Context, ids []string) ([]string, error)
	// Expire ends up to limit open rows without a claim whose expiry has passed, and returns them. Most end
	// as Dead, Expired.
	Expire(ctx context.Context, now int64, limit int) ([]store.EndedRow, error)
	// DropClaims ends every claim at once. Only the process with an embedded index may call it, at its start.
	DropClaims(ctx context.Context, now int64) (int, error)
	// IndexMeta returns the index's row. If it is missing, it is created with want's values.
	IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error)
	// NextGeneration adds one to the generation if it still is from, and returns the generation after that.
	// now is when the new one was made. by is the actor for the audit log; nil: the index was lost.
	NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error)
	// MarkBuilt records that the generation was filled to the end, and when.
	MarkBuilt(ctx context.Context, generation, now int64) error
	// TryLease takes or renews the named lease for holder until now+ttl, and returns whether the holder has
	// it.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
	// SweepCursor and SetSweepCursor keep where the sweep continues.
	SweepCursor(ctx context.Context) (store.Cursor, error)
	SetSweepCursor(ctx context.Context, c store.Cursor) error
	// AdvanceMarks moves the low-water marks, so that walks do not read rows that ended long ago. With full
	// it searches from the first row on.
	AdvanceMarks(ctx context.Context, now int64, full bool) error
	// Lanes returns lanes with a version above since, at most limit, in order of the version.
	Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error)
	// Stop returns the stop of all sending.
	Stop(ctx context.Context) (store.Stop, error)
	// BusyLanes returns lanes with open callbacks and ids above after, at most limit, in order of the id.
	BusyLanes(ctx context.Context, after int64, limit int) ([]store.Lane, error)
	// Ping makes a commit and returns nil, or why it failed.
	Ping(ctx context.Context) error
}

// Schedule is the part of the index that this package uses. redisq.Index and memq.Index implement it.
type Schedule interface {
	// Open opens the shard for claims after Reset.
	Open(ctx context.Context, shard int) error
	// ShardOf returns the lane's shard.
	ShardOf(lane int64) int
	Watermark(ctx context.Context, shard int) (schedule.Watermark, error)
	// MoveWatermark moves the watermark if its Loader is still a.After. If so, the reply has a.Token as
	// Loader.
	MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error)
	// Loaded records that the shard got all rows due at until or before, if its watermark was last moved
	// under the token.
	Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error)
	// Shards returns the number of shards; it never changes. Claim takes a shard from 0 to Shards-1. The
	// calls without a shard find it by the lane.
	Shards() int
	// Ensure adds absent items to the delay set, and changes none that is present. The reply says where each
	// item was before; Absent means that it was added.
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error)
	// Cancel removes delayed and ready items, and returns where each was before. A leased item stays with its
	// holder.
	Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
	Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error)
	// Reset empties the shard, sets its generation, and closes it for claims. Ensure, Adopt and SetLanes work
	// at once.
	Reset(ctx context.Context, shard int, generation int64) error
	// Adopt puts attempts in flight into a shard as leased, with their locks.
	Adopt(ctx context.Context, leases []schedule.Lease) error
	SetLanes(ctx context.Context, settings []schedule.LaneSetting) error
	// Audit checks and repairs about 200 records from the cursor on; the empty cursor is the beginning.
	Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error)
	// Scan lists the items of a shard, about limit a page.
	Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error)
	Stats(ctx context.Context, shard int) (schedule.Stats, error)
	Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error)
	// OpenBreakers returns up to limit lanes of the shard whose breaker is open, those that opened first.
	OpenBreakers(ctx context.Context, shard, limit int) ([]int64, error)
	SetGeneration(generation int64)
	// Generation returns the shard's generation; zero: it has none. If another build wrote the shard, the
	// error is schedule.ErrOlder or schedule.ErrNewer.
	Generation(ctx context.Context, shard int) (int64, error)
	// Hints returns the channel of hints: numbers of shards whose next event is earlier than their last reply
	// announced. It is always the same channel, and never closed. Hints may be lost.
	Hints() <-chan int
	// Run keeps the subscription to hints until the context ends, and returns when all its goroutines have
	// ended.
	Run(ctx context.Context) error
}
