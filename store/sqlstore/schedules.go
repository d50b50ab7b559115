package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A scheduleRow is a schedule with the columns that only writes use.
type scheduleRow struct {
	store.Schedule
	sealedKey, search string
}

// scheduleColumns are the columns of a schedule without its template.
var scheduleColumns = sqldb.Named[store.Schedule](`id project name cron timezone missed enabled next_at
	last_at last_id last_error version created_at updated_at`)

// wholeSchedule is all columns of a schedule.
func wholeSchedule(s *store.Schedule) sqldb.Columns {
	return append(scheduleColumns(s), col("template", &s.Template))
}

// dueSchedule reads the template only if the schedule is due at $1. Every dispatcher reads the next schedules
// again and again, and templates may be large.
func dueSchedule(s *store.Schedule) sqldb.Columns {
	return append(scheduleColumns(s), col("CASE WHEN next_at <= $1 THEN template ELSE '' END", &s.Template))
}

// scheduleRowColumns are the columns of a write.
func scheduleRowColumns(s *scheduleRow) sqldb.Columns {
	s.sealedKey, s.search = s.SealedKey(), store.Fold(s.Name)
	return append(wholeSchedule(&s.Schedule), col("sealed_key", &s.sealedKey), col("search", &s.search))
}

// nextSchedules finds the schedules that are due first, by the index schedules_next.
const nextSchedules = `FROM schedules
		WHERE next_at > 0 AND enabled = 1
		ORDER BY next_at, id
		LIMIT $2`

// CreateSchedule makes a schedule, at its CreatedAt, with version 1. It returns store.ErrExists if the
// project has one with that name, and a store.InvalidError if it has store.MaxSchedules.
func (db *DB) CreateSchedule(ctx context.Context, s store.Schedule, by store.Actor) (store.Schedule, error) {
	s.LastAt, s.LastID, s.LastError = 0, "", ""
	s.Version, s.UpdatedAt = 1, s.CreatedAt
	return changed(ctx, db.change, "create schedule", func(t *tx) (store.Schedule, error) {
		// The lock makes parallel creates follow each other, so that two cannot use the last free place.
		if err := t.lockProjectRow(s.Project); err != nil {
			return s, err
		}
		if t.MayBeCommitted {
			if there, err := t.lockSchedule(s.Project, s.ID); err == nil && there.CreatedAt == s.CreatedAt {
				return s, nil // an earlier try was committed, and its reply was lost
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
			return s, invalid("name", fmt.Sprintf("the project has %d schedules, which is the maximum", n))
		}
		if _, err := scheduleRowColumns(&scheduleRow{Schedule: s}).Insert(t.Tx, "schedules", ""); err != nil {
			return s, sqldb.Overtaken("insert schedule", err)
		}
		return s, t.auditChange(s.Project, "schedule.create", s.ID, s.CreatedAt, by,
			diff(scheduleParts, new(store.Schedule), &s).made(), fields{"name": s.Name})
	})
}

// nameIsFree returns store.ErrExists if another schedule of the project has the name. The unique index
// schedules_name guards it against a parallel change, which makes the transaction repeat.
func (t *tx) nameIsFree(s *store.Schedule) error {
	other, err := sqldb.Exists(t, `SELECT 1 FROM schedules WHERE project = $1 AND name = $2 AND id <> $3`,
		s.Project, s.Name, s.ID)
	if err == nil && other {
		return store.ErrExists
	}
	return named("check the name", err)
}

// lockSchedule reads a schedule and locks its row until the transaction ends. It returns store.ErrNotFound.
func (t *tx) lockSchedule(project, id string) (store.Schedule, error) {
	return sqldb.Get(t, "", wholeSchedule, `FROM schedules WHERE id = $1 AND project = $2 FOR UPDATE`, id,
		project)
}

// ChangeSchedule changes a schedule. change gets the schedule as it is, and may run more than once; it also
// sets the next due time. The store's own fields (ids, times, version, the last run) stay as they are. It
// returns the schedule after the change, store.ErrNotFound, store.ErrExists for a name that is taken, or the
// error of change. A change without effect gets no version and no audit entry. The new version makes a run
// that was planned before lose: see RunSchedules.
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
		s.ID, s.Project, s.Version = before.ID, before.Project, before.Version
		s.CreatedAt, s.UpdatedAt = before.CreatedAt, before.UpdatedAt
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
		columns := scheduleRowColumns(&scheduleRow{Schedule: s})
		if _, err := columns.Update(t.Tx, "schedules", `id = $1`, id); err != nil {
			return s, sqldb.Overtaken("write schedule", err)
		}
		changes := diff(scheduleParts, &before, &s)
		return s, t.auditChange(project, "schedule.update", id, now, by, changes,
			fields{"changed": changes.names})
	})
}

// DeleteSchedule deletes a schedule and the list of its runs, or returns store.ErrNotFound. The callbacks of
// its runs stay.
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

// Schedule returns a schedule of the project, or store.ErrNotFound.
func (db *DB) Schedule(ctx context.Context, project, id string) (store.Schedule, error) {
	return sqldb.Get(db.read(ctx, "read schedules"), "schedule "+id, wholeSchedule,
		`FROM schedules WHERE id = $1 AND project = $2`, id, project)
}

// Schedules returns a page of the project's schedules, newest first.
func (db *DB) Schedules(ctx context.Context, project string,
	f store.ScheduleFilter) ([]store.Schedule, error) {
	var q query
	q.add("FROM schedules WHERE project = ?", project)
	q.andIf(f.After != "", "id < ?", f.After)
	q.andIf(f.Search != "", "strpos(search, ?) > 0", store.Fold(f.Search))
	if f.Enabled != nil {
		q.and("enabled = ?", sqldb.Bool(f.Enabled))
	}
	q.andIf(f.LateBefore != 0, "enabled = 1 AND (next_at > 0 AND next_at < ? OR last_error <> '')",
		f.LateBefore)
	q.add("\n\tORDER BY id DESC LIMIT ?", min(max(f.Limit, 1), maxList+1))
	return sqldb.Select(db.read(ctx, "read schedules"), wholeSchedule, q.text, q.args...)
}

// LateSchedules returns up to limit enabled schedules of the project that were due before a time and have not
// run, or whose last run created no callback.
func (db *DB) LateSchedules(ctx context.Context, project string, before int64,
	limit int) ([]store.Schedule, error) {
	return sqldb.Select(db.read(ctx, "read late schedules"), scheduleColumns, `FROM schedules
		WHERE project = $1 AND enabled = 1 AND (next_at > 0 AND next_at < $2 OR last_error <> '')
		ORDER BY id
		LIMIT $3`, project, before, limit)
}

// ScheduleRuns returns the callbacks of the schedule's last runs, newest first, or store.ErrNotFound.
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

// NextSchedules returns up to limit enabled schedules of all projects that have a next due time, in the order
// of that time. Only those that are due at now have their templates.
func (db *DB) NextSchedules(ctx context.Context, now int64, limit int) ([]store.Schedule, error) {
	return sqldb.Select(db.read(ctx, "read schedules"), dueSchedule, nextSchedules, now, limit)
}
