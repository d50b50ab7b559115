package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// redriveSpec is the members of a stored redrive that never change.
func redriveSpec(r *store.Redrive) members {
	return members{
		"action": &r.Action, "filter": &r.Filter, "shown": &r.FilterText, "ladder": &r.Ladder, "url": &r.URL,
		"due_at": &r.DueAt, "delay": &r.Delay, "rate": &r.Rate,
	}
}

// A redriveRow is a redrive as it is stored. after is how far its callbacks are gathered.
type redriveRow struct {
	store.Redrive
	after store.Cursor
}

var redriveFields = sqldb.Named[store.Redrive](`id project actor actor_id address reason created_at
	approval_above`)

// redriveColumns are all columns of a redrive.
func redriveColumns(r *redriveRow) sqldb.Columns {
	spec := redriveSpec(&r.Redrive)
	return append(append(redriveFields(&r.Redrive), redriveProgress(r)...), col("spec", sqldb.JSON(&spec)))
}

var progressFields = sqldb.Named[store.Redrive](`state paused matched done failed updated_at finished_at
	approver approved_at`)

// redriveProgress are the columns that change while a redrive runs.
func redriveProgress(r *redriveRow) sqldb.Columns {
	return append(progressFields(&r.Redrive), col("gathered_due", &r.after.DueAt),
		col("gathered_id", &r.after.ID))
}

// readRedrives reads the redrives that a statement finds.
func readRedrives(q sqldb.Querier, rest string, args ...any) ([]store.Redrive, error) {
	rows, err := sqldb.Select(q, redriveColumns, `FROM redrives `+rest, args...)
	redrives := make([]store.Redrive, len(rows))
	for i := range rows {
		redrives[i] = rows[i].Redrive
		if rows[i].after != (store.Cursor{}) {
			redrives[i].After = &rows[i].after
		}
	}
	return redrives, err
}

// CreateRedrive inserts a redrive in the state gathering. GatherRedrive then collects its callbacks, and
// StepRedrive acts on them. It returns store.ErrTooManyRedrives if the project has store.MaxOpenRedrives open
// ones, and store.ErrNotFound if the project does not exist.
func (db *DB) CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error) {
	r.State, r.UpdatedAt = store.RedriveGathering, r.CreatedAt
	r.Actor, r.ActorID, r.Address, r.Reason = by.Name, by.ID, by.Address, by.Reason
	row := redriveRow{Redrive: r}
	return r, db.change(ctx, "create redrive", func(t *tx) error {
		// The lock makes a parallel create wait, and then count this redrive.
		if _, err := t.lockProject(r.Project); err != nil {
			return err
		}
		n, err := redriveColumns(&row).Insert(t.Tx, "redrives", `ON CONFLICT (id) DO NOTHING`)
		if err != nil || n == 0 {
			return err // an earlier try was committed, and its reply was lost
		}
		if err := t.boundRedrives(r.Project); err != nil {
			return err
		}
		return t.auditChange(r.Project, "redrive.create", r.ID, r.CreatedAt, by,
			diff(redriveParts, new(store.Redrive), &r).made(),
			fields{"action": r.Action, "filter": r.FilterText})
	})
}

// boundRedrives returns store.ErrTooManyRedrives if the project has too many open redrives. The caller has
// locked the project.
func (t *tx) boundRedrives(project string) error {
	open, _, err := sqldb.Value[int](t,
		`SELECT COUNT(*) FROM redrives WHERE project = $1 AND finished_at = 0`, project)
	if err == nil && open > store.MaxOpenRedrives {
		return store.ErrTooManyRedrives
	}
	return named("count open redrives", err)
}

// Redrive returns a redrive of the project, or store.ErrNotFound.
func (db *DB) Redrive(ctx context.Context, project, id string) (store.Redrive, error) {
	r, err := oneRedrive(db.read(ctx, "read redrives"), `WHERE id = $1 AND project = $2`, id, project)
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("redrive %s: %w", id, err)
	}
	return r, err
}

// oneRedrive reads one redrive, or returns store.ErrNotFound.
func oneRedrive(q sqldb.Querier, which string, args ...any) (store.Redrive, error) {
	found, err := readRedrives(q, which, args...)
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Redrive{}, err
	}
	return found[0], nil
}

