package store

import "time"

// This file has the types of the engine's calls: accept, stamp, commit, sweep and rebuild. These calls work
// over all projects, because the index knows only ids. The calls that users can reach are scoped by project.
// Their types are in files of their own.

// A Draft is a callback to accept.
type Draft struct {
	// Callback is complete except for LaneID, which the store sets from Project and Lane. It creates the lane
	// if necessary.
	Callback Callback
	// Body is the payload. Nil: none. The store sets PayloadID. Drafts that share a payload have the same
	// PayloadID, and only the first of them has the Body.
	Body []byte
	// Supersede cancels the open callbacks of the same project, topic and ref with a lower Version. If there
	// was a higher version before, this callback is accepted as Canceled, Superseded.
	Supersede bool
	// Idempotency is nil if the caller gave no key.
	Idempotency *Idempotency
	// Poll has the details of a callback of kind poll. It is nil for kind notify. If the project has an open
	// poll of the same ref and URL, the draft is answered with that poll, as Replayed.
	Poll *PollDetail
	// OwnPoll refuses the draft of a poll with ErrPollLive if it would be answered with another open poll.
	OwnPoll bool
}

// A Retention has the times before which the purge removes rows, in Unix milliseconds.
type Retention struct {
	// Now is the time of the index's clock.
	Now int64
	// Payloads and Callbacks apply to the end of callbacks. A payload is removed with its callback at the
	// latest.
	Payloads, Callbacks int64
	// Outcomes applies to the time at which outcomes entered the feed.
	Outcomes int64
}

// Purged counts the removed payloads and callbacks. More: there may be more rows to remove.
type Purged struct {
	Payloads, Callbacks int
	More                bool
}

// IdempotencyAge is the shortest time for which an idempotency key is kept. The key of an open callback is
// kept longer.
const IdempotencyAge = 7 * 24 * time.Hour

// Idempotency identifies a request, so that a repetition of the request has no second effect.
type Idempotency struct {
	// Route separates the keys of different calls.
	Route string
	Key   string
	// Fingerprint is a hash of the whole request. Another fingerprint with the same key is a mismatch.
	Fingerprint []byte
}

// An Accepted is the result of one Draft.
type Accepted struct {
	// Callback is that of the draft, with LaneID. If Replayed, it is the callback of the first request. It is
	// Canceled, Superseded if there was a higher version before.
	Callback Callback
	Replayed bool
	// Superseded are the open callbacks that this one ended, as they were before. They are still in the
	// index. A callback in an attempt is not among them.
	Superseded []OpenRow
	// Err is nil, ErrIdempotencyMismatch, or the error of this draft alone. The other drafts were committed.
	Err error
}

// A Stamp claims the rows of one claimed batch in SQL, and reads what their attempts need.
type Stamp struct {
	// Token is the token of the claim in the index.
	Token string
	// Now is the time of the index's clock at the claim. Rows due after Now + Lookahead are refused.
	Now int64
	// Lookahead is the longest time before its due time at which a row may be claimed, in milliseconds. The
	// attempt must not start before the due time.
	Lookahead int64
	// Margin extends the claim: ClaimUntil = Now + attempt timeout + Margin, in milliseconds.
	Margin int64
	// QuarantineAfter is the number of claims in a row without a result from which a row is refused. Such a
	// row must be claimed alone. Zero: no row is refused.
	QuarantineAfter int
	Claims          []StampClaim
}

// A StampClaim is one row of a stamp.
type StampClaim struct {
	ID string
	// Diverts is added to the row's DivertCount.
	Diverts int
}

// A Stamped is a row that a stamp claimed.
type Stamped struct {
	// Callback has the fields that an attempt and its result need. URL is the current URL of the endpoint if
	// the callback Follows it. These fields are zero: Topic, Ref, Labels, Version, PayloadID, PayloadPurged,
	// Reason, LastStatus, CreatedAt, UpdatedAt, FinishedAt, ResumeState, ResumeReason, and LockKey unless the
	// callback is Strict.
	Callback
	// FirstURL is the URL with which the callback was accepted, if that differs from URL: an attempt without
	// a URL has gone there.
	FirstURL string
	Body     []byte
	// Lost: the claim before had no result. This stamp recorded its attempt as crashed.
	Lost bool
}

