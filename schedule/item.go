package schedule

import "time"

// MaxBatch is the most elements that one call to an index may carry. The callers split longer lists; an index
// answers ErrTooMany.
const MaxBatch = 1000

// An Item is everything that an index knows about one open callback.
type Item struct {
	// ID is the bare ULID, 26 characters of Crockford base 32.
	ID string
	// Lane is the number of the callback's lane in SQL, above zero. The lane determines the shard.
	Lane int64
	// Due is when it may be attempted, in Unix milliseconds. A claim may lease it [ClaimRequest].Lookahead
	// earlier. Zero means now.
	Due int64
	// Lock names the lock that the attempt needs: at most [MaxLock] characters of [A-Za-z0-9_-]; empty: no
	// lock. A claim ignores it. The claimer takes the lock after the claim (see [Lease]).
	Lock string
	// Retry says that at least one attempt was charged before. A lane serves [FreshShare] fresh items for
	// each retry.
	Retry bool
	// Forced says that a person wants the attempt now. The item goes before all other ready items of its
	// lane, and the lane's rate, breaker and hold do not apply. The lane's pause and concurrency and the
	// item's lock do.
	Forced bool
}

// Ref returns the reference by which an index finds the item.
func (i Item) Ref() Ref { return Ref{ID: i.ID, Lane: i.Lane} }

// A Ref finds an item: the lane determines the shard, and the id finds the item in it.
type Ref struct {
	ID   string
	Lane int64
}

// A Place is the structure of an index that holds an item.
type Place int

// The places of an item. The zero value is Absent.
const (
	Absent Place = iota
	Delayed
	Ready
	Leased
)

// String returns the place in lower case.
func (p Place) String() string { return named(p, "absent", "delayed", "ready", "leased") }

// named returns the name of a value of an enumeration that starts at zero, or "unknown".
func named[T ~int](value T, names ...string) string {
	if value < 0 || int(value) >= len(names) {
		return "unknown"
	}
	return names[value]
}

// A Position is an item's place and due time in the index. Due is zero if Place is Absent.
type Position struct {
	Place Place
	Due   int64
}

// A ClaimRequest asks one shard for items to attempt.
type ClaimRequest struct {
	// Owner is the claiming process. No other process, and no earlier start of this one, has used this name.
	Owner string
	// Token becomes the token of every lease of the batch. The caller makes it: unique, at most 32 characters
	// of [A-Za-z0-9_-]. If the reply was lost, the caller repeats the claim with the same token and gets the
	// same batch. That works until the owner claims with another token.
	Token string
	// Max is the most items to lease, 0 to [MaxClaim]. With 0 the claim only promotes and reaps.
	Max int
	// MaxUncertain is how many of Max may go to lanes that are not Answering. MaxTimingOut is how many may go
	// to lanes that are TimingOut. They keep slots free for lanes that answer.
	MaxUncertain int
	MaxTimingOut int
	// Lease is the duration of the leases, from the reply's Now on; at least 1 ms. If the process dies, its
	// leases run out, and a later claim returns the items to the delay set.
	Lease time.Duration
	// Lookahead is how long before its due time an item may be leased, in whole milliseconds, 0 to
	// [MaxLookahead]. The process prepares the attempt in this time. The attempt must not begin before the
	// due time. The reply's Next is half the Lookahead before the next item's due time, so that one claim
	// finds several items.
	Lookahead time.Duration
	// LaneLimit is the concurrency limit of lanes without a limit of their own (see [LaneSetting]); at least
	// 1.
	LaneLimit int
	// Ended are leases whose attempts have ended and that are not settled yet, at most [MaxEnded]. From now
	// on they do not count towards the concurrency of their lanes. The index ignores an element that is
	// leased under another token, that is not leased, that belongs to another shard, or whose lane has an
	// open breaker. Naming a lease twice changes nothing. A claim that repeats another may name other leases.
	Ended []EndedLease
	// Prefetch are the lanes that may lease more than their concurrency, at most [MaxPrefetch], each once. It
	// applies to this claim only. The index ignores lanes of other shards.
	Prefetch []LanePrefetch
}

const (
	// MaxEnded is the most ended leases that one claim names.
	MaxEnded = 1000
	// MaxPrefetch is the most lanes that one claim names in Prefetch.
	MaxPrefetch = 256
)

// A LeaseRef finds a lease. The zero value names no lease.
type LeaseRef struct {
	Ref
	Token string
}

// An EndedLease names a lease whose attempt has ended with an answer that asks for no hold.
type EndedLease struct {
	LeaseRef
	// Next is a prefetched lease of the same lane whose attempt has taken the place of the ended one. It
	// counts from now on. The zero value names no lease.
	Next LeaseRef
}

