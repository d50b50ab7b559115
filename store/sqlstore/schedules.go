package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A scheduleRow is a schedule as it is written.
type scheduleRow struct {
	store.Schedule
	sealedKey, search string
}

// scheduleColumns describe a schedule but for its template.
var scheduleColumns = sqldb.Named[store.Schedule](`id project name cron timezone missed enabled next_at last_at last_id last_error version created_at
	updated_at`)

func wholeSchedule(s *store.Schedule) sqldb.Columns {
	return append(scheduleColumns(s), col("template", &s.Template))
}

// dueSchedule describes a schedule with its template only where it is due at $1: every dispatcher asks for
// the next ones again and again, and templates may be large.
func dueSchedule(s *store.Schedule) sqldb.Columns {
	return append(scheduleColumns(s), col("CASE WHEN next_at <= $1 THEN template ELSE '' END", &s.Template))
}

func scheduleRowColumns(s *scheduleRow) sqldb.Columns {
	s.sealedKey, s.search = s.SealedKey(), store.Fold(s.Name)
	return append(wholeSchedule(&s.Schedule), col("sealed_key", &s.sealedKey), col("search", &s.search))
}

const nextSchedules = `FROM schedules
		WHERE next_at > 0 AND enabled = 1
		ORDER BY next_at, id
		LIMIT $2`

// CreateSchedule makes a schedule that is complete but for its version, at its CreatedAt. It returns it as it
// is then, store.ErrExists if the project has one of that name, or a store.InvalidError if it has
// store.MaxSchedules.
func (db *DB) CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error) {
	s.LastAt, s.LastID, s.LastError = 0, "", ""
	s.Version, s.UpdatedAt = 1, s.CreatedAt
	return changed(ctx, db.change, "create schedule", func(t *tx) (store.Schedule, error) {
		// One at a time, so that no two find the last place free.
		if err := t.lockProjectRow(s.Project); err != nil {
			return s, err
		}
		if t.Again {
			if there, err := t.lockSchedule(s.Project, s.ID); err == nil && there.CreatedAt == s.CreatedAt {
				return s, nil // an earlier try was committed, and its reply lost
			}
		}
		if err := t.nameIsFree(&s); err != nil {
			return s, err
		}
		n, _, err := sqldb.Value[int](t, `SELECT COUNT(*) FROM schedules WHERE project = $1`, s.Project)
		if err != nil {
			return s, named("count schedules", err)
		}
		if n >= store.MaxSchedules {
			return s, invalid("name", fmt.Sprintf("the project has %d schedules, and may not have more", n))
		}
		if _, err := scheduleRowColumns(&scheduleRow{Schedule: s}).Insert(t.Tx, "schedules", ""); err != nil {
			return s, sqldb.Overtaken("insert schedule", err)
		}
		return s, t.auditChange(s.Project, "schedule.create", s.ID, s.CreatedAt, by,
			diff(scheduleParts, new(store.Schedule), &s).made(), fields{"name": s.Name})
	})
}

// nameIsFree returns store.ErrExists where another schedule of the project has the name.
func (t *tx) nameIsFree(s *store.Schedule) error {
	other, err := sqldb.Exists(t, `SELECT 1 FROM schedules WHERE project = $1 AND name = $2 AND id <> $3`,
		s.Project, s.Name, s.ID)
	if err == nil && other {
		return store.ErrExists
	}
	return named("look for the name", err)
}

// lockSchedule reads a schedule that this transaction is going to change; store.ErrNotFound.
func (t *tx) lockSchedule(project, id string) (store.Schedule, error) {
	return sqldb.Get(t, "", wholeSchedule, `FROM schedules WHERE id = $1 AND project = $2 FOR UPDATE`, id,
		project)
}

