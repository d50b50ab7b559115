package index

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Store is what this package needs of SQL. sqlstore.DB satisfies it.
type Store interface {
	// CancelDeleted cancels up to limit open callbacks of deleted endpoints, and returns those that were.
	CancelDeleted(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	// OpenUntil returns open rows after the cursor that are due at until or before, in order of (due_at, id),
	// at most limit. It sees what was committed before it was called.
	OpenUntil(ctx context.Context, after store.Cursor, until int64, limit int) ([]store.OpenRow, error)
	// NextStrict returns the first open callback in strict order of a lock key; nil: there is none.
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
	// Overdue returns rows after the cursor that are scheduled, due before dueBefore, and have no claim that
	// is alive at claimedBefore or later (both in Unix milliseconds).
	Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64,
		limit int) ([]store.OpenRow, error)
	// Open returns open rows after the cursor, whatever their due time.
	Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error)
	// Claimed returns the rows whose claim is alive at now, in order of (due_at, id).
	Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error)
	// ByID returns those of the ids that are open.
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	// Known returns those of the ids that there is a row of, whatever its state.
	Known(ctx context.Context, ids []string) ([]string, error)
	// Expire ends up to limit open, unclaimed rows whose expiry has passed as Dead, Expired, and returns
	// their refs.
	Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	// DropClaims makes every claim end at once. Only the sole owner of an embedded index may call it, at
	// start.
	DropClaims(ctx context.Context, now int64) (int, error)
	// IndexMeta returns the index's row; it is made with want's values if it is missing.
	IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error)
	// NextGeneration adds one to the generation at now if it is still from, and returns what it is then. That
	// by asked for it is audited; nil: the index was lost.
	NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error)
	// MarkBuilt notes that the generation was filled to the end, and when.
	MarkBuilt(ctx context.Context, generation, now int64) error
	// TryLease takes or renews the named lease for holder until now+ttl, and says whether it is held.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
	// SweepCursor and SetSweepCursor keep the sweep's place.
	SweepCursor(ctx context.Context) (store.Cursor, error)
	SetSweepCursor(ctx context.Context, c store.Cursor) error
	// AdvanceMarks keeps the walks from reading what has ended long ago. With full it begins at the first
	// row.
	AdvanceMarks(ctx context.Context, now int64, full bool) error
	// Lanes returns those with a version above since, at most limit, by version.
	Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error)
	// Ping commits something and returns nil, or says why it could not.
	Ping(ctx context.Context) error
}

// Schedule is what this package needs of the index. redisq.Index and memq.Index satisfy it.
type Schedule interface {
	// Open lets claims in again.
	Open(ctx context.Context, shard int) error
	// ShardOf returns the shard that has the lane.
	ShardOf(lane int64) int
	Watermark(ctx context.Context, shard int) (schedule.Watermark, error)
	// MoveWatermark answers with the request's Token as Loader if it has moved it.
	MoveWatermark(ctx context.Context, shard int, a schedule.Advance) (schedule.Watermark, error)
	// Loaded notes that everything due at until or before was given to the shard, if the watermark was last
	// moved under the token.
	Loaded(ctx context.Context, shard int, token string, until int64) (schedule.Watermark, error)
	// Shards is how many there are; it never changes. Claim takes one of 0..Shards-1; the rest find theirs by
	// lane.
	Shards() int
	// Ensure adds what is absent to the delay set, and changes nothing that is present. It answers each item
	// in its place with where it was before the call (Absent: it was added now).
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error)
	// Cancel removes what is delayed or ready, and answers each with where it was before; a lease is left to
	// its holder.
	Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
	Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error)
	// Reset empties the shard, gives it the generation and closes it for claims. Ensure, Adopt and SetLanes
	// work at once.
	Reset(ctx context.Context, shard int, generation int64) error
	// Adopt puts running attempts into a shard as leased, and their lock, if any, as held.
	Adopt(ctx context.Context, leases []schedule.Lease) error
	SetLanes(ctx context.Context, settings []schedule.LaneSetting) error
	// Audit checks and mends about 200 records from the cursor; the empty one is the beginning.
	Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error)
	// Scan lists what a shard holds, about limit items a page.
	Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error)
	Stats(ctx context.Context, shard int) (schedule.Stats, error)
	Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error)
	SetGeneration(generation int64)
	// Generation reads what the shard has; zero: none. Of what another build has written it is
	// schedule.ErrOlder or schedule.ErrNewer.
	Generation(ctx context.Context, shard int) (int64, error)
	// Hints carries the number of a shard whose head has become earlier than its last reply announced. It is
	// one channel, always the same one, never closed.
	Hints() <-chan int
	// Run keeps the subscription until the context ends, and returns when all its goroutines have ended.
	Run(ctx context.Context) error
}
