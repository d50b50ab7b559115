package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// lockCallback reads a row that this transaction is going to change, and keeps others from changing it.
func (t *tx) lockCallback(project, id string) (row, error) {
	rows, err := t.callbacksByID([]string{id}, " FOR UPDATE")
	if err != nil {
		return row{}, err
	}
	r, ok := rows[id]
	if !ok || r.Project != project {
		return row{}, store.ErrNotFound
	}
	return r, nil
}

// recordLostClaim writes the attempt of a claim that ended without a result, if the row has one: whoever ends the row now
// takes away the next stamp, which would have written it.
func (t *tx) recordLostClaim(r *row, now int64) error {
	if r.ClaimToken == "" {
		return nil
	}
	r.AttemptSeq++
	return t.insertAttempts([]store.Attempt{lostAttempt(r, r.Fence, r.claimedAt, now)})
}

// Retry makes a callback due at r.Now, marked as manual. A scheduled one makes its next step; a terminal one makes a
// single attempt and falls back to its state if that fails (store.Once), or begins a new ladder (store.Restart). It
// returns store.ErrNotFound, store.ErrAttempting, store.ErrPayloadPurged or store.ErrEndpointDeleted.
func (db *DB) Retry(ctx context.Context, project, id string, r store.Retry, by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "retry", project, id, r.Now, func(t *tx, m *row) (store.AuditEntry, error) {
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
}

// Reschedule moves a scheduled callback to due, or revives a dead one for one more attempt then. It returns
// store.ErrNotFound, store.ErrAttempting, store.ErrTerminal (for succeeded and canceled ones), store.ErrPayloadPurged or
// store.ErrEndpointDeleted.
func (db *DB) Reschedule(ctx context.Context, project, id string, due, now int64, by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "reschedule", project, id, now, func(_ *tx, m *row) (store.AuditEntry, error) {
		revived := m.State == store.Dead
		if err := m.reschedule(due); err != nil {
			return store.AuditEntry{}, err
		}
		if revived {
			m.Trigger = store.Manual
		}
		return auditOf(project, actionReschedule, id, now, by, auditDiff{}, map[string]any{"due_at": due})
	})
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

// edit changes a row that is not being attempted and still has its payload, in one transaction with its audit entry.
func (db *DB) edit(
	ctx context.Context, operation, project, id string, now int64, change func(*tx, *row) (store.AuditEntry, error),
) (store.Callback, error) {
	return changed(ctx, db, operation+" "+id, func(t *tx) (store.Callback, error) {
		r, err := t.lockCallback(project, id)
		if err != nil {
			return store.Callback{}, err
		}
		entry, err := t.edit(&r, now, change)
		if err != nil {
			return store.Callback{}, err
		}
		return r.Callback, t.audit(entry)
	})
}

// edit changes a locked row. Where the row itself forbids it, it is as it was; the audit entry, to which edit
// adds what differs, is the caller's to write.
func (t *tx) edit(r *row, now int64, change func(*tx, *row) (store.AuditEntry, error)) (store.AuditEntry, error) {
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
	return entry, t.writeEdited(r)
}

// endpointIsThere returns store.ErrEndpointDeleted for a row whose endpoint was deleted: it would be held for ever.
func (t *tx) endpointIsThere(r *row) error {
	if r.EndpointID == "" {
		return nil
	}
	deleted, err := sqldb.Exists(t, `SELECT 1 FROM endpoints WHERE id = $1 AND deleted_at > 0`, r.EndpointID)
	if err == nil && deleted {
		return store.ErrEndpointDeleted
	}
	return named("look for its endpoint", err)
}

// writeEdited writes all that a retry or a reschedule may have changed.
func (t *tx) writeEdited(r *row) error {
	reason := r.Reason
	if r.State == store.Scheduled {
		reason = r.cancelAs
	}
	_, err := sqldb.Columns{
		col("state", &r.State),
		col("reason", &reason),
		col("due_at", &r.DueAt),
		col("expires_at", &r.ExpiresAt),
		col("finished_at", &r.FinishedAt),
		col("updated_at", &r.UpdatedAt),
		col("ladder_base", &r.LadderBase),
		col("trigger", &r.Trigger),
		col("resume_state", &r.ResumeState),
		col("resume_reason", &r.ResumeReason),
		col("cancel_requested", sqldb.Bool(&r.CancelRequested)),
		col("free_retry", sqldb.Bool(&r.FreeRetry)),
		col("crash_count", &r.CrashCount),
		col("lane", &r.LaneID),
		col("attempt_seq", &r.AttemptSeq),
		col("claim_until", &r.ClaimUntil),
		col("claim_token", &r.ClaimToken),
		col("poll_errors", &r.PollErrors),
	}.Update(t.Tx, "callbacks", `id = $1`, r.ID)
	if err == nil {
		_, err = sqldb.Columns{
			col("first_due_at", &r.FirstDueAt), col("url", &r.URL), col("follows", sqldb.Bool(&r.Follows)),
		}.Update(t.Tx, "requests", `project = $1 AND id = $2`, r.Project, r.ID)
	}
	if err == nil {
		var early earlyTimes
		early.add(&r.Callback, r.UpdatedAt)
		err = t.lowerMarks(early)
	}
	return named("write callback", err)
}

// Mend changes where and how a callback is sent that is scheduled or dead: its URL and whether that follows its endpoint, lane, headers,
// policy, success rule and expiry. change sets them, and may be called more than once; whatever else it sets is left as it was. The
// callback stays in its state, a dead one too, and its payload never changes. It returns store.ErrNotFound, store.ErrAttempting,
// store.ErrTerminal, store.ErrPayloadPurged, store.ErrEndpointDeleted or the error of change.
func (db *DB) Mend(ctx context.Context, project, id string, change func(c *store.Callback) error, now int64, by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "mend", project, id, now, func(t *tx, m *row) (store.AuditEntry, error) {
		if m.State != store.Scheduled && m.State != store.Dead {
			return store.AuditEntry{}, store.ErrTerminal
		}
		wanted := m.Callback
		wanted.Headers, wanted.Labels = slices.Clone(m.Headers), maps.Clone(m.Labels)
		wanted.Policy.Tiers, wanted.Policy.StopOn = slices.Clone(m.Policy.Tiers), slices.Clone(m.Policy.StopOn)
		if err := change(&wanted); err != nil {
			return store.AuditEntry{}, err
		}
		changed, err := t.take(m, &wanted)
		if err != nil {
			return store.AuditEntry{}, err
		}
		return auditOf(project, actionMend, id, now, by, auditDiff{}, map[string]any{"changed": changed})
	})
}

