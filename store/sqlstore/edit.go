package sqlstore

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// lockCallback reads a callback and locks its rows until the transaction ends. It returns store.ErrNotFound.
func (t *tx) lockCallback(project, id string) (row, error) {
	r, err := sqldb.Get(t, "", editableCallback, `FROM `+fromCallbacks+`
		WHERE callbacks.id = $1 AND callbacks.project = $2 FOR UPDATE`, id, project)
	t.db.complete(&r)
	return r, err
}

// A rowEdit changes a locked row in memory. It returns the action and the details for the audit.
type rowEdit func(*tx, *row) (action string, detail fields, err error)

// Retry makes a callback due at r.Now, with the trigger manual. A scheduled callback makes its next attempt
// now. A terminal one makes a single attempt and returns to its state if that fails (store.Once), or begins a
// new ladder (store.Restart). It returns store.ErrNotFound, store.ErrAttempting, store.ErrPayloadPurged,
// store.ErrEndpointDeleted or, if r.Newest, store.ErrNewerVersion.
func (db *DB) Retry(ctx context.Context, project, id string, r store.Retry,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "retry", project, id, r.Now, by, func(t *tx, c *row) (string, fields, error) {
		if r.Newest {
			late, err := t.superseded([]string{id}, map[string]row{id: *c})
			if err == nil && late[id] {
				err = store.ErrNewerVersion
			}
			if err != nil {
				return "", nil, err
			}
		}
		action, detail, err := retryEdit(r.Now, r.Ladder, r.Ladder == store.Restart)(t, c)
		c.Trigger = store.Manual
		if r.URL != "" {
			wanted := c.Callback
			wanted.MoveTo(r.URL)
			_, err = t.take(c, &wanted)
		}
		return action, detail, err
	})
}

// retryEdit makes a callback due at now. With restart a terminal callback begins a new ladder.
func retryEdit(now int64, ladder store.Ladder, restart bool) rowEdit {
	return func(_ *tx, r *row) (string, fields, error) {
		if r.State.Terminal() {
			r.revive(now, restart)
		}
		r.DueAt = now
		return "callback.retry", fields{"ladder": ladder}, nil
	}
}

// Reschedule moves a scheduled callback to due, or revives a dead one for one more attempt at due. It returns
// store.ErrNotFound, store.ErrAttempting, store.ErrPayloadPurged or store.ErrEndpointDeleted, and
// store.ErrTerminal for a callback that succeeded or was canceled.
func (db *DB) Reschedule(ctx context.Context, project, id string, due, now int64,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "reschedule", project, id, now, by, func(t *tx, r *row) (string, fields, error) {
		revived := r.State == store.Dead
		action, detail, err := rescheduleEdit(due)(t, r)
		if revived {
			r.Trigger = store.Manual
		}
		return action, detail, err
	})
}

// rescheduleEdit moves or revives a callback: see Reschedule.
func rescheduleEdit(due int64) rowEdit {
	return func(_ *tx, r *row) (string, fields, error) {
		return "callback.reschedule", fields{"due_at": due}, r.reschedule(due)
	}
}

// reschedule moves a scheduled row, or revives a dead one for one more attempt.
func (r *row) reschedule(due int64) error {
	switch r.State {
	case store.Dead:
		r.revive(due, false)
	case store.Scheduled:
		if r.AttemptSeq == 0 && r.ClaimToken == "" {
			r.startAt(due) // nothing was attempted yet, so due becomes the first due time
		}
		r.Trigger = store.BySchedule // replaces an earlier retry by a person
	default:
		return store.ErrTerminal
	}
	r.DueAt = due
	return nil
}

// revive opens a terminal row again. Without restart it keeps the old state, to which the row returns if the
// attempt fails (see resultUpdate).
func (r *row) revive(due int64, restart bool) {
	if restart {
		r.LadderBase = r.AttemptCount
	} else {
		r.ResumeState, r.ResumeReason = r.State, r.Reason
	}
	r.State, r.Reason, r.FinishedAt = store.Scheduled, "", 0
	r.ClaimsWithoutResult, r.PollErrors, r.FreeRetry = 0, 0, false
	r.CancelRequested, r.pendingReason = false, ""
	r.Trigger = store.BySchedule
	r.startAt(due)
}

// startAt moves the first due time, from which the deadline of the policy runs. The expiry moves by the same
// amount.
func (r *row) startAt(due int64) {
	if r.ExpiresAt != 0 {
		r.ExpiresAt += due - r.FirstDueAt
	}
	r.FirstDueAt = due
}

// edit changes one row and appends the audit entry, in one transaction. See tx.edit for what forbids a
// change.
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

// edit changes a locked row and returns its audit entry, which the caller appends. A row that is being
// attempted, whose payload is purged or whose endpoint is deleted is refused with the error that says so. A
// refused edit has written nothing of the row, so StepRedrive may go on in the same transaction.
//
// The edit clears a claim that has run out. So a late result of that claim loses, and only completes its
// record.
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
	// The claim ended without a result, so record its attempt as crashed. Otherwise the next stamp does that,
	// but this edit takes the claim away. The record has the due time and the trigger that the claim was made
	// for.
	if r.ClaimToken != "" {
		lost := *r
		lost.DueAt, lost.Trigger = before.DueAt, before.Trigger
		r.AttemptSeq++
		lost.AttemptSeq = r.AttemptSeq
		err = t.insertAttempts([]store.Attempt{lostAttempt(&lost, r.Fence, r.ClaimedAt, now)})
		if err != nil {
			return entry, err
		}
	}
	r.ClaimToken, r.ClaimUntil = "", 0
	r.UpdatedAt = max(now, r.CreatedAt+1) // never equal to CreatedAt: see cachedUpdate
	t.deltas.count(&before, -1)
	t.deltas.count(&r.Callback, 1)
	return entry, t.writeEdited(r)
}

