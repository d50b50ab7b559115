package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// lockCallback reads a row that this transaction is going to change, and keeps others from changing it.
func (t *tx) lockCallback(project, id string) (row, error) {
	rows, err := t.callbacksByID([]string{id}, t.db.dialect.forUpdate)
	if err != nil {
		return row{}, err
	}
	r, ok := rows[id]
	if !ok || r.Project != project {
		return row{}, store.ErrNotFound
	}
	return r, nil
}

// Cancel ends a callback as canceled. With an attempt in flight it only requests that: the result is too late, and what
// the attempt brings decides. An id that is not in the project is store.ErrNotFound.
func (db *DB) Cancel(ctx context.Context, project, id string, now int64, by store.Actor) (store.CanceledCallback, error) {
	var canceled store.CanceledCallback
	err := db.change(ctx, func(t *tx) error {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return err
		}
		var entries []store.AuditEntry
		if canceled, entries, err = t.cancel(r, now, by); err != nil {
			return err
		}
		return t.audit(entries...)
	})
	if err != nil {
		return store.CanceledCallback{}, fmt.Errorf("cancel %s: %w", id, err)
	}
	return canceled, nil
}

// CancelRef cancels the open callbacks of a reference, oldest first, at most limit; with a topic only those of that one. What tells the end
// of a poll is left out: it has the poll's reference unless it was given another, and whoever cancels what is open of an order wants to hear
// how that ended. By its id it can be canceled.
func (db *DB) CancelRef(ctx context.Context, project, ref, topic string, limit int, now int64, by store.Actor) ([]store.CanceledCallback, error) {
	var canceled []store.CanceledCallback
	// As many rows as in a large group: each is a round trip, and the server may be far away.
	err := db.alone(ctx, false, db.groupLimit(limit), func(t *tx) error {
		canceled = nil
		var open []row
		var entries []store.AuditEntry
		if err := t.each(func(rows scanner) error {
			r, err := t.db.scanCallback(rows)
			open = append(open, r)
			return err
		}, `SELECT `+callbackColumns+` FROM `+fromRequests+`
				AND requests.project = $1
				AND requests.ref = $2
				AND requests.ref <> ''
				AND `+isOpen+`
				AND ($3 = '' OR requests.topic = $3)
				AND NOT EXISTS (SELECT 1 FROM polls WHERE polls.result_id = callbacks.id AND polls.result_id <> '')
			ORDER BY requests.id
			LIMIT $4`+t.db.dialect.forUpdate, project, ref, topic, limit); err != nil {
			return fmt.Errorf("read callbacks: %w", err)
		}
		for _, r := range open {
			c, entry, err := t.cancel(r, now, by)
			if err != nil {
				return err
			}
			canceled = append(canceled, c)
			entries = append(entries, entry...)
		}
		return t.audit(entries...)
	})
	if err != nil {
		return nil, fmt.Errorf("cancel by reference: %w", err)
	}
	return canceled, nil
}

// cancel cancels one locked row. What it returns for the audit is the caller's to write: nothing, if nothing is changed.
func (t *tx) cancel(r row, now int64, by store.Actor) (store.CanceledCallback, []store.AuditEntry, error) {
	// It may have waited for its turn while an attempt was made: the end is not before that.
	now = max(now, r.UpdatedAt)
	before := r.Callback
	result := store.CancelDone
	switch r.StateAt(now) {
	case store.Attempting:
		result = store.CancelTooLate
		if err := t.requestCancel([]row{r}, store.Requested, now); err != nil {
			return store.CanceledCallback{}, nil, err
		}
		r.CancelRequested, r.UpdatedAt = true, now
	case store.Scheduled:
		if err := t.end(ending{&r, store.Canceled, store.Requested, now}); err != nil {
			return store.CanceledCallback{}, nil, err
		}
	default:
		return store.CanceledCallback{Result: store.CancelAlreadyTerminal, Callback: r.Callback}, nil, nil
	}
	entry, err := auditOf(r.Project, actionCancel, r.ID, now, by, diffCallback(&before, &r.Callback),
		map[string]any{"result": result})
	if err != nil {
		return store.CanceledCallback{}, nil, err
	}
	return store.CanceledCallback{Result: result, Callback: r.Callback}, []store.AuditEntry{entry}, nil
}

