package store

import "time"

// This file holds what the engine asks of a store: accept, stamp, commit, and the walks of sweep and rebuild.
// These work over all projects, because the index knows ids only; everything a caller can reach is scoped by
// project and stands with its noun.

// A Draft is a callback that is to be accepted.
type Draft struct {
	// Callback is complete but for LaneID, which the store finds or makes from Project and Lane.
	Callback Callback
	// Body is the payload's bytes; nil: none. PayloadID is given by the store, unless several drafts share
	// one: then the first has the body, and all have the id.
	Body []byte
	// Supersede: open callbacks of the same project, topic and ref with a lower Version are canceled, and so
	// is this one if there was a higher one before.
	Supersede bool
	// Idempotency is nil when the caller gave no key.
	Idempotency *Idempotency
	// Poll is what a callback of kind poll has beside its row; nil for all others. If its project has an open
	// poll of the same reference and address, the draft becomes that one: it is Replayed.
	Poll *PollDetail
}

// A Retention says what goes: rows that ended or were made before these times, in Unix milliseconds.
type Retention struct {
	// Now is the index's clock.
	Now int64
	// Payloads and Callbacks are about when callbacks ended. A payload goes with its callback at the latest.
	Payloads, Callbacks int64
	// Outcomes is about when they came into the feed.
	Outcomes int64
}

// Purged is how many payloads and callbacks went; More says that there may be others.
type Purged struct {
	Payloads, Callbacks int
	More                bool
}

// IdempotencyAge is how long an idempotency key is kept at least. While its callback is open it stays longer.
const IdempotencyAge = 7 * 24 * time.Hour

// Idempotency is a caller's promise that a request with the same key is the same request.
type Idempotency struct {
	// Route separates the keys of different calls.
	Route string
	Key   string
	// Fingerprint is a hash over everything the request said.
	Fingerprint []byte
}

// An Accepted is what became of a draft.
type Accepted struct {
	// Callback is the draft's, with LaneID, or the first one's when Replayed. If a higher version was there
	// before, it is Canceled, Superseded.
	Callback Callback
	Replayed bool
	// Superseded are open callbacks that have ended by it, as they were: they are in the index still. One
	// that was being attempted is not among them.
	Superseded []OpenRow
	// Err is nil, ErrIdempotencyMismatch, or what was wrong with this row alone; the others were committed.
	Err error
}

// A Stamp claims rows in SQL for one claimed batch, and fetches what an attempt needs.
type Stamp struct {
	// Token is the claim's token in the index.
	Token string
	// Now is the index's clock at the claim; rows due later than Now + Lookahead are refused.
	Now int64
	// Lookahead is how many milliseconds before its due time a row may be claimed. Its attempt must not begin
	// before that.
	Lookahead int64
	// Margin is added to each row's attempt timeout to give ClaimUntil = Now + timeout + Margin, in
	// milliseconds.
	Margin int64
	// QuarantineAfter is with how many claims in a row without a result a row is refused, to be claimed alone; zero:
	// none is.
	QuarantineAfter int
	Claims          []StampClaim
}

// A StampClaim is one row of a stamp.
type StampClaim struct {
	ID string
	// Diverts is added to the row's DivertCount.
	Diverts int
}

// A Stamped is a row that was claimed.
type Stamped struct {
	// Callback has what an attempt and its result need. These fields are zero: Topic, Ref, Labels, Version,
	// LockKey unless it is Strict, PayloadID, PayloadPurged, Reason, LastStatus, CreatedAt, UpdatedAt,
	// FinishedAt, ResumeState and ResumeReason. URL is where a callback that Follows its endpoint goes now.
	Callback
	Body []byte
	// Lost: the claim before ended without a result; its attempt was recorded as crashed with this stamp.
	Lost bool
}