// refuseDeletedEndpoint returns store.ErrEndpointDeleted for a row whose endpoint is deleted. The lane of
// such an endpoint is paused for good, so the row would never be attempted.
func (t *tx) refuseDeletedEndpoint(r *row) error {
	if r.EndpointID == "" {
		return nil
	}
	deleted, err := sqldb.Exists(t, `SELECT 1 FROM endpoints WHERE id = $1 AND deleted_at > 0`, r.EndpointID)
	if err == nil && deleted {
		return store.ErrEndpointDeleted
	}
	return named("find its endpoint", err)
}

// The columns that edits write. writeEdited writes the first two sets after every edit, and the third if take
// has changed one of its columns.
var (
	editedFields = sqldb.Named[store.Callback](`state due_at expires_at finished_at updated_at ladder_base
		trigger resume_state resume_reason cancel_requested free_retry claims_without_result lane=LaneID
		attempt_seq claim_until claim_token poll_errors`)
	requestEditFields = sqldb.Named[store.Callback](`first_due_at url follows`)
	structuredFields  = sqldb.Named[store.Callback](`headers policy success`)
)

// writeEdited writes the columns that any edit may have changed, and lowers the low-water marks if needed.
func (t *tx) writeEdited(r *row) error {
	reason := r.Reason
	if r.State == store.Scheduled {
		reason = r.pendingReason
	}
	callbacks := append(editedFields(&r.Callback), col("reason", &reason))
	requests := requestEditFields(&r.Callback)
	sealed, timeout := store.SealedKey(r.Headers), timeoutMillis(r.Policy)
	first := r.keptURL()
	if r.URL != r.storedURL {
		requests = append(requests, col("first_url", &first))
	}
	if r.structuredEdited {
		callbacks = append(callbacks, col("timeout_ms", &timeout))
		requests = append(append(requests, structuredFields(&r.Callback)...), col("sealed_key", &sealed))
	}
	_, err := callbacks.Update(t.Tx, "callbacks", `id = $1`, r.ID)
	if err == nil {
		_, err = requests.Update(t.Tx, "requests", `project = $1 AND id = $2`, r.Project, r.ID)
	}
	if err == nil {
		var earliest earliestTimes
		earliest.add(&r.Callback, r.UpdatedAt)
		err = t.lowerMarks(earliest)
	}
	return named("write callback", err)
}

// keptURL is the value of first_url when the URL of a row changes.
func (r *row) keptURL() string { return cmp.Or(r.firstURL, r.storedURL) }

// Edit changes how a scheduled or dead callback is sent: its URL and whether that follows its endpoint, its
// lane, headers, policy, success rule and expiry. change sets these fields; it may run more than once, and
// what else it sets is ignored. The state and the payload never change. It returns store.ErrNotFound,
// store.ErrAttempting, store.ErrTerminal, store.ErrPayloadPurged, store.ErrEndpointDeleted or the error of
// change.
func (db *DB) Edit(ctx context.Context, project, id string, change func(c *store.Callback) error, now int64,
	by store.Actor) (store.Callback, error) {
	return db.edit(ctx, "edit", project, id, now, by, fieldsEdit(change))
}

// fieldsEdit sets the fields that change sets on a copy of the callback: see Edit.
func fieldsEdit(change func(c *store.Callback) error) rowEdit {
	return func(t *tx, r *row) (string, fields, error) {
		if r.State != store.Scheduled && r.State != store.Dead {
			return "", nil, store.ErrTerminal
		}
		wanted := r.Callback
		wanted.Headers, wanted.Labels = slices.Clone(r.Headers), maps.Clone(r.Labels)
		wanted.Policy = clonePolicy(r.Policy)
		if err := change(&wanted); err != nil {
			return "", nil, err
		}
		changed, err := t.take(r, &wanted)
		return "callback.edit", fields{"changed": changed}, err
	}
}

// take copies the fields that Edit may change from wanted to the row, and names those that differ. It writes
// none of them, because the edit may still be refused: writeEdited does.
func (t *tx) take(r *row, wanted *store.Callback) (changed []string, err error) {
	if r.URL != wanted.URL || r.Follows != wanted.Follows {
		changed = append(changed, "url")
		r.URL, r.Follows = wanted.URL, wanted.Follows && r.EndpointID != ""
	}
	if r.Lane != wanted.Lane {
		changed = append(changed, "lane")
		r.LaneID, err = t.laneID(r.Project, wanted.Lane)
		if err != nil {
			return nil, err
		}
		r.Lane = wanted.Lane
	}
	if r.ExpiresAt != wanted.ExpiresAt {
		changed = append(changed, "expires_at")
		r.ExpiresAt = wanted.ExpiresAt
	}
	simple := len(changed)
	if !slices.Equal(r.Headers, wanted.Headers) {
		changed = append(changed, "headers")
	}
	if !samePolicy(&r.Policy, &wanted.Policy) {
		changed = append(changed, "policy")
	}
	if r.Success != wanted.Success {
		changed = append(changed, "success")
	}
	if len(changed) > simple {
		r.Headers, r.Policy, r.Success = wanted.Headers, wanted.Policy, wanted.Success
		r.structuredEdited = true
	}
	return changed, nil
}
