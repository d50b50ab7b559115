package dispatch

import (
	"context"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The interfaces below are what the engine needs of others. They are small and stand here, with their consumer;
// sqlstore.DB satisfies the first group, redisq.Index and memq.Index the second.

// Rows is the hot path in SQL: durable before it returns, group-committed.
type Rows interface {
	// Accept commits the drafts in one transaction and answers each in its place. Its error is ErrUnavailable or the
	// context's: then none was accepted. The drafts must not be changed afterwards.
	Accept(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error)
	// PlanEvent writes down what an event with an idempotency key becomes, and returns what stands then, and whether it did before:
	// ErrIdempotencyMismatch.
	PlanEvent(ctx context.Context, p store.EventPlan) (plan store.EventPlan, known bool, err error)
	// Stamp claims rows for a batch. Every claim is either among the stamped or among the refusals.
	Stamp(ctx context.Context, s store.Stamp) ([]*store.Stamped, []store.Refusal, error)
	// Commit records results, each by compare-and-set on its fence, and answers each in its place.
	Commit(ctx context.Context, results []store.Result, now int64) ([]store.Committed, error)
}

// Changes is what people and their programs change, each in one audited transaction, scoped by project.
type Changes interface {
	// Cancel cancels by id; an unknown id is ErrNotFound.
	Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error)
	// CancelRef cancels the open ones of a reference, at most limit, optionally of one topic.
	CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64, by store.Actor) ([]store.CanceledCallback, error)
	// Retry makes a callback due now: ErrNotFound, ErrAttempting, ErrPayloadPurged.
	Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error)
	// Reschedule moves one that is scheduled, or revives one that is dead with one more attempt at due (as Retry, Once):
	// ErrNotFound, ErrAttempting, ErrTerminal (succeeded or canceled), ErrPayloadPurged.
	Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback, error)
	// Mend changes one that is scheduled or dead, under its lock; an error of change is returned, and nothing is changed. ErrNotFound,
	// ErrAttempting, ErrTerminal (succeeded or canceled), ErrPayloadPurged.
	Mend(ctx context.Context, project, id string, change func(*store.Callback) error, now int64, by store.Actor) (store.Callback, error)
	// AppendAudit records a mutation that has no row of its own.
	AppendAudit(ctx context.Context, e store.AuditEntry) error
}

// History is what was accepted and attempted before.
type History interface {
	// Get returns a callback of the project; store.ErrNotFound.
	Get(ctx context.Context, project, id string) (store.Callback, error)
	// Attempts returns at most limit of a callback's attempts, those with the highest numbers below before,
	// newest first; before zero: from the last one on.
	Attempts(ctx context.Context, project, id string, before, limit int) ([]store.Attempt, error)
	// Payload returns a callback's body; store.ErrNotFound, store.ErrPayloadPurged.
	Payload(ctx context.Context, project, id string) (store.Payload, error)
	// NextStrict returns the first open callback in strict order of a lock key; nil: there is none.
	NextStrict(ctx context.Context, project, lockKey string) (*store.OpenRow, error)
	// LockHolder returns the callback of a lock key that is being attempted at now, and when it was claimed;
	// empty where no holder is known.
	LockHolder(ctx context.Context, project, lockKey string, now int64) (id string, since int64, err error)
	// Attempted is when the callback was last claimed, and when its last attempt ended; zero: never.
	Attempted(ctx context.Context, project, id string) (claimedAt, endedAt int64, err error)
}

// Walks reads the open rows for sweep, rebuild and verify. Pages are in order of (due_at, id), at most limit long.
type Walks interface {
	// Overdue returns rows after the cursor that are scheduled, due before dueBefore, and have no claim that is alive at
	// claimedBefore or later (both in Unix milliseconds).
	Overdue(ctx context.Context, after store.Cursor, dueBefore, claimedBefore int64, limit int) ([]store.OpenRow, error)
	// Open returns open rows after the cursor, whatever their due time.
	Open(ctx context.Context, after store.Cursor, limit int) ([]store.OpenRow, error)
	// Claimed returns the rows whose claim is alive at now, in order of (due_at, id).
	Claimed(ctx context.Context, after store.Cursor, now int64, limit int) ([]store.OpenRow, error)
	// ByID returns those of the ids that are open.
	ByID(ctx context.Context, ids []string) ([]store.OpenRow, error)
	// Known returns those of the ids that there is a row of, whatever its state.
	Known(ctx context.Context, ids []string) ([]string, error)
	// Expire ends up to limit open, unclaimed rows whose expiry has passed as Dead, Expired, and returns their refs.
	Expire(ctx context.Context, now int64, limit int) ([]store.OpenRow, error)
	// DropClaims makes every claim end at once. Only the sole owner of an embedded index may call it, at start.
	DropClaims(ctx context.Context, now int64) (int, error)
}

// Metas keeps the one row that says what the index must be.
type Metas interface {
	// IndexMeta returns the index's row; it is made with want's values if it is missing.
	IndexMeta(ctx context.Context, want store.IndexMeta) (store.IndexMeta, error)
	// NextGeneration adds one to the generation at now if it is still from, and returns what it is then. That
	// by asked for it is audited; nil: the index was lost.
	NextGeneration(ctx context.Context, from, now int64, by *store.Actor) (int64, error)
	// MarkBuilt notes that the generation was filled to the end, and when.
	MarkBuilt(ctx context.Context, generation, now int64) error
}