// take gives a row what is wanted of it, writes the structured columns, and names what differs.
func (t *tx) take(m *row, wanted *store.Callback) (changed []string, err error) {
	if m.URL != wanted.URL || m.Follows != wanted.Follows {
		changed = append(changed, "url")
		m.URL, m.Follows = wanted.URL, wanted.Follows && m.EndpointID != ""
	}
	if m.Lane != wanted.Lane {
		changed = append(changed, "lane")
		if m.LaneID, err = t.laneID(m.Project, wanted.Lane); err != nil {
			return nil, err
		}
		m.Lane = wanted.Lane
	}
	if m.ExpiresAt != wanted.ExpiresAt {
		changed = append(changed, "expires_at")
		m.ExpiresAt = wanted.ExpiresAt
	}
	structured := false
	for _, part := range []struct {
		name string
		same bool
	}{
		{"headers", slices.Equal(m.Headers, wanted.Headers)}, {"policy", samePolicy(&m.Policy, &wanted.Policy)}, {"success", m.Success == wanted.Success},
	} {
		if !part.same {
			changed = append(changed, part.name)
			structured = true
		}
	}
	if !structured {
		return changed, nil
	}
	m.Headers, m.Policy, m.Success = wanted.Headers, wanted.Policy, wanted.Success
	return changed, t.writeStructured(m)
}

// writeStructured writes headers, policy and success rule.
func (t *tx) writeStructured(m *row) error {
	var headers string
	var errs [3]error
	if len(m.Headers) > 0 {
		headers, errs[0] = encode(m.Headers)
	}
	policy, err := encode(m.Policy)
	errs[1] = err
	success, err := encode(m.Success)
	errs[2] = err
	if err := errors.Join(errs[:]...); err != nil {
		return fmt.Errorf("encode callback: %w", err)
	}
	_, err = t.Exec(`UPDATE callbacks SET timeout_ms = $1 WHERE id = $2`, timeoutMillis(m.Policy), m.ID)
	if err == nil {
		_, err = t.Exec(`UPDATE requests SET headers = $1, policy = $2, success = $3, sealed_key = $4
			WHERE project = $5 AND id = $6`,
			headers, policy, success, store.SealedKey(m.Headers), m.Project, m.ID)
	}
	if err != nil {
		return fmt.Errorf("write structured columns: %w", err)
	}
	return nil
}