// ChangeSchedule changes a schedule: change is given it as it is, and may be called more than once. What of
// it belongs to the store (ids, times of its making and change, version, what became of its last due time)
// stays as it is; its next due time is change's. It returns the schedule as it is then, store.ErrNotFound,
// store.ErrExists for a name that is taken, or the error of change. What changes nothing is neither numbered
// nor audited.
func (db *DB) ChangeSchedule(ctx context.Context, project, id string, change func(*store.Schedule) error,
	now int64, by store.Actor) (store.Schedule, error) {
	return changed(ctx, db.change, "change schedule "+id, func(t *tx) (store.Schedule, error) {
		before, err := t.lockSchedule(project, id)
		if err != nil {
			return before, err
		}
		s := before
		if err := change(&s); err != nil {
			return s, err
		}
		s.ID, s.Project, s.Version, s.CreatedAt, s.UpdatedAt = before.ID, before.Project, before.Version,
			before.CreatedAt, before.UpdatedAt
		s.LastAt, s.LastID, s.LastError = before.LastAt, before.LastID, before.LastError
		if s == before {
			return s, nil
		}
		if s.Name != before.Name {
			if err := t.nameIsFree(&s); err != nil {
				return s, err
			}
		}
		s.Version++
		s.UpdatedAt = now
		if _, err := scheduleRowColumns(&scheduleRow{Schedule: s}).Update(t.Tx, "schedules", `id = $1`,
			id); err != nil {
			return s, sqldb.Overtaken("write schedule", err)
		}
		changes := diff(scheduleParts, &before, &s)
		return s, t.auditChange(project, "schedule.update", id, now, by, changes,
			fields{"changed": changes.names})
	})
}

// DeleteSchedule removes a schedule and what is remembered of its runs; the callbacks that it has made stay.
// It returns store.ErrNotFound.
func (db *DB) DeleteSchedule(ctx context.Context, project, id string, now int64, by store.Actor) error {
	return db.change(ctx, "delete schedule "+id, func(t *tx) error {
		s, err := t.lockSchedule(project, id)
		if err != nil {
			return err
		}
		if _, err := t.Exec(`DELETE FROM schedules WHERE id = $1`, id); err != nil {
			return err
		}
		if _, err := t.Exec(`DELETE FROM schedule_runs WHERE schedule_id = $1`, id); err != nil {
			return named("remove its runs", err)
		}
		return t.auditChange(project, "schedule.delete", id, now, by,
			diff(scheduleParts, &s, new(store.Schedule)).removed(), fields{"name": s.Name})
	})
}

// Schedule returns one of the project; store.ErrNotFound.
func (db *DB) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	return sqldb.Get(db.read(ctx, "read schedules"), "schedule "+id, wholeSchedule,
		`FROM schedules WHERE id = $1 AND project = $2`, id, project)
}

// Schedules returns a part of the project's list of schedules, newest first.
func (db *DB) Schedules(ctx context.Context, project string,
	f store.ScheduleFilter) ([]store.Schedule, error) {
	var q query
	q.add("FROM schedules WHERE project = ?", project)
	q.andIf(f.After != "", "id < ?", f.After)
	q.andIf(f.Search != "", "strpos(search, ?) > 0", store.Fold(f.Search))
	if f.Enabled != nil {
		q.and("enabled = ?", sqldb.Bool(f.Enabled))
	}
	q.add("\n\tORDER BY id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return sqldb.Select(db.read(ctx, "read schedules"), wholeSchedule, q.text, q.args...)
}

// ScheduleRuns returns the last callbacks that a schedule has made, newest first; store.ErrNotFound.
func (db *DB) ScheduleRuns(ctx context.Context, project, id string) ([]store.ScheduleRun, error) {
	if _, err := db.Schedule(ctx, project, id); err != nil {
		return nil, err
	}
	return sqldb.Select(db.read(ctx, "read runs of a schedule"), runColumns, `FROM schedule_runs
		WHERE schedule_id = $1
		ORDER BY callback_id DESC
		LIMIT $2`, id, store.KeptRuns)
}

var runColumns = sqldb.Named[store.ScheduleRun](`callback_id due_at fired_at trigger`)

// NextSchedules returns the enabled schedules of all projects that have a next due time, those that come due
// first before the others, at most limit. Only those that are due at now have their templates.
func (db *DB) NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error) {
	return sqldb.Select(db.read(ctx, "read schedules"), dueSchedule, nextSchedules, now, limit)
}
