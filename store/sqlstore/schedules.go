package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const scheduleColumns = `id, project, name, cron, timezone, template, missed, enabled, next_at, last_at, last_id, last_error, version,
	created_at, updated_at`

const (
	readSchedules = `SELECT ` + scheduleColumns + ` FROM schedules WHERE `
	// Every dispatcher asks for them again and again: the templates of those that are not due, which may be large, are not read.
	nextSchedules = `SELECT id, project, name, cron, timezone, CASE WHEN next_at <= $1 THEN template ELSE '' END, missed, enabled, next_at,
			last_at, last_id, last_error, version, created_at, updated_at
		FROM schedules
		WHERE next_at > 0 AND enabled = 1
		ORDER BY next_at, id
		LIMIT $2`
)

// scanSchedule reads scheduleColumns.
func scanSchedule(rows scanner) (store.Schedule, error) {
	var s store.Schedule
	var enabled int
	if err := rows.Scan(&s.ID, &s.Project, &s.Name, &s.Cron, &s.Timezone, &s.Template, &s.Missed, &enabled, &s.NextAt, &s.LastAt, &s.LastID,
		&s.LastError, &s.Version, &s.CreatedAt, &s.UpdatedAt); err != nil {
		return s, fmt.Errorf("scan schedule: %w", err)
	}
	s.Enabled = enabled != 0
	return s, nil
}

func (db *DB) readSchedules(ctx context.Context, query string, args ...any) ([]store.Schedule, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var schedules []store.Schedule
	err := queryEach(ctx, db.read, func(rows scanner) error {
		s, err := scanSchedule(rows)
		schedules = append(schedules, s)
		return err
	}, query, args...)
	if err != nil {
		return nil, readError("read schedules", err)
	}
	return schedules, nil
}

// CreateSchedule makes a schedule that is complete but for its version, at its CreatedAt. It returns it as it is then, store.ErrExists if the
// project has one of that name, or a store.InvalidError if it has store.MaxSchedules.
func (db *DB) CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error) {
	s.LastAt, s.LastID, s.LastError = 0, "", ""
	s.Version, s.UpdatedAt = 1, s.CreatedAt
	err := db.change(ctx, func(t *tx) error {
		// One at a time, so that no two find the last place free.
		if err := t.each(func(scanner) error { return nil }, `SELECT 1 FROM projects WHERE id = $1`+t.db.dialect.forUpdate, s.Project); err != nil {
			return fmt.Errorf("lock project: %w", err)
		}
		if t.again {
			if there, err := t.lockSchedule(s.Project, s.ID); err == nil && there.CreatedAt == s.CreatedAt {
				return nil // an earlier try was committed, and its reply lost
			}
		}
		if err := t.nameIsFree(&s); err != nil {
			return err
		}
		n := 0
		if err := t.each(func(rows scanner) error { return rows.Scan(&n) }, `SELECT COUNT(*) FROM schedules WHERE project = $1`, s.Project); err != nil {
			return fmt.Errorf("count schedules: %w", err)
		}
		if n >= store.MaxSchedules {
			return &store.InvalidError{Fields: []store.FieldError{{
				Field: "name", Message: fmt.Sprintf("the project has %d schedules, and may not have more", n),
			}}}
		}
		if _, err := t.exec(`INSERT INTO schedules (`+scheduleColumns+`, sealed_key, search)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0, '', '', $10, $11, $11, $12, $13)`,
			s.ID, s.Project, s.Name, s.Cron, s.Timezone, string(s.Template), string(s.Missed), flag(s.Enabled), s.NextAt, s.Version,
			s.CreatedAt, s.SealedKey(), store.Fold(s.Name)); err != nil {
			return overtaken("insert schedule", err)
		}
		return t.auditChange(s.Project, actionCreateSchedule, s.ID, s.CreatedAt, by,
			diffSchedule(new(store.Schedule), &s).made(), map[string]any{"name": s.Name})
	})
	if err != nil {
		return store.Schedule{}, fmt.Errorf("create schedule: %w", err)
	}
	return s, nil
}

// nameIsFree returns store.ErrExists where another schedule of the project has the name.
func (t *tx) nameIsFree(s *store.Schedule) error {
	other := false
	if err := t.each(func(scanner) error { other = true; return nil }, `SELECT 1 FROM schedules WHERE project = $1 AND name = $2 AND id <> $3`,
		s.Project, s.Name, s.ID); err != nil {
		return fmt.Errorf("look for the name: %w", err)
	}
	if other {
		return store.ErrExists
	}
	return nil
}

// lockSchedule reads a schedule that this transaction is going to change; store.ErrNotFound.
func (t *tx) lockSchedule(project, id string) (s store.Schedule, err error) {
	found := false
	err = t.each(func(rows scanner) error {
		found = true
		s, err = scanSchedule(rows)
		return err
	}, readSchedules+`id = $1 AND project = $2`+t.db.dialect.forUpdate, id, project)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return s, err
}