// A LanePrefetch lets a claim lease up to Max items of a lane beyond its concurrency. It applies if the lane
// is Answering, its breaker is closed, and its leases do not exceed its concurrency. Prefetched leases do not
// count towards the concurrency. The attempt of a prefetched lease may begin only when another counted lease
// of the lane has ended, or when the lease was named as Next.
type LanePrefetch struct {
	Lane int64
	Max  int
}

// MaxLookahead is the longest Lookahead of a claim.
const MaxLookahead = 10 * time.Second

// A Lease is one claimed item. It is also the argument of Extend, with the new end in Until; an end before
// the present one changes nothing. It is the argument of Acquire, which takes or renews the item's Lock, and
// of Adopt, which puts a running attempt into a rebuilt index.
//
// Between Reset and Open, Acquire only renews locks: a lock that looks free may belong to a running attempt
// that is not adopted yet. Adopt leases the item and takes its lock. If several adopted leases name one lock,
// it is held until each of them has released it or has run out: all but one of their attempts have ended, but
// the index cannot tell which one runs (docs/adr/0014).
type Lease struct {
	Item
	// Token is the token of the claim.
	Token string
	// Until is when the lease expires, in Unix milliseconds of the index's clock.
	Until int64
	// Diverts counts the diverts since the item was last rescheduled or enqueued.
	Diverts int
	// Health is the lane's health at the claim. It says which share of the process's slots the lease uses.
	Health Health
	// Prefetched says that the lease does not count towards the lane's concurrency. In a repeated batch it
	// may also be set for a lease that was named as ended.
	Prefetched bool
	// Full says that the lane has more ready items, and after this claim no room for them. Naming its ended
	// leases in the next claim makes room. In a repeated batch it is always set.
	Full bool
	// Cause is that of the last divert.
	Cause DivertCause
}

// A Tick is the head of every reply of a shard.
type Tick struct {
	// Now is the index's clock in Unix milliseconds. If the server's clock goes back by at most [StepBack],
	// Now stands still. It follows a larger step.
	Now int64
	// Next is the latest time by which the shard must be called again. It is the earliest of: the head of the
	// delay set, the end of a lease, and the end of what blocks a lane with ready items (pause, hold,
	// breaker, empty rate). Zero: no event is known.
	Next int64
	// Seq grows with every write to the shard. A value smaller than one seen before the call was sent means
	// that the shard was rolled back. An index that cannot be rolled back leaves it zero.
	Seq int64
}

// LeaseRef returns the reference by which an index finds the lease.
func (l *Lease) LeaseRef() LeaseRef { return LeaseRef{Ref: l.Ref(), Token: l.Token} }

// A Claimed is the reply to a claim.
type Claimed struct {
	Tick
	Leases []Lease
	// More says that due items, or items within the Lookahead, are left that the next claim can promote, or
	// lease if it has room.
	More bool
	// Waiting says that items are ready, but their lanes are full or blocked. It is false if More is true.
	Waiting bool
	// Reaped is how many expired leases the claim returned to the delay set.
	Reaped int
	// Quarantined is how many records the index has set aside because they were missing or unreadable.
	Quarantined int
}

// An Outcome is what a settlement does with a claimed item.
type Outcome int

// The outcomes. The zero value is not valid.
const (
	_ Outcome = iota
	// Ack removes an item that succeeded, or whose callback was canceled or resolved.
	Ack
	// Reschedule puts the item into the delay set at Due and clears its diverts.
	Reschedule
	// Divert puts the item into the delay set at Due and counts one divert. It charges no attempt. With
	// NoSignal, which means that no attempt began, the lane gets the token of its rate back, unless the item
	// is forced and so took none.
	Divert
	// Bury removes an item that is dead.
	Bury
)

// String returns the outcome as the counters of [Stats] name it.
func (o Outcome) String() string {
	return named(o, "none", "acked", "rescheduled", "diverted", "buried")
}

// A DivertCause is why an item was diverted. The index keeps it and gives it no meaning.
type DivertCause byte

// The causes. The zero value is an unknown one.
const (
	// LockConflict: another item has the lock.
	LockConflict DivertCause = 'l'
	// OutOfTurn: in strict order, an earlier item comes first.
	OutOfTurn DivertCause = 'o'
	// NotStamped: SQL did not record the claim.
	NotStamped DivertCause = 's'
)

// String returns the cause as it is stored with attempts. It is empty for an unknown one.
func (c DivertCause) String() string {
	switch c {
	case LockConflict:
		return "lock_conflict"
	case OutOfTurn:
		return "out_of_turn"
	case NotStamped:
		return "not_stamped"
	}
	return ""
}

