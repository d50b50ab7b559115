package sqlstore

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An ending makes an open row terminal without a result, or gives a dead poll another end. row is as this
// transaction read and locked it.
type ending struct {
	*row
	state  store.State
	reason store.Reason
	at     int64
}

// end makes locked rows terminal and clears their claims, so that a result of such a claim loses. If a claim
// has no result, end records an attempt of class crashed for it. Otherwise the next stamp does that, but now
// there is none. The counters and the feed change in the same transaction.
func (t *tx) end(endings ...ending) error {
	if len(endings) == 0 {
		return nil
	}
	slices.SortFunc(endings, func(a, b ending) int { return cmp.Compare(a.ID, b.ID) })
	var lost []store.Attempt
	for _, e := range endings {
		if e.ClaimToken != "" {
			e.AttemptSeq++
			lost = append(lost, lostAttempt(e.row, e.Fence, e.ClaimedAt, e.at))
		}
	}
	if err := t.insertAttempts(lost); err != nil {
		return err
	}
	for _, e := range endings {
		t.deltas.count(&e.Callback, -1)
		e.State, e.Reason, e.DueAt, e.FinishedAt, e.UpdatedAt = e.state, e.reason, 0, e.at, e.at
		e.ClaimUntil, e.ClaimToken, e.CancelRequested = 0, "", false
		e.ResumeState, e.ResumeReason = "", ""
		t.deltas.count(&e.Callback, 1)
		t.noteEnd(&e.Callback, e.at)
	}
	_, err := t.Exec(`UPDATE callbacks SET
			state = i.state,
			reason = i.reason,
			due_at = 0,
			finished_at = i.ended_at,
			updated_at = i.ended_at,
			claim_until = 0,
			claim_token = '',
			cancel_requested = 0,
			resume_state = '',
			resume_reason = '',
			last_class = i.last_class,
			attempt_seq = i.attempt_seq
		FROM $i WHERE callbacks.id = i.id`, sqldb.Rows(endings,
		func(e *ending) sqldb.Columns {
			return sqldb.Columns{
				calc("id", func() string { return e.ID }),
				col("state", &e.state),
				col("reason", &e.reason),
				col("ended_at", &e.at),
				calc("last_class", func() string { return string(e.LastClass) }),
				calc("attempt_seq", func() int64 { return int64(e.AttemptSeq) }),
			}
		}))
	return named("end callbacks", err)
}

// cancelReason is the reason with which a row ends whose cancel was requested.
func (r *row) cancelReason() store.Reason { return cmp.Or(r.pendingReason, store.Requested) }

// cancelAll cancels locked open rows for a reason, and returns those that ended, as they were before. A row
// that is being attempted stays open with a requested cancel, and ends so if its attempt fails.
func (t *tx) cancelAll(open []row, reason store.Reason, now int64) ([]store.OpenRow, error) {
	var ended []store.OpenRow
	var endings []ending
	var attempting []row
	for i := range open {
		r := &open[i]
		at := max(now, r.UpdatedAt)
		if r.StateAt(at) == store.Attempting {
			attempting = append(attempting, *r)
			continue
		}
		ended = append(ended, r.openRow())
		endings = append(endings, ending{r, store.Canceled, reason, at})
	}
	if err := t.end(endings...); err != nil {
		return nil, err
	}
	if err := t.requestCancel(attempting, reason, now); err != nil {
		return nil, err
	}
	return ended, nil
}

// requestCancel marks locked rows that are being attempted. The result of the attempt ends them canceled,
// unless it succeeded (see resultUpdate). If the attempt dies, the next stamp or Expire does. An earlier
// request keeps its reason.
func (t *tx) requestCancel(rows []row, reason store.Reason, now int64) error {
	if len(rows) == 0 {
		return nil
	}
	input := sqldb.Rows(rows, func(r *row) sqldb.Columns {
		return sqldb.Columns{
			col("id", &r.ID),
			calc("reason", func() string {
				if r.CancelRequested {
					return string(r.cancelReason())
				}
				return string(reason)
			}),
			calc("requested_at", func() int64 { return max(now, r.UpdatedAt) }),
		}
	})
	_, err := t.Exec(`UPDATE callbacks
		SET cancel_requested = 1, reason = i.reason, updated_at = i.requested_at
		FROM $i WHERE callbacks.id = i.id`, input)
	return named("request cancel", err)
}

