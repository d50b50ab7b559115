package sqlstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A resultEntry is one result of a group.
type resultEntry struct {
	store.Result
	now     int64
	project string
	// attempted says that it has an attempt, of which status and class are.
	attempted bool
	status    int
	class     store.Class
	// finishedAt is now if it ends its row; else dueAt is when it is due.
	dueAt, finishedAt int64
	// wasDue is the row's due time before, where the stamp is not known.
	wasDue int64
	out    store.Committed
}

func newResult(r store.Result, now int64) resultEntry {
	e := resultEntry{Result: r, now: now, attempted: r.Attempt != nil}
	if e.attempted {
		e.status, e.class = r.Attempt.Status, r.Attempt.Class
	}
	if r.State == store.Scheduled {
		e.dueAt = r.DueAt
	} else {
		e.finishedAt = now
	}
	return e
}

// Fail implements [sqldb.Entry].
func (e *resultEntry) Fail(err error) { e.out = store.Committed{Err: err} }

// Commit records results, each by compare-and-set on its fence, and answers each in its place. A result that was
// committed before, its reply lost, is answered as it was then. An error means that nothing is known to be committed:
// the same results may be given again.
func (db *DB) Commit(ctx context.Context, given []store.Result, now int64) ([]store.Committed, error) {
	entries := make([]sqldb.Entry, len(given))
	own := make([]resultEntry, len(given))
	for i := range given {
		own[i] = newResult(given[i], now)
		entries[i] = &own[i]
	}
	if err := db.sql.Commit(ctx, results, entries); err != nil {
		return nil, fmt.Errorf("commit results: %w", err)
	}
	committed := make([]store.Committed, len(given))
	for i := range own {
		committed[i] = own[i].out
	}
	return committed, nil
}

// applyResults commits the results of one group, in rounds in which no row comes twice.
func (t *tx) applyResults(entries []*resultEntry) error {
	for len(entries) > 0 {
		round, later := distinct(entries, func(e *resultEntry) string { return e.ID })
		if err := t.commitRound(round); err != nil {
			return err
		}
		entries = later
	}
	return nil
}

// What becomes of a result in spite of what it asks for. A callback whose cancel was requested ends canceled unless it
// succeeded. One that was retried once from a terminal state falls back to that state when the retry has failed, which
// an uncharged result that goes on (a divert, a hand-back) does not decide.
const (
	verdict = `CASE
			WHEN i.state IN ('scheduled', 'dead') AND callbacks.cancel_requested = 1 THEN 1
			WHEN callbacks.resume_state <> '' AND (i.state = 'dead' OR i.state = 'scheduled' AND i.charge = 1) THEN 2
			ELSE 0
		END`
	// cancelAs is the reason of one whose cancel was requested.
	cancelAs = `CASE WHEN callbacks.reason = '' THEN 'requested' ELSE callbacks.reason END`
	// goesOn: the row stays open.
	goesOn = `(i.state = 'scheduled' AND callbacks.cancel_requested = 0 AND (callbacks.resume_state = '' OR i.charge = 0))`
	// undecided: what was asked for by hand has still to be tried.
	undecided = `(i.state = 'scheduled' AND i.charge = 0 AND callbacks.cancel_requested = 0)`
)