// recordLostClaim writes the attempt of a claim that ended without a result, if the row has one: whoever ends the row now
// takes away the next stamp, which would have written it.
func (t *tx) recordLostClaim(r *row, now int64) error {
	if r.ClaimToken == "" {
		return nil
	}
	r.AttemptSeq++
	return t.insertAttempts([]*store.Attempt{lostAttempt(r, r.Fence, r.claimedAt, now)})
}

// Retry makes a callback due at r.Now, marked as manual. A scheduled one makes its next step; a terminal one makes a
// single attempt and falls back to its state if that fails (store.Once), or begins a new ladder (store.Restart). It
// returns store.ErrNotFound, store.ErrAttempting, store.ErrPayloadPurged or store.ErrEndpointDeleted.
func (db *DB) Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error) {
	c, err := db.mend(ctx, project, id, r.Now, func(t *tx, m *row) (store.AuditEntry, error) {
		if m.State.Terminal() {
			m.revive(r.Now, r.Ladder == store.Restart)
		}
		m.DueAt, m.Trigger = r.Now, store.Manual
		if r.URL != "" {
			wanted := m.Callback
			wanted.MoveTo(r.URL)
			if _, err := t.take(m, &wanted); err != nil {
				return store.AuditEntry{}, err
			}
		}
		return auditOf(project, actionRetry, id, r.Now, by, auditDiff{}, map[string]any{"ladder": r.Ladder})
	})
	if err != nil {
		return store.Callback{}, fmt.Errorf("retry %s: %w", id, err)
	}
	return c, nil
}

// Reschedule moves a scheduled callback to due, or revives a dead one for one more attempt then. It returns
// store.ErrNotFound, store.ErrAttempting, store.ErrTerminal (for succeeded and canceled ones), store.ErrPayloadPurged or
// store.ErrEndpointDeleted.
func (db *DB) Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback, error) {
	c, err := db.mend(ctx, project, id, now, func(_ *tx, m *row) (store.AuditEntry, error) {
		revived := m.State == store.Dead
		if err := m.reschedule(due); err != nil {
			return store.AuditEntry{}, err
		}
		if revived {
			m.Trigger = store.Manual
		}
		return auditOf(project, actionReschedule, id, now, by, auditDiff{}, map[string]any{"due_at": due})
	})
	if err != nil {
		return store.Callback{}, fmt.Errorf("reschedule %s: %w", id, err)
	}
	return c, nil
}

// reschedule moves a scheduled row, or revives a dead one for one more attempt.
func (r *row) reschedule(due int64) error {
	switch r.State {
	case store.Dead:
		r.revive(due, false)
	case store.Scheduled:
		if r.AttemptSeq == 0 && r.ClaimToken == "" {
			r.startAt(due) // Nothing has been attempted yet, so this is its first due time.
		}
		r.Trigger = store.BySchedule // what somebody wanted at once before
	default:
		return store.ErrTerminal
	}
	r.DueAt = due
	return nil
}

// revive opens a terminal row again, due at due.
func (r *row) revive(due int64, restart bool) {
	if restart {
		r.LadderBase = r.AttemptCount
	} else {
		r.ResumeState, r.ResumeReason = r.State, r.Reason
	}
	r.State, r.Reason, r.FinishedAt = store.Scheduled, "", 0
	r.CrashCount, r.CancelRequested, r.cancelAs, r.FreeRetry, r.PollErrors = 0, false, "", false, 0
	r.Trigger = store.BySchedule
	r.startAt(due)
}

// startAt moves the time from which deadline and expiry run.
func (r *row) startAt(due int64) {
	if r.ExpiresAt != 0 {
		r.ExpiresAt += due - r.FirstDueAt
	}
	r.FirstDueAt = due
}

// mend changes a row that is not being attempted and still has its payload, in one transaction with its audit entry.
func (db *DB) mend(ctx context.Context, project, id string, now int64, change func(*tx, *row) (store.AuditEntry, error)) (store.Callback, error) {
	var mended store.Callback
	err := db.change(ctx, func(t *tx) error {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return err
		}
		entry, err := t.mend(&r, now, change)
		if err != nil {
			return err
		}
		mended = r.Callback
		return t.audit(entry)
	})
	return mended, err
}