// A Settlement ends a lease.
type Settlement struct {
	// Item is the claimed item. For Reschedule and Divert, Due and Retry have their new values.
	Item
	// Token is the token of the lease.
	Token   string
	Outcome Outcome
	Signal  Signal
	// Won says that the caller's result won SQL's fence. Then the settlement is true even if the lease is
	// gone: an item that is absent, delayed or ready goes where the settlement says. An item that is leased
	// under another token stays as it is: SQL will refuse the stamp of that lease, and its holder then parks
	// it.
	Won bool
	// Cause is kept with the count of a Divert. Other outcomes clear it.
	Cause DivertCause
	// HoldUntil holds the item's lane until that time, in Unix milliseconds: nothing but forced items is
	// claimed. It never shortens a hold. Zero: no hold.
	HoldUntil int64
	// Next is as in [EndedLease]. It takes effect even if the settlement does not.
	Next LeaseRef
}

// A Settled is the reply to one settlement.
type Settled int

// The replies to a settlement. The zero value is not valid.
const (
	_ Settled = iota
	// Applied: the index now agrees with the settlement.
	Applied
	// Stale: the item is leased under another token, or it is not leased and Won is false. Nothing changed.
	Stale
	// Gone: the item is not in the index and Won is false. Nothing changed.
	Gone
)

// A Movement gives an item another due time.
type Movement struct {
	Ref
	Due int64
	// Forced makes the item forced (see [Item]). False leaves it as it is.
	Forced bool
}

// A Moved is the reply to one movement.
type Moved int

// The replies to a movement. The zero value is not valid.
const (
	_ Moved = iota
	// MovedIt: the item was delayed or ready. It is now due at the new time.
	MovedIt
	// MovedGone: the item is not in the index.
	MovedGone
	// MovedBlocked: the movement takes effect later, for one of two reasons.
	//
	// The item is leased. It remembers the movement: when its lease is settled or reaped, the item is due at
	// the earlier of the two times, and it is forced if the movement said so. That also happens after an Ack
	// or a Bury; SQL's stamp then decides.
	//
	// Or the item has its new due time, but its lane is blocked: it is paused, or, unless the item is forced,
	// it is held, its breaker is open, or its next token is further away than [KeepForWaiter].
	MovedBlocked
)

// A LockReply says whether the item has the lock. If so, HeldUntil is when its time ends. If not, the item
// waits in the lock's queue, and HeldUntil is when the holder's time, or the time for which the lock is kept
// for a waiter, ends; before Open it may be now. An item that waits already keeps its place in the queue.
type LockReply struct {
	Acquired  bool
	HeldUntil int64
}

// An Unlock releases a lock and asks for the next waiter. If ID and Token do not hold the lock, nothing is
// released. The reply still names a waiter if the lock is free. A lock that is not released, because its
// process died, ends at its Until.
type Unlock struct {
	Lock  string
	ID    string
	Token string
	// Gone are waiters that no longer exist. They leave the queue. Skip are waiters that cannot run now. They
	// keep their place, but the reply names none of them.
	Gone []string
	Skip []string
}

// A Waiter is the first item in a lock's queue that may run. The lock is kept for it for [KeepForWaiter]. An
// empty ID means that no such item waits, or that another attempt still has the lock.
type Waiter struct {
	ID   string
	Lane int64
}

// KeepForWaiter is how long a released lock is kept for the waiter that the reply named. All others are
// refused in that time.
const KeepForWaiter = 200 * time.Millisecond

// MaxNextHolders is how many adopted attempts an index can keep apart behind the holder of their lock (see
// [Lease]). If there are more, releases have no effect for the last ones: the lock is held until the end of
// all.
const MaxNextHolders = 16

// A Found is one item of a scan.
type Found struct {
	Item
	Place Place
}

// A ScanPage is a part of an index, to be compared with SQL. A scan returns every item that stays in the
// index from the first page to the last at least once. It may return an item twice if the item moves.
type ScanPage struct {
	Found []Found
	// Next is the cursor of the next page; empty: this was the last page.
	Next string
}

// An AuditPage is the result of checking and repairing a part of a shard: each record against the three
// places, and each lane's count of leases against the leases.
type AuditPage struct {
	Checked, Repaired int
	Next              string
}

// Stats are the sizes of one shard. Reading them needs no scan.
type Stats struct {
	Tick
	Delayed, Ready, Leased int64
	// RunnableLanes have ready items and room for them. BlockedLanes have ready items, and wait until a pause
	// or a hold ends, a token comes, or a breaker lets a probe pass. OpenBreakers are lanes whose breaker is
	// open.
	RunnableLanes, BlockedLanes, OpenBreakers int64
	Locks, Waiters                            int64
	Quarantined                               int64
	// HeadDue is the earliest due time in the delay set; zero when it is empty.
	HeadDue int64
	// Counters since the last Reset: claimed, acked, rescheduled, diverted, buried, reaped, stale.
	Counters map[string]int64
}
