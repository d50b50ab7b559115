package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// StepRedrive does what a redrive is for to up to limit of its callbacks, and forgets those in the same transaction: so each is done
// once, whoever dies. It does nothing for one that is not running.
func (db *DB) StepRedrive(ctx context.Context, id string, limit int, now int64) (store.RedriveStep, error) {
	var step store.RedriveStep
	err := db.changeMany(ctx, "step of redrive "+id, limit, func(t *tx) error {
		step = store.RedriveStep{}
		r, err := t.lockRedrive(id)
		if err != nil {
			return err
		}
		step.Redrive = r
		if r.State != store.RedriveRunning {
			return nil
		}
		ids, err := t.takeRedriveItems(id, limit)
		if err != nil {
			return err
		}
		rows, err := t.callbacksByID(ids, " FOR UPDATE")
		if err != nil {
			return err
		}
		var late map[string]bool
		if r.Action == store.RedriveRetry || r.Action == store.RedriveReschedule {
			if late, err = t.superseded(ids, rows); err != nil {
				return err
			}
		}
		var entries []store.AuditEntry
		for _, callback := range ids {
			row, ok := rows[callback]
			if !ok || row.Project != r.Project || late[callback] {
				step.Redrive.Failed++ // purged meanwhile, or a newer version has been accepted since it ended
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
				return err
			}
		}
		if len(ids) < limit {
			step.Redrive.State, step.Redrive.FinishedAt = store.RedriveDone, now
		}
		if err := t.writeRedrive(&step.Redrive, now); err != nil {
			return err
		}
		return t.audit(entries...)
	})
	if err != nil {
		return store.RedriveStep{}, err
	}
	return step, nil
}

// forbids says whether a callback's own state, or a quota, forbids what is to be done to it.
func forbids(err error) bool {
	return errors.Is(err, store.ErrAttempting) || errors.Is(err, store.ErrPayloadPurged) || errors.Is(err, store.ErrTerminal) ||
		errors.Is(err, store.ErrEndpointDeleted) || errors.Is(err, store.ErrPollLive) ||
		errors.Is(err, store.ErrLaneQuota)
}

// takeRedriveItems removes up to limit of what is left to do, in the order of ids.
func (t *tx) takeRedriveItems(id string, limit int) ([]string, error) {
	ids, err := sqldb.Values[string](t, `DELETE FROM redrive_items WHERE redrive_id = $1 AND callback_id IN (
			SELECT callback_id FROM redrive_items WHERE redrive_id = $1 ORDER BY callback_id LIMIT $2)
		RETURNING callback_id`, id, limit)
	slices.Sort(ids)
	return ids, named("take what is to be done", err)
}

// redrive does what is to be done to one locked row.
func (t *tx) redrive(r *store.Redrive, m row, now int64, step *store.RedriveStep) ([]store.AuditEntry, error) {
	by := store.Actor{Name: r.Actor, Address: r.Address, Reason: r.Reason}
	if r.Action == store.RedriveCancel {
		before := m.openRow()
		c, entries, err := t.cancel(m, now, by)
		if err == nil && c.Result == store.CancelAlreadyTerminal {
			return nil, store.ErrTerminal
		}
		if err == nil && c.Result == store.CancelDone {
			step.Canceled = append(step.Canceled, before)
		}
		return entries, err
	}
	before := m.openRow()
	open := !m.State.Terminal()
	entry, err := t.edit(&m, now, func(t *tx, m *row) (store.AuditEntry, error) { return t.redriven(r, m, now, by) })
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

// picks says whether the row is still in one of the states that the filter picks.
func picks(f *store.Filter, m *row) bool {
	return len(f.States) == 0 || slices.Contains(f.States, m.State) || m.State == store.Scheduled && slices.Contains(f.States, store.Attempting)
}

// redriven changes one row as a redrive says.
func (t *tx) redriven(r *store.Redrive, m *row, now int64, by store.Actor) (store.AuditEntry, error) {
	detail := map[string]any{"redrive": store.RedrivePrefix + r.ID}
	if !picks(&r.Filter, m) {
		return store.AuditEntry{}, store.ErrTerminal // it has gone on since it was picked
	}
	m.Trigger = store.BySchedule // it is one of many, and keeps to its lane's rate and breaker
	switch r.Action {
	case store.RedriveRetry:
		if m.State.Terminal() {
			m.revive(now, r.Ladder != store.Once)
		}
		m.DueAt = now
		detail["ladder"] = r.Ladder
		return auditOf(m.Project, actionRetry, m.ID, now, by, auditDiff{}, detail)
	case store.RedriveReschedule:
		due := r.DueAt
		if due == 0 {
			due = now + r.Delay
		}
		if err := m.reschedule(max(due, now)); err != nil {
			return store.AuditEntry{}, err
		}
		detail["due_at"] = m.DueAt
		return auditOf(m.Project, actionReschedule, m.ID, now, by, auditDiff{}, detail)
	case store.RedriveSetURL:
		if m.State != store.Scheduled && m.State != store.Dead {
			return store.AuditEntry{}, store.ErrTerminal
		}
		wanted := m.Callback
		wanted.MoveTo(r.URL)
		changed, err := t.take(m, &wanted)
		if err != nil {
			return store.AuditEntry{}, err
		}
		detail["changed"] = changed
		return auditOf(m.Project, actionMend, m.ID, now, by, auditDiff{}, detail)
	}
	return store.AuditEntry{}, fmt.Errorf("redrive %s: action %q is not known", r.ID, r.Action)
}