// A Refusal is a row that a stamp did not claim. The index must park it at Due, or drop it.
type Refusal struct {
	ID string
	// Terminal: the row is terminal or does not exist. The index must drop it.
	Terminal bool
	// Due is the due time for the index. It is the row's due time, or the end of a live claim plus the
	// stamp's Lookahead if that is later.
	Due int64
	// Retry: at least one attempt was charged.
	Retry bool
	// Quarantined: the row is due and not claimed, but too many claims in a row had no result. It must be
	// claimed alone.
	Quarantined bool
	// Behind: the row is due and not claimed, but it is strict and an older strict callback of its lock key
	// is open. Due is the row's own due time. The caller decides when to try again: the end of the older
	// callback is reported by Committed.Next and NextStrict.
	Behind bool
	// Corrupt: the row cannot be decoded. The stamp ended it as Dead, Invalid, and left its data unchanged.
	Corrupt bool
}

// A Result is the next state of a claimed row. It takes effect only if the row's fence is still Fence.
type Result struct {
	ID    string
	Fence int64
	// Attempt is the attempt to record. Nil: no attempt was made, because the claim was put back or the
	// callback expired.
	Attempt *Attempt
	// State is Scheduled with DueAt, or terminal with Reason. The row may get another state if its cancel was
	// requested, or after a retry with Ladder Once: see Committed.
	State  State
	Reason Reason
	DueAt  int64
	// Charge adds one to AttemptCount. Diverts is added to DivertCount.
	Charge  bool
	Diverts int
	// DivertsSince and DivertReason replace the row's. They are zero if there is an Attempt: it has them.
	DivertsSince int
	DivertReason string
	// FreeRetry is stored for the next attempt.
	FreeRetry bool
	// KeepClaimsWithoutResult keeps the row's ClaimsWithoutResult (for a panic). Other results reset it.
	KeepClaimsWithoutResult bool
	// Stays: the attempt is charged, but the callback stays at its position in the ladder. PollErrors is the
	// number of polls in a row that ended in an error, including this one.
	Stays      bool
	PollErrors int
	// Stamped is the claimed row, if the caller has it. It saves a read of the row. Nil: the store reads it.
	Stamped *Stamped
}

// A Committed is what the store did with a Result.
type Committed struct {
	// Won is false if the fence had changed. Then the attempt is recorded as stale, and nothing else changes.
	Won bool
	// State, Reason and DueAt are those of the row after the commit, also if the result had no effect.
	State  State
	Reason Reason
	DueAt  int64
	// Number is the number of the attempt row.
	Number int
	// Next is the next strict callback of the lock key, if the row was strict and has ended. It may be due
	// already. Nil: there is none.
	Next *OpenRow
	// Err is the error of this result alone. The other results were committed.
	Err error
}

// An OpenRow has the fields of an open callback that the sweep and the rebuild need.
type OpenRow struct {
	ID      string
	Project string
	LaneID  int64
	LockKey string
	// Strict: the callback waits for the strict callbacks of its LockKey that were accepted before it.
	Strict bool
	DueAt  int64
	// Retry: at least one attempt was charged. Manual: a person or a program asked for the next attempt.
	Retry, Manual bool
	ClaimToken    string
	ClaimUntil    int64
	ExpiresAt     int64
}

// An EndedRow is a row that ended without a result, as it was before, and how it ended.
type EndedRow struct {
	OpenRow
	Kind   Kind
	State  State
	Reason Reason
}

// A Cursor is a place in the order of (due_at, id). The zero value is the beginning.
type Cursor struct {
	DueAt int64
	ID    string
}

// IndexMeta is the row of SQL that describes the index that the dispatchers must use.
type IndexMeta struct {
	// Generation is the number of the current generation of the index.
	Generation int64
	// Built is the last generation whose rebuild finished. It is lower than Generation while a rebuild runs,
	// and after a rebuild that failed.
	Built int64
	// BuiltAt is when that rebuild finished. Zero: never, or before the store recorded it.
	BuiltAt int64
	// MadeAt is when Generation, and so its rebuild, began. Zero: the first generation of the database, which
	// needs no rebuild.
	MadeAt int64
	Shards int
	Prefix string
}

// An EventPlan lists the callbacks that an event with an idempotency key becomes. It is stored before the
// callbacks are accepted. So a repeated request becomes the same callbacks, even after a crash in between.
type EventPlan struct {
	// ID is a bare ULID. It is also the id of the payload that the callbacks share.
	ID          string
	Project     string
	Idempotency Idempotency
	CreatedAt   int64
	// Targets are sorted by CallbackID. The list may be empty.
	Targets []EventTarget
}

// An EventTarget is an endpoint that receives an event.
type EventTarget struct {
	EndpointID, CallbackID string
	// Accepted: the callback has been accepted.
	Accepted bool
}
