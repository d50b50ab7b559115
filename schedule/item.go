package schedule

import "time"

// MaxBatch is the most elements that one call to an index may carry. Callers split; an index refuses more.
const MaxBatch = 1000

// An Item is all that an index knows of one open callback.
type Item struct {
	// ID is the bare ULID, 26 characters of Crockford base 32.
	ID string
	// Lane is the number that SQL gave the callback's lane; it is above zero. The lane decides the shard.
	Lane int64
	// Due is when it may be attempted, in Unix milliseconds; a claim may have it a lookahead before that. Zero and
	// the past mean now.
	Due int64
	// Lock names the lock it needs while it is attempted: at most 22 characters of [A-Za-z0-9_-], or empty
	// for none. It is carried, not interpreted: locks are taken after the claim (see [Lease]).
	Lock string
	// Retry says that at least one attempt was charged before. Fresh items and retries share a lane 3 to 1.
	Retry bool
	// Forced says that a person wants it attempted now: it goes before what else is ready in its lane, and
	// neither its lane's rate, nor its breaker, nor a hold keeps it; a pause, the lane's concurrency and a
	// lock do.
	Forced bool
}

// Ref returns what finds the item in an index.
func (i Item) Ref() Ref { return Ref{ID: i.ID, Lane: i.Lane} }

// A Ref finds an item: the lane gives the shard, the id the rest.
type Ref struct {
	ID   string
	Lane int64
}

// A Place is where in an index an item is.
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

// named returns the name of a value that is counted from zero on.
func named[T ~int](value T, names ...string) string {
	if value < 0 || int(value) >= len(names) {
		return "unknown"
	}
	return names[value]
}

// A Position is an item's place and due time in the index. Due is zero where Place is Absent.
type Position struct {
	Place Place
	Due   int64
}

// A ClaimRequest asks one shard for due items.
type ClaimRequest struct {
	// Owner is the claiming process: a name that no other process and no earlier start of this one has used.
	Owner string
	// Token becomes the token of every lease of the batch. It is made by the caller, unique, at most 32
	// characters of [A-Za-z0-9_-]. A claim whose reply was lost is repeated with the same token and gets the
	// same batch; a claim with another token ends that possibility.
	Token string
	// Max is the most items to lease, 0 to 256. With 0 the claim only promotes and reaps.
	Max int
	// MaxUncertain is how many of Max may go to lanes that are not Answering; MaxTimingOut, how many to lanes
	// that are TimingOut. They keep slots free for lanes that are known to answer.
	MaxUncertain int
	MaxTimingOut int
	// Lease is how long the batch is held, counted from the reply's Now. It is at least 1 ms.
	Lease time.Duration
	// Lookahead is how long before its due time an item may be leased, in whole milliseconds, 0 to [MaxLookahead]. Its
	// attempt may begin only when it is due: what comes before an attempt is done by then. The reply's Next
	// lies half of it before the due time of the next item, so that a claim finds several.
	Lookahead time.Duration
	// LaneLimit is the concurrency of lanes that have no limit of their own (see [LaneSetting]); at least 1.
	LaneLimit int
	// Ended are leases whose attempts have ended and which are not settled yet, at most [MaxEnded]: from now
	// on they do not count towards the concurrency of their lanes. What is leased under another token, not
	// leased, in a lane whose breaker is open, or of another shard, is left as it is. Naming one again
	// changes nothing. A claim that repeats another may name other leases.
	Ended []EndedLease
	// Prefetch are lanes of which more may be leased than their concurrency has room for, at most
	// [MaxPrefetch], each once. It holds for this claim alone. Lanes of other shards are ignored.
	Prefetch []LanePrefetch
}

const (
	// MaxEnded is the most ended leases that one claim names.
	MaxEnded = 1000
	// MaxPrefetch is the most lanes that one claim prefetches.
	MaxPrefetch = 256
)

// A LeaseRef finds a lease. The zero value is none.
type LeaseRef struct {
	Ref
	Token string
}

// An EndedLease names a lease whose attempt has ended: it got an answer that asks for no hold.
type EndedLease struct {
	LeaseRef
	// Next is a lease of the same lane that counts from now on: its attempt has begun in the place of the one
	// that has ended.
	Next LeaseRef
}