// openRow returns what the index needs of the row.
func (r *row) openRow() store.OpenRow {
	return store.OpenRow{
		ID: r.ID, Project: r.Project, LaneID: r.LaneID, LockKey: r.LockKey, Strict: r.Strict,
		DueAt: r.DueAt, ExpiresAt: r.ExpiresAt, ClaimToken: r.ClaimToken, ClaimUntil: r.ClaimUntil,
		Retry: r.AttemptCount > 0, Manual: r.Trigger == store.Manual,
	}
}

// Cancel ends a callback as canceled. If an attempt is in flight, it only requests the cancel: Result is
// CancelTooLate, and the attempt decides. The caller then removes the callback from the index; until that is
// done, a stamp refuses the row. Cancel returns store.ErrNotFound for an id that is not in the project.
func (db *DB) Cancel(ctx context.Context, project, id string, now int64,
	by store.Actor) (store.CanceledCallback, error) {
	return changed(ctx, db.change, "cancel "+id, func(t *tx) (store.CanceledCallback, error) {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return store.CanceledCallback{}, err
		}
		canceled, entries, err := t.cancel(r, now, by)
		if err != nil {
			return canceled, err
		}
		return canceled, t.audit(entries...)
	})
}

// CancelRef cancels the open callbacks of a reference, oldest first, at most limit, in one transaction. A
// topic restricts it to that topic. Result callbacks of polls are left out, although they have the reference
// of their poll unless it names another one: a caller that cancels an order still needs to know how its polls
// ended. Cancel ends such a callback by its id. The index requests_ref finds the callbacks.
func (db *DB) CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64,
	by store.Actor) ([]store.CanceledCallback, error) {
	return changed(ctx, db.changeLong, "cancel by reference",
		func(t *tx) (canceled []store.CanceledCallback, err error) {
			open, err := t.callbacks(fromRequests+`
				AND requests.project = $1
				AND requests.ref = $2
				AND requests.ref <> ''
				AND `+isOpen+`
				AND ($3 = '' OR requests.topic = $3)
				AND NOT EXISTS (
					SELECT 1 FROM polls WHERE polls.result_id = callbacks.id AND polls.result_id <> '')
			ORDER BY requests.id
			LIMIT $4 FOR UPDATE`, project, ref, topic, limit)
			if err != nil {
				return nil, named("read callbacks", err)
			}
			var entries []store.AuditEntry
			for _, r := range open {
				c, entry, err := t.cancel(r, now, by)
				if err != nil {
					return nil, err
				}
				canceled, entries = append(canceled, c), append(entries, entry...)
			}
			return canceled, t.audit(entries...)
		})
}

// cancel cancels one locked row, for Cancel, CancelRef and redrives. The caller appends the returned entries
// to the audit; a terminal row has none.
func (t *tx) cancel(
	r row, now int64, by store.Actor,
) (c store.CanceledCallback, entries []store.AuditEntry, err error) {
	// The row's lock may have been free only after now, when an attempt ended: the end must not be before it.
	now = max(now, r.UpdatedAt)
	before := r.Callback
	switch r.StateAt(now) {
	case store.Attempting:
		c.Result = store.CancelTooLate
		err = t.requestCancel([]row{r}, store.Requested, now)
		r.CancelRequested, r.UpdatedAt = true, now
	case store.Scheduled:
		c.Result = store.CancelDone
		err = t.end(ending{&r, store.Canceled, store.Requested, now})
	default:
		return store.CanceledCallback{Result: store.CancelAlreadyTerminal, Callback: r.Callback}, nil, nil
	}
	if err != nil {
		return c, nil, err
	}
	c.Callback = r.Callback
	entry, err := auditOf(r.Project, "callback.cancel", r.ID, now, by,
		diff(callbackParts, &before, &r.Callback), fields{"result": c.Result})
	return c, []store.AuditEntry{entry}, err
}
