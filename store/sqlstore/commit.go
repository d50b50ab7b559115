package sqlstore

import (
	"context"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A resultEntry is one result in a group. It embeds the caller's result and carries the answer out.
type resultEntry struct {
	store.Result
	Now int64
	// project is the row's project: an attempt row and the counters need it.
	project string
	// strict is the lock key of a strict row that this result ended, or empty. See attachNextStrict.
	strict string
	// Attempted is set if the result has an attempt. Status and Class are the attempt's.
	Attempted bool
	Status    int
	Class     store.Class
	// FinishedAt is Now if the result ends the row. OpenUntil is the next due time if the row stays open. The
	// other one is zero.
	OpenUntil, FinishedAt int64
	// wasDue is the row's due time before the result, if Stamped is nil. See readDue.
	wasDue int64
	out    store.Committed
}

// newResult prepares the entry of a result that is committed at now.
func newResult(r store.Result, now int64) resultEntry {
	e := resultEntry{Result: r, Now: now, Attempted: r.Attempt != nil}
	if e.Attempted {
		e.Status, e.Class = r.Attempt.Status, r.Attempt.Class
	}
	if r.State == store.Scheduled {
		e.OpenUntil = r.DueAt
	} else {
		e.FinishedAt = now
	}
	return e
}

// Fail implements [sqldb.Entry]: the result alone could not be committed.
func (e *resultEntry) Fail(err error) { e.out = store.Committed{Err: err} }

// Commit records results and answers each in its place. A result takes effect only if its fence is still the
// row's and its claim has no result yet. A result that was committed before, and whose reply was lost, gets
// the same answer again. Commit returns an error if no result is known to be committed. The caller may then
// commit the same results again.
func (db *DB) Commit(ctx context.Context, given []store.Result, now int64) ([]store.Committed, error) {
	entries := make([]sqldb.Entry, len(given))
	own := make([]resultEntry, len(given))
	for i := range given {
		own[i] = newResult(given[i], now)
		entries[i] = &own[i]
	}
	if err := db.sql.Commit(ctx, results, entries); err != nil {
		return nil, named("commit results", err)
	}
	committed := make([]store.Committed, len(given))
	for i := range own {
		committed[i] = own[i].out
	}
	return committed, nil
}

// applyResults commits the results of one group. Each round has at most one result of a row, because one
// UPDATE changes a row only once.
func (t *tx) applyResults(entries []*resultEntry) error {
	return inRounds(entries, func(e *resultEntry) string { return e.ID }, t.commitRound)
}

// These SQL expressions decide how a result changes its row; i is the result. Two things override the state
// of the result:
//   - A callback whose cancel was requested ends canceled, unless the attempt succeeded.
//   - A callback that was retried once from a terminal state (resume_state) returns to that state if the
//     retry failed. An uncharged result that keeps the row open (a divert, a hand-back) is no failure.
const (
	// override is 1 for the cancel, 2 for the return to resume_state, and 0 for the state of the result.
	override = `CASE
			WHEN i.state IN ('scheduled', 'dead') AND callbacks.cancel_requested = 1 THEN 1
			WHEN callbacks.resume_state <> ''
				AND (i.state = 'dead' OR i.state = 'scheduled' AND i.charge = 1) THEN 2
			ELSE 0
		END`
	// cancelReasonSQL is the reason of a requested cancel. The column reason of an open row holds it.
	cancelReasonSQL = `CASE WHEN callbacks.reason = '' THEN 'requested' ELSE callbacks.reason END`
	// staysOpen is true if the row is scheduled after the result.
	staysOpen = `(i.state = 'scheduled' AND callbacks.cancel_requested = 0
		AND (callbacks.resume_state = '' OR i.charge = 0))`
	// keepsManual is true if the attempt that a person asked for has still to be made.
	keepsManual = `(i.state = 'scheduled' AND i.charge = 0 AND callbacks.cancel_requested = 0)`
)

// commitRound commits results of different rows in the group's transaction. The fenced updates decide which
// results win, and attempts are inserted for those. lose answers the others.
func (t *tx) commitRound(entries []*resultEntry) error {
	for _, e := range entries {
		e.out, e.strict = store.Committed{}, ""
	}
	if err := t.fencedUpdate(entries); err != nil {
		return err
	}
	attempts := make([]store.Attempt, 0, len(entries))
	var losers []*resultEntry
	for _, e := range entries {
		switch {
		case !e.out.Won:
			losers = append(losers, e)
		case e.Attempt != nil:
			a := *e.Attempt
			a.CallbackID, a.Project, a.Number, a.Fence = e.ID, e.project, e.out.Number, e.Fence
			a.NextDueAt = e.out.DueAt
			attempts = append(attempts, a)
		}
	}
	if err := t.insertAttempts(attempts); err != nil {
		return err
	}
	for _, e := range losers {
		if err := t.lose(e); err != nil {
			return err
		}
	}
	return t.attachNextStrict(entries)
}

// resultUpdate applies any result by compare-and-set. The row must still have the result's fence, so no later
// stamp has claimed it. Its claim token must still be set, so no result, cancel or edit has ended that claim.
// A second process that commits a result of the same claim waits for the row's lock, and then finds no match.
var resultUpdate = sqldb.BulkUpdate[resultEntry, store.Callback]{
	Table: "callbacks",
	Columns: sqldb.Named[resultEntry](`id fence state reason due_at charge diverts diverts_since divert_reason
		free_retry stays poll_errors keep_claims=KeepClaimsWithoutResult attempted status class
		committed_at=Now`),
	Set: `
		state = CASE ` + override +
		` WHEN 1 THEN 'canceled' WHEN 2 THEN callbacks.resume_state ELSE i.state END,
		reason = CASE ` + override + ` WHEN 1 THEN ` + cancelReasonSQL +
		` WHEN 2 THEN callbacks.resume_reason ELSE i.reason END,
		due_at = CASE WHEN ` + staysOpen + ` THEN i.due_at ELSE 0 END,
		finished_at = CASE WHEN ` + staysOpen + ` THEN 0 ELSE i.committed_at END,
		updated_at = i.committed_at,
		attempt_count = callbacks.attempt_count + i.charge,
		divert_count = callbacks.divert_count + i.diverts,
		diverts_since = i.diverts_since,
		divert_reason = i.divert_reason,
		attempt_seq = callbacks.attempt_seq + i.attempted,
		ladder_base = callbacks.ladder_base + i.stays,
		poll_errors = CASE WHEN i.charge = 1 THEN i.poll_errors ELSE callbacks.poll_errors END,
		free_retry = i.free_retry,
		claims_without_result = CASE WHEN i.keep_claims = 1 THEN callbacks.claims_without_result ELSE 0 END,
		last_status = CASE WHEN i.attempted = 1 THEN i.status ELSE callbacks.last_status END,
		last_class = CASE WHEN i.attempted = 1 THEN i.class ELSE callbacks.last_class END,
		trigger = CASE WHEN ` + keepsManual + ` THEN callbacks.trigger ELSE 'schedule' END,
		resume_state = CASE WHEN ` + keepsManual + ` THEN callbacks.resume_state ELSE '' END,
		resume_reason = CASE WHEN ` + keepsManual + ` THEN callbacks.resume_reason ELSE '' END,
		cancel_requested = 0,
		claim_until = 0,
		claim_token = ''`,
	Where: `callbacks.fence = i.fence AND callbacks.claim_token <> '' AND ` + isOpen,
	Returning: sqldb.Named[store.Callback](`callbacks.id callbacks.project callbacks.kind
		callbacks.lane=LaneID callbacks.state callbacks.reason callbacks.due_at callbacks.attempt_count
		callbacks.attempt_seq callbacks.ladder_base callbacks.last_status callbacks.last_class
		callbacks.strict callbacks.lock_key`),
}.Prepare()

// isOrdinary reports whether the result is of the common kind: a charged attempt of a callback that is no
// poll, with a known stamp.
func (e *resultEntry) isOrdinary() bool {
	return e.Stamped != nil && e.Stamped.Kind != store.Poll && e.Attempt != nil && e.Charge &&
		!e.KeepClaimsWithoutResult
}

// ordinaryUpdate is resultUpdate for ordinary results. It matches only rows without a requested cancel and
// without resume_state. So the state after the update follows from the stamp, and nothing is read back.
var ordinaryUpdate = sqldb.BulkUpdate[resultEntry, struct{}]{
	Table: "callbacks",
	Columns: sqldb.Named[resultEntry](`id fence state reason due_at=OpenUntil finished_at diverts free_retry
		status class committed_at=Now`),
	Set: `
		state = i.state,
		reason = i.reason,
		due_at = i.due_at,
		finished_at = i.finished_at,
		updated_at = i.committed_at,
		attempt_count = callbacks.attempt_count + 1,
		divert_count = callbacks.divert_count + i.diverts,
		diverts_since = 0,
		divert_reason = '',
		attempt_seq = callbacks.attempt_seq + 1,
		free_retry = i.free_retry,
		claims_without_result = 0,
		last_status = i.status,
		last_class = i.class,
		trigger = 'schedule',
		claim_until = 0,
		claim_token = ''`,
	Where: `callbacks.fence = i.fence AND callbacks.claim_token <> '' AND callbacks.cancel_requested = 0
		AND callbacks.resume_state = '' AND ` + isOpen,
}.Prepare()

// fencedUpdate applies the results and marks the entries that won. It tries ordinaryUpdate first, and then
// resultUpdate for the rest. Both have the same guard, so at most one of them matches a row.
func (t *tx) fencedUpdate(entries []*resultEntry) error {
	var ordinary []*resultEntry
	for _, e := range entries {
		if e.isOrdinary() {
			ordinary = append(ordinary, e)
		}
	}
	if err := ordinaryUpdate.Run(t.Tx, ordinary, func(e *resultEntry, _ *struct{}) error {
		s := &e.Stamped.Callback
		t.won(e, &store.Callback{
			ID: e.ID, Project: s.Project, LaneID: s.LaneID, Strict: s.Strict, LockKey: s.LockKey,
			State: e.State, Reason: e.Reason, DueAt: e.OpenUntil,
			AttemptCount: s.AttemptCount + 1, AttemptSeq: s.AttemptSeq + 1, LadderBase: s.LadderBase,
			LastStatus: e.Status, LastClass: e.Class,
		})
		return nil
	}); err != nil {
		return named("ordinary results", err)
	}
	rest := slices.DeleteFunc(slices.Clone(entries), func(e *resultEntry) bool { return e.out.Won })
	if err := t.readDue(rest); err != nil {
		return err
	}
	return named("fenced update", resultUpdate.Run(t.Tx, rest, func(e *resultEntry, c *store.Callback) error {
		t.won(e, c)
		return nil
	}))
}

// readDue reads the present due times of rows whose stamps are unknown. The counter of due hours needs them.
// A due time cannot change before the result takes effect: whatever moves it also clears the claim, and the
// result loses.
func (t *tx) readDue(entries []*resultEntry) error {
	unknown := make(map[string]*resultEntry)
	for _, e := range entries {
		if e.Stamped == nil {
			unknown[e.ID] = e
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	due, err := sqldb.Map[string, int64](t,
		`SELECT id, due_at FROM callbacks WHERE id IN (SELECT i.id FROM $i)`,
		sqldb.Texts("id", sortedKeys(unknown)))
	for id, at := range due {
		unknown[id].wasDue = at
	}
	return named("read due times", err)
}

// won fills in the answer of a result that took effect, and adds the change to the counters. c is the row
// after the update, as far as the counters, the feed and the strict order need it.
func (t *tx) won(e *resultEntry, c *store.Callback) {
	e.project = c.Project
	e.out = store.Committed{Won: true, State: c.State, Reason: c.Reason, DueAt: c.DueAt}
	if e.Attempt != nil {
		e.out.Number = c.AttemptSeq
	}
	if c.State.Terminal() {
		e.noteStrictEnd(c)
		t.noteEnd(c, e.Now)
	}
	before := *c
	before.State = store.Scheduled // only a scheduled row has a claim
	before.DueAt = e.wasDue
	if e.Stamped != nil {
		before.DueAt = e.Stamped.DueAt
	}
	if e.Charge {
		before.AttemptCount--
	}
	if e.Stays {
		before.LadderBase--
	}
	t.deltas.count(&before, -1)
	t.deltas.count(c, 1)
}

// lateColumns are what lose reads of a row.
var lateColumns = sqldb.Named[store.Callback](`project strict lock_key fence claim_token state reason due_at`)

// lose fills in the answer of a result that took no effect: its fence has moved on, or its claim has a result
// already. There are three cases:
//   - A later stamp, a cancel or an edit recorded the claim as crashed. The record gets the late details,
//     marked stale and not charged. The row does not change.
//   - This very result was committed before, and its reply was lost. It gets the same answer: it won.
//   - Otherwise the answer is the row's present state, and the result is dropped.
func (t *tx) lose(e *resultEntry) error {
	r, found, err := sqldb.One(t, lateColumns, `FROM callbacks WHERE id = $1`, e.ID)
	if err != nil || !found {
		return named("read row of a late result", err)
	}
	e.project = r.Project
	record, err := t.attemptOfFence(e.ID, e.Fence)
	if err != nil {
		return err
	}
	lost := record != nil && (record.Class == store.ClassCrashed && record.Outcome == store.AttemptUnknown ||
		record.Stale)
	if r.State == store.Scheduled {
		r.Reason = "" // the reason of an open row is that of its requested cancel
	}
	e.out = store.Committed{State: r.State, Reason: r.Reason, DueAt: r.DueAt}
	repeated := e.out
	repeated.Won = true
	switch {
	case lost && e.Attempt != nil && !record.Stale: // the first result after the crash record
		late := *e.Attempt
		late.CallbackID, late.Project, late.Number, late.Fence = e.ID, e.project, record.Number, e.Fence
		late.NextDueAt, late.Stale, late.Charged = 0, true, false
		e.out.Number = record.Number
		return t.replaceAttempt(late)
	case lost:
		e.out.Number = record.Number
	case record != nil && e.Attempt != nil && record.StartedAt == e.Attempt.StartedAt &&
		record.Class == e.Attempt.Class:
		repeated.Number = record.Number
		e.out = repeated
	case record == nil && e.Attempt == nil && r.Fence == e.Fence && r.ClaimToken == "":
		e.out = repeated
	}
	e.noteStrictEnd(&r)
	return nil
}