// A LanePrefetch lets a claim lease up to Max items of a lane beyond what its concurrency has room for, if
// the lane is Answering and has no more in flight than that. Such leases do not count. The attempt of one may
// begin only when it is named as Next, or when another of the lane has ended that still counts.
type LanePrefetch struct {
	Lane int64
	Max  int
}

// MaxLookahead is the longest lookahead of a claim.
const MaxLookahead = 10 * time.Second

// A Lease is one claimed item. With its new end in Until it is also what lengthens it, and an earlier end
// than it has changes nothing; with its Lock it asks for that, or renews it; and a rebuilt index adopts it.
//
// Between Reset and Open a lock is only renewed: one that looks free may be that of a running attempt which
// has yet to be adopted. Adoption puts a running attempt in as leased, and its lock as held: a lock that
// several adopted leases name is held until the last of them has released it or has run out, for all but one
// of them have ended, and nobody can tell which.
type Lease struct {
	Item
	// Token is the claim's.
	Token string
	// Until is when the lease ends by itself, in Unix milliseconds of the index's clock.
	Until int64
	// Diverts counts the diverts since the item was last rescheduled or enqueued.
	Diverts int
	// Health is the lane's at the claim: it says which share of the process's slots the lease was counted to.
	Health Health
	// Prefetched: the lease was prefetched, and does not count. A batch that is given again may say so of one
	// whose attempt was named as ended.
	Prefetched bool
	// Full: the lane has more that is ready, and after this claim no room for it. Naming its ended leases in
	// the next claim makes room. A batch that is given again says so of all its lanes.
	Full bool
}

// A Tick is what every reply of a shard carries.
type Tick struct {
	// Now is the index's clock in Unix milliseconds. Where its server's goes back by at most 5 s it stands
	// still; a larger step is followed.
	Now int64
	// Next is when the shard next has something to do, at the latest: the head of its delay set, the end of a
	// lease, or of what keeps a lane back: its pause, its hold, its breaker, or that it has no token. Zero:
	// nothing is in sight.
	Next int64
	// Seq grows with every write to the shard. A smaller one than was seen before the call was sent means
	// that the shard was rolled back. An index that cannot be rolled back leaves it zero.
	Seq int64
}

// LeaseRef returns what finds the lease in an index.
func (l *Lease) LeaseRef() LeaseRef { return LeaseRef{Ref: l.Ref(), Token: l.Token} }

// A Claimed is the reply to a claim.
type Claimed struct {
	Tick
	Leases []Lease
	// More says that items are left, due or within the claim's lookahead, which the next claim could promote or
	// lease if it had room.
	More bool
	// Waiting says that items are ready which their lanes have no room for, or keep back.
	Waiting bool
	// Reaped is how many expired leases the claim returned to the delay set.
	Reaped int
	// Quarantined is how many records could not be decoded and were set aside.
	Quarantined int
}

// An Outcome is how a claimed item ends.
type Outcome int

// The outcomes. The zero value is not valid.
const (
	_ Outcome = iota
	// Ack removes an item that is terminal by success or by request.
	Ack
	// Reschedule puts it into the delay set at Due and clears its diverts.
	Reschedule
	// Divert puts it into the delay set at Due and counts one divert. It charges nothing: with NoSignal,
	// which says that no attempt began, its lane gets the token of its rate back.
	Divert
	// Bury removes an item that is dead.
	Bury
)

// String returns the outcome as it is counted.
func (o Outcome) String() string {
	return named(o, "none", "acked", "rescheduled", "diverted", "buried")
}

// A Settlement ends a lease.
type Settlement struct {
	// Item is as claimed, but with Due and Retry as they shall be from now on (Reschedule, Divert).
	Item
	// Token is the lease's.
	Token   string
	Outcome Outcome
	Signal  Signal
	// Won says that the caller's result won SQL's fence, so that the settlement is true whatever the index
	// thinks: an item that is absent, delayed or ready is put where the settlement says. An item that is
	// leased under another token is left alone: its holder will be refused by SQL and park it.
	Won bool
	// HoldUntil keeps the item's lane from being claimed until then, in Unix milliseconds. It only ever
	// lengthens a hold. Zero: no hold.
	HoldUntil int64
	// Next is as in [EndedLease]. It counts whatever becomes of the settlement.
	Next LeaseRef
}

