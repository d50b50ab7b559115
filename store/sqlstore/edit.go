package sqlstore

import (
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// lockCallback reads a row that this transaction is going to change, and keeps others from changing it.
func (t *tx) lockCallback(project, id string) (row, error) {
	r, err := sqldb.Get(t, "", callbackColumns, `FROM `+fromCallbacks+`
		WHERE callbacks.id = $1 AND callbacks.project = $2 FOR UPDATE`, id, project)
	t.db.complete(&r)
	return r, err
}

// An rowEdit changes a locked row, and says what the audit calls that.
type rowEdit func(*tx, *row) (action string, detail fields, err error)

// Retry makes a callback due at r.Now, marked as manual. A scheduled one makes its next step; a terminal one
// makes a single attempt and falls back to its state if that fails (store.Once), or begins a new ladder
// (store.Restart). It returns store.ErrNotFound, store.ErrAttempting, store.ErrPayloadPurged or
// store.ErrEndpointDeleted.
func (db *DB) Retry(ctx context.Context, project, id string, r store.Retry,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "retry", project, id, r.Now, by, func(t *tx, m *row) (string, fields, error) {
		action, detail, err := retryEdit(r.Now, r.Ladder, r.Ladder == store.Restart)(t, m)
		m.Trigger = store.Manual
		if r.URL != "" {
			wanted := m.Callback
			wanted.MoveTo(r.URL)
			_, err = t.take(m, &wanted)
		}
		return action, detail, err
	})
}

// retrying makes a callback due at now, and with restart begins a new ladder of a terminal one.
func retryEdit(now int64, ladder store.Ladder, restart bool) rowEdit {
	return func(_ *tx, m *row) (string, fields, error) {
		if m.State.Terminal() {
			m.revive(now, restart)
		}
		m.DueAt = now
		return "callback.retry", fields{"ladder": ladder}, nil
	}
}

// Reschedule moves a scheduled callback to due, or revives a dead one for one more attempt then. It returns
// store.ErrNotFound, store.ErrAttempting, store.ErrTerminal (for succeeded and canceled ones),
// store.ErrPayloadPurged or store.ErrEndpointDeleted.
func (db *DB) Reschedule(ctx context.Context, project, id string, due, now int64,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "reschedule", project, id, now, by, func(t *tx, m *row) (string, fields, error) {
		revived := m.State == store.Dead
		action, detail, err := rescheduleEdit(due)(t, m)
		if revived {
			m.Trigger = store.Manual
		}
		return action, detail, err
	})
}

func rescheduleEdit(due int64) rowEdit {
	return func(_ *tx, m *row) (string, fields, error) {
		return "callback.reschedule", fields{"due_at": due}, m.reschedule(due)
	}
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
	r.ClaimsWithoutResult, r.CancelRequested, r.pendingReason, r.FreeRetry, r.PollErrors = 0, false, "", false, 0
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

// edit changes a row that is not being attempted and still has its payload, in one transaction with its audit
// entry.
func (db *DB) edit(
	ctx context.Context, operation, project, id string, now int64, by store.Actor, change rowEdit,
) (store.Callback, error) {
	return changed(ctx, db.change, operation+" "+id, func(t *tx) (store.Callback, error) {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return r.Callback, err
		}
		entry, err := t.edit(&r, now, by, change)
		if err != nil {
			return r.Callback, err
		}
		return r.Callback, t.audit(entry)
	})
}

// edit changes a locked row. Where the row itself forbids it, it is as it was; the audit entry is the
// caller's to write.
func (t *tx) edit(r *row, now int64, by store.Actor, change rowEdit) (entry store.AuditEntry, err error) {
	switch {
	case r.StateAt(now) == store.Attempting:
		return entry, store.ErrAttempting
	case r.PayloadPurged:
		return entry, store.ErrPayloadPurged
	}
	if err := t.refuseDeletedEndpoint(r); err != nil {
		return entry, err
	}
	before := r.Callback
	action, detail, err := change(t, r)
	if err != nil {
		return entry, err
	}
	entry, err = auditOf(r.Project, action, r.ID, now, by, diff(callbackParts, &before, &r.Callback),
		detail)
	if err != nil {
		return entry, err
	}
	if err := t.updateLive(&before, &r.Callback); err != nil {
		return entry, err
	}
	// A claim that ended without a result was made for the due time that the row had, and is recorded with
	// it: this takes away the next stamp, which would have written it.
	if r.ClaimToken != "" {
		lost := *r
		lost.DueAt, lost.Trigger = before.DueAt, before.Trigger
		r.AttemptSeq++
		lost.AttemptSeq = r.AttemptSeq
		if err := t.insertAttempts([]store.Attempt{lostAttempt(&lost, r.Fence, r.ClaimedAt, now)}); err !=
			nil {
			return entry, err
		}
	}
	r.ClaimToken, r.ClaimUntil = "", 0
	r.UpdatedAt = max(now, r.CreatedAt+1) // Never as it was accepted: see fresh.
	t.deltas.count(&before, -1)
	t.deltas.count(&r.Callback, 1)
	return entry, t.writeEdited(r)
}