// commitRound commits results of different rows, and answers each.
func (t *tx) commitRound(entries []*resultEntry) error {
	for _, e := range entries {
		e.out = store.Committed{}
	}
	if err := t.fencedUpdate(entries); err != nil {
		return err
	}
	if err := t.endUnattempted(); err != nil {
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
			a.CallbackID, a.Project, a.Number, a.Fence, a.NextDueAt = e.ID, e.project, e.out.Number, e.Fence, e.out.DueAt
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
	return t.nextStrict()
}

// resultUpdate changes the rows whose fence is still the result's and whose claim has no result yet.
var resultUpdate = sqldb.BulkUpdate[resultEntry, store.Callback]{Table: "callbacks", Columns: func(e *resultEntry) sqldb.Columns {
	return sqldb.Columns{
		col("id", &e.ID),
		col("fence", &e.Fence),
		col("state", &e.State),
		col("reason", &e.Reason),
		col("due_at", &e.DueAt),
		col("charge", sqldb.Bool(&e.Charge)),
		col("diverts", &e.Diverts),
		col("free_retry", sqldb.Bool(&e.FreeRetry)),
		col("stays", sqldb.Bool(&e.Stays)),
		col("poll_errors", &e.PollErrors),
		col("keep_crash", sqldb.Bool(&e.KeepCrashCount)),
		col("attempted", sqldb.Bool(&e.attempted)),
		col("status", &e.status),
		col("class", &e.class),
		col("committed_at", &e.now),
	}
}, Set: `
		state = CASE ` + verdict + ` WHEN 1 THEN 'canceled' WHEN 2 THEN callbacks.resume_state ELSE i.state END,
		reason = CASE ` + verdict + ` WHEN 1 THEN ` + cancelAs + ` WHEN 2 THEN callbacks.resume_reason ELSE i.reason END,
		due_at = CASE WHEN ` + goesOn + ` THEN i.due_at ELSE 0 END,
		finished_at = CASE WHEN ` + goesOn + ` THEN 0 ELSE i.committed_at END,
		updated_at = i.committed_at,
		attempt_count = callbacks.attempt_count + i.charge,
		divert_count = callbacks.divert_count + i.diverts,
		attempt_seq = callbacks.attempt_seq + i.attempted,
		ladder_base = callbacks.ladder_base + i.stays,
		poll_errors = CASE WHEN i.charge = 1 THEN i.poll_errors ELSE callbacks.poll_errors END,
		free_retry = i.free_retry,
		crash_count = CASE WHEN i.keep_crash = 1 THEN callbacks.crash_count ELSE 0 END,
		last_status = CASE WHEN i.attempted = 1 THEN i.status ELSE callbacks.last_status END,
		last_class = CASE WHEN i.attempted = 1 THEN i.class ELSE callbacks.last_class END,
		trigger = CASE WHEN ` + undecided + ` THEN callbacks.trigger ELSE 'schedule' END,
		resume_state = CASE WHEN ` + undecided + ` THEN callbacks.resume_state ELSE '' END,
		resume_reason = CASE WHEN ` + undecided + ` THEN callbacks.resume_reason ELSE '' END,
		cancel_requested = 0,
		claim_until = 0,
		claim_token = ''`,
	Where: `callbacks.fence = i.fence AND callbacks.claim_token <> '' AND ` + isOpen,
	Returning: func(c *store.Callback) sqldb.Columns {
		return append(countedColumns(c), col("callbacks.reason", &c.Reason), col("callbacks.due_at", &c.DueAt),
			col("callbacks.attempt_seq", &c.AttemptSeq), col("callbacks.strict", sqldb.Bool(&c.Strict)), col("callbacks.lock_key", &c.LockKey))
	},
}.Prepare()

// plain says that the result is one of an ordinary attempt: charged, of a row whose stamp is known, and no poll.
func (e *resultEntry) plain() bool {
	return e.Stamped != nil && e.Stamped.Kind != store.Poll && e.Attempt != nil && e.Charge && !e.KeepCrashCount
}

// plainUpdate is resultUpdate for plain results of rows that nobody has asked anything of meanwhile. Then it is known what
// becomes of the row.
var plainUpdate = sqldb.BulkUpdate[resultEntry, struct{}]{Table: "callbacks", Columns: func(e *resultEntry) sqldb.Columns {
	return sqldb.Columns{
		col("id", &e.ID),
		col("fence", &e.Fence),
		col("state", &e.State),
		col("reason", &e.Reason),
		col("due_at", &e.dueAt),
		col("finished_at", &e.finishedAt),
		col("diverts", &e.Diverts),
		col("free_retry", sqldb.Bool(&e.FreeRetry)),
		col("status", &e.status),
		col("class", &e.class),
		col("committed_at", &e.now),
	}
}, Set: `
		state = i.state,
		reason = i.reason,
		due_at = i.due_at,
		finished_at = i.finished_at,
		updated_at = i.committed_at,
		attempt_count = callbacks.attempt_count + 1,
		divert_count = callbacks.divert_count + i.diverts,
		attempt_seq = callbacks.attempt_seq + 1,
		free_retry = i.free_retry,
		crash_count = 0,
		last_status = i.status,
		last_class = i.class,
		trigger = 'schedule',
		claim_until = 0,
		claim_token = ''`,
	Where: `callbacks.fence = i.fence AND callbacks.claim_token <> '' AND callbacks.cancel_requested = 0 AND callbacks.resume_state = '' AND ` + isOpen,
}.Prepare()

// countedColumns are what the counters need of a row, the id first.
func countedColumns(c *store.Callback) sqldb.Columns {
	return sqldb.Columns{
		col("callbacks.id", &c.ID),
		col("callbacks.project", &c.Project),
		col("callbacks.kind", &c.Kind),
		col("callbacks.lane", &c.LaneID),
		col("callbacks.state", &c.State),
		col("callbacks.attempt_count", &c.AttemptCount),
		col("callbacks.ladder_base", &c.LadderBase),
	}
}

// fencedUpdate changes the rows and marks the entries that won: first the plain ones that it can.
func (t *tx) fencedUpdate(entries []*resultEntry) error {
	var plain []*resultEntry
	for _, e := range entries {
		if e.plain() {
			plain = append(plain, e)
		}
	}
	if err := plainUpdate.Run(t.Tx, plain, func(e *resultEntry, _ *struct{}) error {
		s := &e.Stamped.Callback
		t.won(e, &store.Callback{
			ID: e.ID, Project: s.Project, LaneID: s.LaneID, State: e.State, Reason: e.Reason, DueAt: e.dueAt, Strict: s.Strict,
			AttemptCount: s.AttemptCount + 1, LadderBase: s.LadderBase, AttemptSeq: s.AttemptSeq + 1, LockKey: s.LockKey,
		})
		return nil
	}); err != nil {
		return fmt.Errorf("plain results: %w", err)
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

// readDue reads the due times of rows whose stamps are not known. None can have changed when the result takes effect: whatever moves a due
// time takes the claim away.
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
	due, err := sqldb.Map[string, int64](t, `SELECT id, due_at FROM callbacks WHERE id IN (SELECT i.id FROM $i)`,
		sqldb.Texts("id", sortedKeys(unknown)))
	for id, at := range due {
		unknown[id].wasDue = at
	}
	return named("read due times", err)
}

// won answers a result that took effect and counts the change; c has what the counters need of the row as it is now, and the lock key
// if it is strict.
func (t *tx) won(e *resultEntry, c *store.Callback) {
	e.project = c.Project
	e.out = store.Committed{Won: true, State: c.State, Reason: c.Reason, DueAt: c.DueAt}
	if e.Attempt != nil {
		e.out.Number = c.AttemptSeq
	}
	if c.State.Terminal() {
		t.strictEnded(e, c.Strict, c.LockKey)
		if e.Attempt == nil {
			t.unattempted = append(t.unattempted, ending{&row{Callback: *c}, c.State, c.Reason, e.now})
		} else {
			c.LastStatus, c.LastClass = e.Attempt.Status, e.Attempt.Class
			t.ended(c, e.now)
		}
	}
	before := *c
	before.State = store.Scheduled // Only a scheduled row has a claim.
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

// endUnattempted notes the rows that have ended by a result without an attempt: what their last one was must be read.
func (t *tx) endUnattempted() error {
	if len(t.unattempted) == 0 {
		return nil
	}
	ended := make(map[string]ending, len(t.unattempted))
	for _, e := range t.unattempted {
		ended[e.ID] = e
	}
	t.unattempted = nil
	last, err := sqldb.Select(t, func(c *store.Callback) sqldb.Columns {
		return sqldb.Columns{col("id", &c.ID), col("last_status", &c.LastStatus), col("last_class", &c.LastClass)}
	}, `FROM callbacks WHERE id IN (SELECT i.id FROM $i) ORDER BY id`, sqldb.Texts("id", sortedKeys(ended)))
	for i := range last {
		e := ended[last[i].ID]
		e.LastStatus, e.LastClass = last[i].LastStatus, last[i].LastClass
		t.ended(&e.Callback, e.at)
	}
	return named("read last attempts", err)
}

// lose answers a result whose fence has moved on, or whose claim has a result. Where its claim was recorded as crashed,
// that record gets the details that have come late, marked as stale and not charged. Where the very same result was committed
// before, it has won and is told so again.
func (t *tx) lose(e *resultEntry) error {
	r, found, err := sqldb.One(t, func(c *store.Callback) sqldb.Columns {
		return sqldb.Columns{
			col("project", &c.Project), col("strict", sqldb.Bool(&c.Strict)), col("lock_key", &c.LockKey), col("fence", &c.Fence),
			col("claim_token", &c.ClaimToken), col("state", &c.State), col("reason", &c.Reason), col("due_at", &c.DueAt),
		}
	}, `FROM callbacks WHERE id = $1`, e.ID)
	if err != nil || !found {
		return named("read row of a late result", err)
	}
	e.project = r.Project
	record, err := t.attemptOfFence(e.ID, e.Fence)
	if err != nil {
		return err
	}
	lost := record != nil && (record.Class == store.ClassCrashed && record.Outcome == store.AttemptUnknown || record.Stale)
	if r.State == store.Scheduled {
		r.Reason = "" // It is what it will end as if its cancel was requested.
	}
	e.out = store.Committed{State: r.State, Reason: r.Reason, DueAt: r.DueAt}
	again := e.out
	again.Won = true
	switch {
	case lost && e.Attempt != nil && !record.Stale:
		late := *e.Attempt
		late.CallbackID, late.Project, late.Number, late.Fence = e.ID, e.project, record.Number, e.Fence
		late.NextDueAt, late.Stale, late.Charged = 0, true, false
		e.out.Number = record.Number
		return t.replaceAttempt(late)
	case lost:
		e.out.Number = record.Number
	case record != nil && e.Attempt != nil && record.StartedAt == e.Attempt.StartedAt && record.Class == e.Attempt.Class:
		again.Number = record.Number
		e.out = again
	case record == nil && e.Attempt == nil && r.Fence == e.Fence && r.ClaimToken == "":
		e.out = again
	}
	t.strictEnded(e, r.Strict, r.LockKey)
	return nil
}