// A Settled is what became of one settlement.
type Settled int

// The replies to a settlement. The zero value is not valid.
const (
	_ Settled = iota
	// Applied: the index is as the settlement says.
	Applied
	// Stale: the item is leased under another token, or was not leased and Won was false; nothing changed.
	Stale
	// Gone: the item is not in the index and Won was false; nothing changed.
	Gone
)

// A Movement gives an item another due time.
type Movement struct {
	Ref
	Due int64
	// Forced makes the item so (see [Item]); without it an item stays as it is.
	Forced bool
}

// A Moved is what became of one movement.
type Moved int

// The replies to a movement. The zero value is not valid.
const (
	_ Moved = iota
	// MovedIt: the item was delayed or ready and is now due at the new time.
	MovedIt
	// MovedGone: the item is not in the index.
	MovedGone
	// MovedBlocked: the item is leased, or its lane keeps it back: it is paused, or, unless the item is forced,
	// it is held, its breaker is open, or its next token is further away than [KeepForWaiter]. A leased item
	// remembers the movement: when its lease is settled or reaped it is due at the earlier of the two times,
	// and forced if the movement said so, even after an Ack or a Bury (SQL's stamp then decides). In a lane
	// that keeps it back the item is moved all the same.
	MovedBlocked
)

// A LockReply says whether the lock was taken. Where it was not, the item has joined, or kept its place in,
// the lock's queue of waiters, and HeldUntil is when the present holder's lock would end by itself.
type LockReply struct {
	Acquired  bool
	HeldUntil int64
}

// An Unlock releases a lock and asks for the next waiter. Releasing a lock that is not held under ID and
// Token releases nothing but still answers with a waiter if the lock is free.
type Unlock struct {
	Lock  string
	ID    string
	Token string
	// Gone are waiters that no longer exist: they leave the queue. Skip are waiters that exist but cannot run
	// now: they keep their place, and are not answered.
	Gone []string
	Skip []string
}

// A Waiter is the first in a lock's queue. For 200 ms from the reply the lock is kept for it; an empty ID
// means that nobody waits.
type Waiter struct {
	ID   string
	Lane int64
}

// KeepForWaiter is how long a released lock is kept for the waiter that was named: newcomers are refused
// meanwhile.
const KeepForWaiter = 200 * time.Millisecond

// MaxNextHolders is how many adopted attempts an index tells apart behind the one that has their lock. Beyond that
// a lock is held until the last of all of them would have ended, whoever releases it.
const MaxNextHolders = 16

// A Found is one item met by a scan or an audit.
type Found struct {
	Item
	Place Place
}

// A ScanPage is a part of an index, for comparing it with SQL. An item that moves while it is scanned may be
// met twice, and one that is there from the first page to the last is met at least once.
type ScanPage struct {
	Found []Found
	// Next continues the scan; empty: that was the last page.
	Next string
}

// An AuditPage is the result of checking, and mending, a part of a shard: each record against the three
// places, and each lane's in-flight count against its leases.
type AuditPage struct {
	Checked, Repaired int
	Next              string
}

// Stats are sizes of one shard; no scan is needed for them.
type Stats struct {
	Tick
	Delayed, Ready, Leased int64
	// RunnableLanes have something ready and room for it; BlockedLanes have something ready, and wait for a
	// time to come: that a pause or a hold ends, a token is there, or a breaker lets a probe pass.
	// OpenBreakers are lanes whose breaker is open.
	RunnableLanes, BlockedLanes, OpenBreakers int64
	Locks, Waiters                            int64
	Quarantined                               int64
	// HeadDue is the earliest due time in the delay set; zero when it is empty.
	HeadDue int64
	// Counters since the shard was built: claimed, acked, rescheduled, diverted, buried, reaped, stale.
	Counters map[string]int64
}