// mend changes a locked row. Where the row itself forbids it, it is as it was; the audit entry, to which mend
// adds what differs, is the caller's to write.
func (t *tx) mend(r *row, now int64, change func(*tx, *row) (store.AuditEntry, error)) (store.AuditEntry, error) {
	switch {
	case r.StateAt(now) == store.Attempting:
		return store.AuditEntry{}, store.ErrAttempting
	case r.PayloadPurged:
		return store.AuditEntry{}, store.ErrPayloadPurged
	}
	if err := t.endpointIsThere(r); err != nil {
		return store.AuditEntry{}, err
	}
	before := r.Callback
	entry, err := change(t, r)
	if err != nil {
		return store.AuditEntry{}, err
	}
	changed := diffCallback(&before, &r.Callback)
	if entry.Before, entry.After, err = changed.texts(); err != nil {
		return store.AuditEntry{}, err
	}
	if err := t.keepLive(&before, &r.Callback); err != nil {
		return store.AuditEntry{}, err
	}
	// A claim that ended without a result was made for the due time that the row had, and is recorded with it.
	lost := *r
	lost.DueAt, lost.Trigger = before.DueAt, before.Trigger
	if err := t.recordLostClaim(&lost, now); err != nil {
		return store.AuditEntry{}, err
	}
	r.AttemptSeq, r.ClaimToken, r.ClaimUntil = lost.AttemptSeq, "", 0
	r.UpdatedAt = max(now, r.CreatedAt+1) // Never as it was accepted: see fresh.
	t.deltas.count(&before, -1)
	t.deltas.count(&r.Callback, 1)
	return entry, t.writeMended(r)
}

// endpointIsThere returns store.ErrEndpointDeleted for a row whose endpoint was deleted: it would be held for ever.
func (t *tx) endpointIsThere(r *row) error {
	if r.EndpointID == "" {
		return nil
	}
	deleted := false
	if err := t.each(func(scanner) error { deleted = true; return nil },
		`SELECT 1 FROM endpoints WHERE id = $1 AND deleted_at > 0`, r.EndpointID); err != nil {
		return fmt.Errorf("look for its endpoint: %w", err)
	}
	if deleted {
		return store.ErrEndpointDeleted
	}
	return nil
}

// writeMended writes all that a retry or a reschedule may have changed.
func (t *tx) writeMended(r *row) error {
	reason := r.Reason
	if r.State == store.Scheduled {
		reason = r.cancelAs
	}
	_, err := t.exec(`UPDATE callbacks SET
			state = $1,
			reason = $2,
			due_at = $3,
			expires_at = $4,
			finished_at = $5,
			updated_at = $6,
			ladder_base = $7,
			trigger = $8,
			resume_state = $9,
			resume_reason = $10,
			cancel_requested = $11,
			free_retry = $12,
			crash_count = $13,
			lane = $14,
			attempt_seq = $15,
			claim_until = $16,
			claim_token = $17,
			poll_errors = $18
		WHERE id = $19`,
		string(r.State), string(reason), r.DueAt, r.ExpiresAt, r.FinishedAt, r.UpdatedAt, r.LadderBase,
		string(r.Trigger), string(r.ResumeState), string(r.ResumeReason), flag(r.CancelRequested), flag(r.FreeRetry),
		r.CrashCount, r.LaneID, r.AttemptSeq, r.ClaimUntil, r.ClaimToken, r.PollErrors, r.ID)
	if err == nil {
		_, err = t.exec(`UPDATE requests SET first_due_at = $1, url = $2, follows = $3
			WHERE project = $4 AND id = $5`,
			r.FirstDueAt, r.URL, flag(r.Follows), r.Project, r.ID)
	}
	if err == nil {
		var early earlyTimes
		early.add(&r.Callback, r.UpdatedAt)
		err = t.lowerMarks(early)
	}
	if err != nil {
		return fmt.Errorf("write callback: %w", err)
	}
	return nil
}