// Upkeep is what maintenance functions need: leases between processes, the sweep's cursor, purge, counters.
type Upkeep interface {
	// TryLease takes or renews the named lease for holder until now+ttl, and says whether it is held.
	TryLease(ctx context.Context, name, holder string, now int64, ttl time.Duration) (bool, error)
	// SweepCursor and SetSweepCursor keep the sweep's place.
	SweepCursor(ctx context.Context) (store.Cursor, error)
	SetSweepCursor(ctx context.Context, c store.Cursor) error
	// AdvanceMarks keeps the walks from reading what has ended long ago. With full it begins at the first
	// row.
	AdvanceMarks(ctx context.Context, now int64, full bool) error
	// Purge removes, in transactions of bounded size, payloads of terminal callbacks, and whole callbacks
	// with all that is theirs, as the retention says.
	Purge(ctx context.Context, r store.Retention, limit int) (store.Purged, error)
	// PurgeKeys removes idempotency keys that have ended. PurgeVersions forgets the versions of references
	// that nothing was accepted for since before. Each looks at up to limit rows and says whether there may
	// be more.
	PurgeKeys(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
	PurgeVersions(ctx context.Context, now, before int64, limit int) (removed int, more bool, err error)
	// Overstays returns since when the oldest row of each kind should be gone, in Unix milliseconds, by the
	// kinds of the metric dispatcher_purged_total. Kinds of which none should be are left out.
	Overstays(ctx context.Context, r store.Retention) (map[string]int64, error)
	// Fold adds up counter deltas.
	Fold(ctx context.Context, now int64) error
}

// LaneRows reads lanes and their settings.
type LaneRows interface {
	// Lanes returns those with a version above since, at most limit, by version.
	Lanes(ctx context.Context, since int64, limit int) ([]store.Lane, error)
	// LaneByKey is store.ErrNotFound for a lane that nothing was ever accepted for.
	LaneByKey(ctx context.Context, project, key string) (store.Lane, error)
}

// Secrets keeps signing secrets, as ciphertext.
type Secrets interface {
	// OwnedSecrets returns what an endpoint, or with an empty owner the project itself, has of each use, newest first: the present
	// ones and those that still sign beside them at now.
	OwnedSecrets(ctx context.Context, project, owner string, now int64) ([]store.Secret, error)
	// AddSecret stores a new present secret and retires the present one of its owner and use, if any, at retireAt. With onlyIfNone it
	// does nothing if there is one already (several processes may start at once).
	AddSecret(ctx context.Context, s store.Secret, retireAt int64, onlyIfNone bool, by store.Actor) error
}

// Prober says whether SQL can commit.
type Prober interface {
	// Ping commits something and returns nil, or says why it could not.
	Ping(ctx context.Context) error
}

// Queue is the index's hot path. Every method is bounded by schedule.MaxBatch elements a call.
type Queue interface {
	// Shards is how many there are; it never changes. Claim takes one of 0..Shards-1; the rest find theirs by lane.
	Shards() int
	// Ensure adds what is absent to the delay set, and changes nothing that is present. It answers each item in its place
	// with where it was before the call (Absent: it was added now).
	Ensure(ctx context.Context, items []schedule.Item) ([]schedule.Position, error)
	Claim(ctx context.Context, shard int, req schedule.ClaimRequest) (schedule.Claimed, error)
	Settle(ctx context.Context, settlements []schedule.Settlement) ([]schedule.Settled, error)
	// Extend lengthens leases and says of each whether it is still held.
	Extend(ctx context.Context, extensions []schedule.Extension) ([]bool, error)
	// Cancel removes what is delayed or ready, and answers each with where it was before; a lease is left to its holder.
	Cancel(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	Move(ctx context.Context, movements []schedule.Movement) ([]schedule.Moved, error)
}

// Locks are on business keys. They guard the wire: taken after the claim, released when the attempt ends.
type Locks interface {
	Acquire(ctx context.Context, requests []schedule.LockRequest) ([]schedule.LockReply, error)
	Release(ctx context.Context, unlocks []schedule.Unlock) ([]schedule.Waiter, error)
}

// Index is what rebuild, sweep, verify and the settings of lanes need.
type Index interface {
	// Reset empties the shard, gives it the generation and closes it for claims. Ensure, Adopt and SetLanes work at once.
	Reset(ctx context.Context, shard int, generation int64) error
	// Adopt puts running attempts into a shard as leased, and their lock, if any, as held.
	Adopt(ctx context.Context, adoptions []schedule.Adoption) error
	// Open lets claims in again.
	Open(ctx context.Context, shard int) error
	SetLanes(ctx context.Context, settings []schedule.LaneSetting) error
	// Audit checks and mends about 200 records from the cursor; the empty one is the beginning.
	Audit(ctx context.Context, shard int, cursor string) (schedule.AuditPage, error)
	// Scan lists what a shard holds, about limit items a page.
	Scan(ctx context.Context, shard int, cursor string, limit int) (schedule.ScanPage, error)
	Stats(ctx context.Context, shard int) (schedule.Stats, error)
}

// Lookup says where items are and how lanes stand, and changes nothing.
type Lookup interface {
	Lookup(ctx context.Context, refs []schedule.Ref) ([]schedule.Position, error)
	LaneStates(ctx context.Context, lanes []int64) ([]schedule.LaneState, error)
}

// Generation is how a process tells its index which generation SQL says is the right one. With another one in the
// index every operation returns schedule.ErrLost.
type Generation interface {
	SetGeneration(generation int64)
	// Generation reads what the shard has; zero: none. Of what another build has written it is schedule.ErrOlder or schedule.ErrNewer.
	Generation(ctx context.Context, shard int) (int64, error)
}

// Hints wakes claimers early. A hint may be lost at any time: the claimer re-polls.
type Hints interface {
	// Hints carries the number of a shard whose head has become earlier than its last reply announced. It is one channel,
	// always the same one, never closed.
	Hints() <-chan int
	// Run keeps the subscription until the context ends, and returns when all its goroutines have ended.
	Run(ctx context.Context) error
}