// A Refusal is a row that was not claimed, with what the index should do instead: park it at Due, or drop it.
type Refusal struct {
	ID string
	// Terminal: the row is terminal, or does not exist. Drop it.
	Terminal bool
	// Due is what the index should have as its due time: the row's, or, if that is later, the stamp's
	// Lookahead after the end of the claim that is alive.
	Due int64
	// AttemptCount tells fresh from retry.
	Retry bool
	// Quarantined: it is due and nobody has it, but too many claims in a row ended without a result. Claim it
	// alone.
	Quarantined bool
	// Behind: it is due and nobody has it, but an older open callback of its lock key comes first, for it is
	// strict. Due is its own due time; when to look again is the caller's to say, who hears of the older
	// one's end (Committed.Next, NextStrict).
	Behind bool
	// Corrupt: the row was claimed and cannot be decoded. It has been set aside: it is Dead, Invalid, its
	// bytes untouched.
	Corrupt bool
}

// A Result is how a claimed row goes on. It takes effect only if the row's fence is still Fence.
type Result struct {
	ID    string
	Fence int64
	// Attempt is the row to record; nil where no attempt was made (a hand-back, an expiry).
	Attempt *Attempt
	// State is Scheduled with DueAt, or terminal with Reason. A callback whose cancel was requested, or that
	// was retried once from a terminal state, may end otherwise than asked: see Committed.
	State  State
	Reason Reason
	DueAt  int64
	// Charge adds one to AttemptCount. Diverts is added to DivertCount.
	Charge  bool
	Diverts int
	// FreeRetry is stored for the next attempt.
	FreeRetry bool
	// KeepClaimsWithoutResult leaves the count of claims without result as it is (a panic); any other result resets
	// it.
	KeepClaimsWithoutResult bool
	// Stays: the attempt is charged and does not move the callback on in its ladder. PollErrors is how many
	// polls in a row have ended in an error, this one included.
	Stays      bool
	PollErrors int
	// Stamped is the row as it was claimed, so that it need not be read again; nil where that is not known.
	Stamped *Stamped
}

// A Committed is what became of a result.
type Committed struct {
	// Won is false when the fence had moved on: the attempt was kept as stale and nothing else changed.
	Won bool
	// State and DueAt are the row's from now on, also where the result had no effect.
	State  State
	Reason Reason
	DueAt  int64
	// Number of the attempt row.
	Number int
	// Next is which callback of its lock key is next, if the row was strict and has ended, and there is one:
	// it may be due already.
	Next *OpenRow
	// Err is nil, or why this result alone cannot be committed; the others were.
	Err error
}

// An OpenRow is what sweep and rebuild need of an open callback.
type OpenRow struct {
	ID      string
	Project string
	LaneID  int64
	LockKey string
	// Strict: it waits for those of its LockKey that were accepted before it.
	Strict bool
	DueAt  int64
	// Retry: at least one attempt was charged. Manual: a person wants the next one.
	Retry, Manual bool
	ClaimToken    string
	ClaimUntil    int64
	ExpiresAt     int64
}

// A Cursor is a place in the order of (due_at, id). The zero value is the beginning.
type Cursor struct {
	DueAt int64
	ID    string
}

// IndexMeta is the one row that says what the index must be.
type IndexMeta struct {
	Generation int64
	// Built is the last generation that was filled to the end; less than Generation while a rebuild is under
	// way, or died.
	Built int64
	// BuiltAt is when that was, in Unix milliseconds; zero: never, or before this was kept.
	BuiltAt int64
	// MadeAt is when Generation was made: a rebuild began then. Zero: the database's first, which was never
	// filled.
	MadeAt int64
	Shards int
	Prefix string
}

// An EventPlan is what an event with an idempotency key becomes: it is written down before the event's
// callbacks are accepted, so that a repetition of the request, also after a crash in between, becomes the
// same.
type EventPlan struct {
	// ID is a bare ULID; the payload of its callbacks has it too.
	ID          string
	Project     string
	Idempotency Idempotency
	CreatedAt   int64
	// Targets are in order of their callbacks' ids. There may be none.
	Targets []EventTarget
}

// An EventTarget is an endpoint that an event goes to.
type EventTarget struct {
	EndpointID, CallbackID string
	// Accepted: there is a row of the callback.
	Accepted bool
}