// endpointExists returns store.ErrEndpointDeleted for a row whose endpoint was deleted: it would be held for
// ever.
func (t *tx) refuseDeletedEndpoint(r *row) error {
	if r.EndpointID == "" {
		return nil
	}
	deleted, err := sqldb.Exists(t, `SELECT 1 FROM endpoints WHERE id = $1 AND deleted_at > 0`, r.EndpointID)
	if err == nil && deleted {
		return store.ErrEndpointDeleted
	}
	return named("look for its endpoint", err)
}

// What a retry or a reschedule may change of the two rows of a callback, and what mend changes beside.
var (
	editedFields = sqldb.Named[store.Callback](`state due_at expires_at finished_at updated_at ladder_base trigger resume_state
		resume_reason cancel_requested free_retry claims_without_result lane=LaneID attempt_seq claim_until claim_token poll_errors`)
	requestEditFields = sqldb.Named[store.Callback](`first_due_at url follows`)
	structuredFields  = sqldb.Named[store.Callback](`headers policy success`)
)

// writeEdited writes all that a retry or a reschedule may have changed.
func (t *tx) writeEdited(r *row) error {
	reason := r.Reason
	if r.State == store.Scheduled {
		reason = r.pendingReason
	}
	_, err := append(editedFields(&r.Callback), col("reason", &reason)).Update(t.Tx, "callbacks", `id = $1`,
		r.ID)
	if err == nil {
		_, err = requestEditFields(&r.Callback).Update(t.Tx, "requests", `project = $1 AND id = $2`, r.Project,
			r.ID)
	}
	if err == nil {
		var earliest earliestTimes
		earliest.add(&r.Callback, r.UpdatedAt)
		err = t.lowerMarks(earliest)
	}
	return named("write callback", err)
}

// Edit changes where and how a callback is sent that is scheduled or dead: its URL and whether that follows
// its endpoint, lane, headers, policy, success rule and expiry. change sets them, and may be called more than
// once; whatever else it sets is left as it was. The callback stays in its state, a dead one too, and its
// payload never changes. It returns store.ErrNotFound, store.ErrAttempting, store.ErrTerminal,
// store.ErrPayloadPurged, store.ErrEndpointDeleted or the error of change.
func (db *DB) Edit(ctx context.Context, project, id string, change func(c *store.Callback) error, now int64,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "mend", project, id, now, by, fieldsEdit(change))
}

func fieldsEdit(change func(c *store.Callback) error) rowEdit {
	return func(t *tx, m *row) (string, fields, error) {
		if m.State != store.Scheduled && m.State != store.Dead {
			return "", nil, store.ErrTerminal
		}
		wanted := m.Callback
		wanted.Headers, wanted.Labels = slices.Clone(m.Headers), maps.Clone(m.Labels)
		wanted.Policy = clonePolicy(m.Policy)
		if err := change(&wanted); err != nil {
			return "", nil, err
		}
		changed, err := t.take(m, &wanted)
		return "callback.mend", fields{"changed": changed}, err
	}
}

// take gives a row what is wanted of it, writes the structured columns, and names what differs.
func (t *tx) take(m *row, wanted *store.Callback) (changed []string, err error) {
	if m.URL != wanted.URL || m.Follows != wanted.Follows {
		changed = append(changed, "url")
		m.URL, m.Follows = wanted.URL, wanted.Follows && m.EndpointID != ""
	}
	if m.Lane != wanted.Lane {
		changed = append(changed, "lane")
		m.LaneID, err = t.laneID(m.Project, wanted.Lane)
		if err != nil {
			return nil, err
		}
		m.Lane = wanted.Lane
	}
	if m.ExpiresAt != wanted.ExpiresAt {
		changed = append(changed, "expires_at")
		m.ExpiresAt = wanted.ExpiresAt
	}
	structured := len(changed)
	if !slices.Equal(m.Headers, wanted.Headers) {
		changed = append(changed, "headers")
	}
	if !samePolicy(&m.Policy, &wanted.Policy) {
		changed = append(changed, "policy")
	}
	if m.Success != wanted.Success {
		changed = append(changed, "success")
	}
	if len(changed) == structured {
		return changed, nil
	}
	m.Headers, m.Policy, m.Success = wanted.Headers, wanted.Policy, wanted.Success
	// Headers, policy and success rule are written here, all else by edit.
	sealed, timeout := store.SealedKey(m.Headers), timeoutMillis(m.Policy)
	_, err = (sqldb.Columns{col("timeout_ms", &timeout)}).Update(t.Tx, "callbacks", `id = $1`,
		m.ID)
	if err == nil {
		_, err = append(structuredFields(&m.Callback), col("sealed_key", &sealed)).Update(t.Tx, "requests",
			`project = $1 AND id = $2`, m.Project, m.ID)
	}
	return changed, named("write structured columns", err)
}