// Redrives returns up to limit redrives of the project, newest first, that are older than the id after. ""
// begins at the newest.
func (db *DB) Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error) {
	return readRedrives(db.read(ctx, "read redrives"),
		`WHERE project = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, project, after, limit)
}

// redriveToDo selects redrives that have work. It repeats the WHERE of the index redrives_to_do word for
// word. A redrive that is paused during gathering is still gathered to its end.
const redriveToDo = `state IN ('gathering', 'running')`

// RedrivesToDo returns the redrives that have work, by project and id, of the first limit projects above
// after that have any.
func (db *DB) RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error) {
	return readRedrives(db.read(ctx, "read redrives"), `WHERE `+redriveToDo+` AND project IN (
			SELECT DISTINCT project FROM redrives WHERE `+redriveToDo+` AND project > $1
			ORDER BY project LIMIT $2)
		ORDER BY project, id`, after, limit)
}

// SetRedrive pauses, resumes, approves or cancels a redrive. A cancel deletes the items that are not done. It
// returns store.ErrNotFound, store.ErrTerminal if the redrive has ended, and the errors of an approval.
func (db *DB) SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64,
	by store.Actor) (store.Redrive, error) {
	return changed(ctx, db.change, "change redrive "+id, func(t *tx) (store.Redrive, error) {
		r, err := t.lockRedrive(id)
		if err == nil && r.Project != project {
			err = store.ErrNotFound
		}
		if err == nil && !r.Open() {
			err = store.ErrTerminal
		}
		if err != nil {
			return r, err
		}
		action, before := "redrive.pause", r
		awaiting := r.State == store.RedriveAwaiting
		switch {
		case awaiting && (to == store.RedrivePaused || to == store.RedriveRunning):
			return r, store.ErrAwaitingApproval
		case to == store.RedriveApproved && !awaiting:
			return r, store.ErrNotAwaiting
		case to == store.RedrivePaused && r.Action == store.RedriveDelete:
			return r, invalid("action", "is a deletion, which is one step and cannot be paused: cancel it")
		}
		switch to {
		case store.RedrivePaused:
			r.Paused = true
		case store.RedriveRunning:
			action, r.Paused = "redrive.resume", false
		case store.RedriveApproved:
			action = "redrive.approve"
			if err := approve(&r, now, by); err != nil {
				return r, err
			}
		case store.RedriveCanceled:
			action, r.State, r.FinishedAt = "redrive.cancel", to, now
			if _, err := t.Exec(`DELETE FROM redrive_items WHERE redrive_id = $1`, id); err != nil {
				return r, named("delete its items", err)
			}
		default:
			return r, fmt.Errorf("a redrive cannot be set to %q", to)
		}
		if r.State != store.RedriveGathering && r.Open() {
			r.State = store.RedriveRunning
			if r.Paused {
				r.State = store.RedrivePaused
			}
		}
		if err := t.writeRedrive(&r, now); err != nil {
			return r, err
		}
		return r, t.auditChange(project, action, id, now, by, diff(redriveParts, &before, &r), nil)
	})
}

// lockRedrive reads a redrive and locks its row until the transaction ends. It returns store.ErrNotFound.
func (t *tx) lockRedrive(id string) (store.Redrive, error) {
	return oneRedrive(t, `WHERE id = $1 FOR UPDATE`, id)
}

// writeRedrive writes the progress of a locked redrive.
func (t *tx) writeRedrive(r *store.Redrive, now int64) error {
	r.UpdatedAt = now
	row := redriveRow{Redrive: *r}
	if r.After != nil {
		row.after = *r.After
	}
	_, err := redriveProgress(&row).Update(t.Tx, "redrives", `id = $1`, r.ID)
	return named("write redrive", err)
}

// GatherRedrive stores one more page of the callbacks that a redrive's filter matches, and returns the
// redrive afterwards. The page is read outside of the transaction. So the transaction checks that the
// position is still where the page began: if another process has stored it, nothing is written. It does
// nothing unless the redrive is gathering.
func (db *DB) GatherRedrive(ctx context.Context, project, id string, now int64) (store.Redrive, error) {
	r, err := db.Redrive(ctx, project, id)
	if err != nil || r.State != store.RedriveGathering {
		return r, err
	}
	f := r.Filter
	f.After, f.Limit, f.Now = r.After, maxList, now
	page, err := db.List(ctx, project, f)
	if err != nil {
		return r, fmt.Errorf("gather redrive %s: %w", id, err)
	}
	return changed(ctx, db.change, "gather redrive "+id, func(t *tx) (store.Redrive, error) {
		locked, err := t.lockRedrive(id)
		if err != nil || locked.State != store.RedriveGathering || !reflect.DeepEqual(locked.After, r.After) {
			return locked, err // another process stored the page, or a person canceled the redrive
		}
		added := int64(len(page.Callbacks))
		if locked.Action != store.RedriveDelete { // a deletion only counts them
			added, err = t.addRedriveItems(id, page.Callbacks)
			if err != nil {
				return locked, err
			}
		}
		locked.Matched += added
		locked.After = page.Next
		if page.Next == nil {
			needs, err := t.needsApproval(&locked, now)
			if err != nil {
				return locked, err
			}
			gathered(&locked, needs, now)
		}
		return locked, t.writeRedrive(&locked, now)
	})
}

// gathered sets the state of a redrive whose callbacks are all stored.
func gathered(r *store.Redrive, needsApproval bool, now int64) {
	switch {
	case r.Matched == 0 && r.Action != store.RedriveDelete: // an endpoint without callbacks is deleted too
		r.State, r.FinishedAt = store.RedriveDone, now
	case needsApproval:
		r.State = store.RedriveAwaiting
	case r.Paused:
		r.State = store.RedrivePaused
	default:
		r.State = store.RedriveRunning
	}
}

// addRedriveItems inserts callbacks as items of a redrive, and returns how many are new.
func (t *tx) addRedriveItems(id string, callbacks []store.Callback) (int64, error) {
	added, err := sqldb.ExecRows(t.Tx, `INSERT INTO redrive_items (redrive_id, callback_id)
		SELECT i.redrive_id, i.callback_id FROM $i WHERE 1 = 1
		ON CONFLICT (redrive_id, callback_id) DO NOTHING`, callbacks,
		func(c *store.Callback) sqldb.Columns {
			return sqldb.Columns{
				calc("redrive_id", func() string { return id }),
				col("callback_id", &c.ID),
			}
		})
	return added, named("insert items", err)
}

// StepRedrive acts on up to limit callbacks of a redrive, and deletes their items in the same transaction. So
// each callback is handled once, whenever a process dies. The redrive's row is locked, so two processes
// follow each other. It does nothing unless the redrive is running. The caller updates the index afterwards;
// if it dies in between, the sweep does.
func (db *DB) StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error) {
	return changed(ctx, db.changeLong, "step of redrive "+id,
		func(t *tx) (step store.RedriveStep, err error) {
			r, err := t.lockRedrive(id)
			step.Redrive = r
			if err != nil || r.State != store.RedriveRunning {
				return step, err
			}
			if r.Action == store.RedriveDelete {
				return step, t.deleteByRedrive(&step, now)
			}
			ids, err := t.takeRedriveItems(id, limit)
			if err != nil {
				return step, err
			}
			rows, err := t.callbacksByID(ids, " FOR UPDATE")
			if err != nil {
				return step, err
			}
			var late map[string]bool
			if r.Action == store.RedriveRetry || r.Action == store.RedriveReschedule {
				late, err = t.superseded(ids, rows)
				if err != nil {
					return step, err
				}
			}
			var entries []store.AuditEntry
			for _, callback := range ids {
				row, ok := rows[callback]
				if !ok || row.Project != r.Project || late[callback] {
					// It was purged since it was gathered, or a newer version was accepted.
					step.Redrive.Failed++
					continue
				}
				entry, err := t.redrive(&r, row, now, &step)
				switch {
				case err == nil:
					step.Redrive.Done++
					entries = append(entries, entry...)
				case forbids(err):
					step.Redrive.Failed++
				default:
					return step, err
				}
			}
			if len(ids) < limit {
				step.Redrive.State, step.Redrive.FinishedAt = store.RedriveDone, now
			}
			if err := t.writeRedrive(&step.Redrive, now); err != nil {
				return step, err
			}
			return step, t.audit(entries...)
		})
}

// deleteByRedrive deletes the endpoint of a redrive's filter, which ends the redrive. An endpoint that was
// deleted meanwhile stays deleted.
func (t *tx) deleteByRedrive(step *store.RedriveStep, now int64) error {
	r := &step.Redrive
	u, err := t.lockUpsert(r.Project, r.Filter.EndpointID)
	switch {
	case err == nil:
		u.delete(now)
		by := store.Actor{Name: r.Actor, ID: r.ActorID, Address: r.Address, Reason: r.Reason}
		err = t.writeUpserts([]*upsert{u}, now, by)
		step.Deleted = true
	case errors.Is(err, store.ErrNotFound):
		err = nil
	}
	if err != nil {
		return named("delete its endpoint", err)
	}
	r.State, r.Done, r.FinishedAt = store.RedriveDone, r.Matched, now
	return t.writeRedrive(r, now)
}

// forbids reports whether the error concerns one callback only: its state or a quota. Any other error fails
// the step.
func forbids(err error) bool {
	for _, forbidden := range []error{
		store.ErrAttempting, store.ErrPayloadPurged, store.ErrTerminal, store.ErrEndpointDeleted,
		store.ErrPollLive, store.ErrLaneQuota,
	} {
		if errors.Is(err, forbidden) {
			return true
		}
	}
	return false
}

// takeRedriveItems deletes up to limit items and returns their callbacks in the order of ids.
func (t *tx) takeRedriveItems(id string, limit int) ([]string, error) {
	ids, err := sqldb.Values[string](t, `DELETE FROM redrive_items WHERE redrive_id = $1 AND callback_id IN (
			SELECT callback_id FROM redrive_items WHERE redrive_id = $1 ORDER BY callback_id LIMIT $2)
		RETURNING callback_id`, id, limit)
	slices.Sort(ids)
	return ids, named("take items", err)
}

// redrive acts on one locked row: it cancels or edits the callback. It refuses a row that left the filter's
// states after it was gathered. It returns the audit entries, and adds to step what the caller must change in
// the index: rows that ended (Canceled), rows that left their lane (Left), and rows to place at their due
// time (Placed).
func (t *tx) redrive(r *store.Redrive, m row, now int64,
	step *store.RedriveStep) ([]store.AuditEntry, error) {
	if !picks(&r.Filter, &m) {
		return nil, store.ErrTerminal // it went on since it was gathered
	}
	by := store.Actor{Name: r.Actor, Address: r.Address, Reason: r.Reason}
	before := m.openRow()
	if r.Action == store.RedriveCancel {
		c, entries, err := t.cancel(m, now, by)
		if err == nil && c.Result == store.CancelAlreadyTerminal {
			return nil, store.ErrTerminal
		}
		if err == nil && c.Result == store.CancelDone {
			step.Canceled = append(step.Canceled, before)
		}
		return entries, err
	}
	open := !m.State.Terminal()
	entry, err := t.edit(&m, now, by, redriveEdit(r, now))
	if err != nil {
		return nil, err
	}
	if open && before.LaneID != m.LaneID {
		step.Left = append(step.Left, before)
	}
	if m.State == store.Scheduled {
		step.Placed = append(step.Placed, m.Callback)
	}
	return []store.AuditEntry{entry}, nil
}

// picks reports whether the row is still in one of the filter's states.
func picks(f *store.Filter, m *row) bool {
	return len(f.States) == 0 || slices.Contains(f.States, m.State) ||
		m.State == store.Scheduled && slices.Contains(f.States, store.Attempting)
}

// redriveEdit is the edit of a redrive's action.
func redriveEdit(r *store.Redrive, now int64) rowEdit {
	return func(t *tx, m *row) (string, fields, error) {
		m.Trigger = store.BySchedule // unlike a manual retry it keeps the lane's rate and breaker
		var change rowEdit
		switch r.Action {
		case store.RedriveRetry:
			change = retryEdit(now, r.Ladder, r.Ladder != store.Once)
		case store.RedriveReschedule:
			due := r.DueAt
			if due == 0 {
				due = now + r.Delay
			}
			change = rescheduleEdit(max(due, now))
		case store.RedriveSetURL:
			change = fieldsEdit(func(c *store.Callback) error { c.MoveTo(r.URL); return nil })
		default:
			return "", nil, fmt.Errorf("redrive %s: action %q is not known", r.ID, r.Action)
		}
		action, detail, err := change(t, m)
		if err == nil {
			detail["redrive"] = store.RedrivePrefix + r.ID
		}
		return action, detail, err
	}
}