// ChangeSchedule changes a schedule: change is given it as it is, and may be called more than once. What of it belongs to the store (ids,
// times of its making and change, version, what became of its last due time) stays as it is; its next due time is change's. It returns the
// schedule as it is then, store.ErrNotFound, store.ErrExists for a name that is taken, or the error of change. What changes nothing is
// neither numbered nor audited.
func (db *DB) ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error, now int64, by store.Actor) (store.Schedule, error) {
	var changed store.Schedule
	err := db.change(ctx, func(t *tx) error {
		before, err := t.lockSchedule(project, id)
		if err != nil {
			return err
		}
		s := before
		if err := change(&s); err != nil {
			return err
		}
		s.ID, s.Project, s.Version, s.CreatedAt, s.UpdatedAt = before.ID, before.Project, before.Version, before.CreatedAt, before.UpdatedAt
		s.LastAt, s.LastID, s.LastError = before.LastAt, before.LastID, before.LastError
		if changed = s; s == before {
			return nil
		}
		if s.Name != before.Name {
			if err := t.nameIsFree(&s); err != nil {
				return err
			}
		}
		s.Version++
		s.UpdatedAt = now
		changed = s
		if _, err := t.exec(`UPDATE schedules SET name = $1, cron = $2, timezone = $3, template = $4, missed = $5, enabled = $6, next_at = $7,
				version = $8, updated_at = $9, sealed_key = $10, search = $11
			WHERE id = $12`, s.Name, s.Cron, s.Timezone, string(s.Template), string(s.Missed),
			flag(s.Enabled), s.NextAt, s.Version, s.UpdatedAt, s.SealedKey(), store.Fold(s.Name),
			id); err != nil {
			return overtaken("write schedule", err)
		}
		changes := diffSchedule(&before, &s)
		return t.auditChange(project, actionUpdateSchedule, id, now, by, changes,
			map[string]any{"changed": changes.names})
	})
	if err != nil {
		return store.Schedule{}, fmt.Errorf("change schedule %s: %w", id, err)
	}
	return changed, nil
}

// DeleteSchedule removes a schedule and what is remembered of its runs; the callbacks that it has made stay. It returns store.ErrNotFound.
func (db *DB) DeleteSchedule(ctx context.Context, project, id string, now int64, by store.Actor) error {
	err := db.change(ctx, func(t *tx) error {
		s, err := t.lockSchedule(project, id)
		if err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM schedules WHERE id = $1`, id); err != nil {
			return err
		}
		if _, err := t.exec(`DELETE FROM schedule_runs WHERE schedule_id = $1`, id); err != nil {
			return fmt.Errorf("remove its runs: %w", err)
		}
		return t.auditChange(project, actionDeleteSchedule, id, now, by,
			diffSchedule(&s, new(store.Schedule)).removed(), map[string]any{"name": s.Name})
	})
	if err != nil {
		return fmt.Errorf("delete schedule %s: %w", id, err)
	}
	return nil
}

// Schedule returns one of the project; store.ErrNotFound.
func (db *DB) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	found, err := db.readSchedules(ctx, readSchedules+`id = $1 AND project = $2`, id, project)
	if err != nil {
		return store.Schedule{}, err
	}
	if len(found) == 0 {
		return store.Schedule{}, fmt.Errorf("schedule %s: %w", id, store.ErrNotFound)
	}
	return found[0], nil
}

// Schedules returns a part of the project's list of schedules, newest first.
func (db *DB) Schedules(ctx context.Context, project string, f store.ScheduleFilter) ([]store.Schedule, error) {
	var q query
	q.add(readSchedules+"project = ?", project)
	if f.After != "" {
		q.and("id < ?", f.After)
	}
	if f.Search != "" {
		q.and(db.dialect.position+"(search, ?) > 0", store.Fold(f.Search))
	}
	if f.Enabled != nil {
		q.and("enabled = ?", flag(*f.Enabled))
	}
	q.add("\n\tORDER BY id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return db.readSchedules(ctx, q.text.String(), q.args...)
}

// ScheduleRuns returns the last callbacks that a schedule has made, newest first; store.ErrNotFound.
func (db *DB) ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error) {
	if _, err := db.Schedule(ctx, project, id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var runs []store.ScheduleRun
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var r store.ScheduleRun
		err := rows.Scan(&r.CallbackID, &r.DueAt, &r.FiredAt, &r.Trigger)
		runs = append(runs, r)
		return err
	}, `SELECT callback_id, due_at, fired_at, trigger FROM schedule_runs
		WHERE schedule_id = $1
		ORDER BY callback_id DESC
		LIMIT $2`, id, store.KeptRuns)
	if err != nil {
		return nil, readError("read runs of a schedule", err)
	}
	return runs, nil
}

// NextSchedules returns the enabled schedules of all projects that have a next due time, those that come due first before the others, at
// most limit. Only those that are due at now have their templates.
func (db *DB) NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error) {
	return db.readSchedules(ctx, nextSchedules, now, limit)
}
