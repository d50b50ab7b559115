package sqlstore

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A runEntry is one planned run in a call of RunSchedules.
type runEntry struct {
	store.PlannedRun
	accept acceptEntry
	// won is set if the run takes effect.
	won bool
	// lastID is the callback of the schedule's run before this one. committedBefore is set if an earlier try
	// of this transaction was committed with this run.
	lastID          string
	committedBefore bool
	err             error
}

// RunSchedules runs schedules that are due, all in one transaction, and answers each run in its place. A run
// takes effect only if its schedule is enabled, unchanged, and due next at the planned time; its row is
// locked meanwhile. So of several dispatchers that see one due time, one runs it. The run's callback is
// accepted in the same transaction, or not at all.
//
// Err of a result is why this run alone cannot be made. If RunSchedules returns an error, no run is known to
// be made; the error is store.ErrUnavailable or the context's. If the database fails after a part was
// committed, the other runs have not won, and are still due.
func (db *DB) RunSchedules(ctx context.Context, runs []store.PlannedRun) ([]store.PlannedRunResult, error) {
	entries := make([]*runEntry, 0, len(runs))
	own := make([]runEntry, len(runs))
	for i := range runs {
		e := &own[i]
		e.PlannedRun = runs[i]
		if e.Draft != nil {
			e.accept.draft = e.Draft
			e.err = e.accept.encode(&db.written)
			if e.err != nil {
				continue
			}
		}
		entries = append(entries, e)
	}
	if err := db.runAll(ctx, entries); err != nil {
		return nil, named("run schedules", err)
	}
	results := make([]store.PlannedRunResult, len(runs))
	for i := range own {
		switch e := &own[i]; {
		case e.err != nil:
			results[i].Err = e.err
		case e.won:
			results[i] = store.PlannedRunResult{Won: true, Accepted: e.accept.out}
			if e.Draft != nil {
				db.cacheAccepted(&e.accept)
			}
		}
	}
	return results, nil
}

// runAll makes the runs in one transaction. If that fails for good, it makes each in a transaction of its
// own, so that one bad run does not stop the others.
func (db *DB) runAll(ctx context.Context, entries []*runEntry) error {
	if len(entries) == 0 {
		return nil
	}
	err := db.changeLong(ctx, "", func(t *tx) error { return t.runSchedules(entries) })
	if err == nil || databaseFailed(ctx, err) {
		return err
	}
	if len(entries) == 1 {
		db.sql.CountRefused()
		entries[0].err = err
		return nil
	}
	for i := range entries {
		err := db.runAll(ctx, entries[i:i+1])
		if err != nil && i == 0 {
			return err
		}
		if err != nil {
			// The runs before this one are committed. The rest is still due, and was not at fault.
			for _, e := range entries[i:] {
				e.won, e.err = false, nil
			}
			return nil
		}
	}
	return nil
}

// databaseFailed reports whether an error concerns the database or the context, and not the rows that were to
// be written.
func databaseFailed(ctx context.Context, err error) bool {
	return errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil
}

// runSchedules makes runs, in rounds in which no schedule occurs twice.
func (t *tx) runSchedules(entries []*runEntry) error {
	return inRounds(entries, func(e *runEntry) string { return e.Schedule.ID }, t.runRound)
}

// runRound makes runs of different schedules in one transaction: it locks the schedules, accepts the
// callbacks of the runs that win, moves the schedules on to their next due times, and stores the runs.
func (t *tx) runRound(entries []*runEntry) error {
	for _, e := range entries {
		e.won, e.committedBefore, e.lastID, e.err, e.accept.out = false, false, "", nil, store.Accepted{}
	}
	if err := t.lockPlanned(entries); err != nil {
		return err
	}
	var drafts []*acceptEntry
	for _, e := range entries {
		if e.won && !e.committedBefore && e.Draft != nil {
			drafts = append(drafts, &e.accept)
		}
	}
	if err := t.applyDrafts(drafts); err != nil {
		return named("accept the callbacks of schedules", err)
	}
	var done []runEntry
	var runs []scheduleRun
	for _, e := range entries {
		switch {
		case !e.won || e.committedBefore:
			continue
		case e.accept.out.Err != nil:
			e.won, e.err = false, e.accept.out.Err
			continue
		case e.Draft != nil:
			runs = append(runs, scheduleRun{e.Schedule.ID, store.ScheduleRun{
				CallbackID: e.accept.out.Callback.ID, DueAt: e.Due, FiredAt: e.Now, Trigger: store.BySchedule,
			}})
		}
		done = append(done, *e)
	}
	if err := t.advanceSchedules(done); err != nil {
		return err
	}
	if err := t.writeRuns(runs); err != nil {
		return err
	}
	return t.readCommitted(entries)
}

// lockPlanned locks the schedules of the runs, in the order of their ids, and marks the runs that take
// effect. A second dispatcher with the same run waits for the lock, then finds a later next_at, and its run
// loses.
func (t *tx) lockPlanned(entries []*runEntry) error {
	byID := make(map[string]*runEntry, len(entries))
	for _, e := range entries {
		byID[e.Schedule.ID] = e
	}
	schedules, err := sqldb.Select(t, scheduleColumns,
		`FROM schedules WHERE id IN (SELECT i.id FROM $i) ORDER BY id FOR UPDATE`,
		sqldb.Texts("id", sortedKeys(byID)))
	for _, s := range schedules {
		e := byID[s.ID]
		e.lastID = s.LastID
		switch {
		case s.Version == e.Schedule.Version && s.NextAt == e.Schedule.NextAt && s.Enabled:
			e.won = true
		case t.MayBeCommitted && s.NextAt == e.Next:
			// An earlier try may have been committed although its reply was lost: then the schedule is as
			// this run leaves it.
			e.committedBefore = e.Draft != nil && s.LastID == e.Draft.Callback.ID ||
				e.Draft == nil && s.LastError == e.Why
			e.won = e.committedBefore
		}
	}
	return named("lock schedules", err)
}

var plannedFields = sqldb.Named[store.PlannedRun](`id=ScheduleID next_at=Next due_at=Due why`)

// advanceSchedules moves locked schedules on to their next due times. A run without a callback leaves the
// last callback and its time as they are.
func (t *tx) advanceSchedules(entries []runEntry) error {
	_, err := sqldb.ExecRows(t.Tx, `UPDATE schedules SET
			next_at = i.next_at,
			last_at = CASE WHEN i.callback_id <> '' THEN i.due_at ELSE schedules.last_at END,
			last_id = CASE WHEN i.callback_id <> '' THEN i.callback_id ELSE schedules.last_id END,
			last_error = CASE WHEN i.callback_id <> '' THEN '' ELSE i.why END
		FROM $i WHERE schedules.id = i.id`, entries,
		func(e *runEntry) sqldb.Columns {
			return append(plannedFields(&e.PlannedRun), col("callback_id", &e.accept.out.Callback.ID))
		})
	return named("set the next due times", err)
}

// A scheduleRun is a run with the id of its schedule.
type scheduleRun struct {
	schedule string
	store.ScheduleRun
}

// scheduleRunColumns are the columns of a run.
func scheduleRunColumns(r *scheduleRun) sqldb.Columns {
	return append(runColumns(&r.ScheduleRun), col("schedule_id", &r.schedule))
}

// writeRuns stores one run each of locked schedules, and deletes the oldest ones beyond store.KeptRuns.
func (t *tx) writeRuns(runs []scheduleRun) error {
	if len(runs) == 0 {
		return nil
	}
	if err := sqldb.InsertRows(t.Tx, "schedule_runs", scheduleRunColumns, runs,
		`ON CONFLICT (schedule_id, callback_id) DO NOTHING`); err != nil {
		return named("store runs", err)
	}
	_, err := t.Exec(`DELETE FROM schedule_runs
		WHERE schedule_id IN (SELECT i.schedule_id FROM $i)
			AND callback_id <= (SELECT newer.callback_id FROM schedule_runs AS newer
				WHERE newer.schedule_id = schedule_runs.schedule_id
				ORDER BY newer.callback_id DESC
				LIMIT 1 OFFSET $1)`, store.KeptRuns, sqldb.Rows(runs, func(r *scheduleRun) sqldb.Columns {
		return sqldb.Columns{col("schedule_id", &r.schedule)}
	}))
	return named("delete old runs", err)
}

// readCommitted fills in the callbacks of runs that an earlier try of this transaction committed.
func (t *tx) readCommitted(entries []*runEntry) error {
	var ids []string
	for _, e := range entries {
		if e.committedBefore && e.Draft != nil {
			ids = append(ids, e.lastID)
		}
	}
	found, err := t.callbacksByID(ids, "")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if r, ok := found[e.lastID]; ok && e.committedBefore {
			e.accept.out.Callback = r.Callback
		}
	}
	return nil
}

// RunScheduleNow accepts the callback of a schedule that a person wants now, whether the schedule is enabled
// or not. The next due time and the version stay, so a run that was planned before still takes effect. It
// returns store.ErrNotFound, or the error of the draft.
func (db *DB) RunScheduleNow(ctx context.Context, project, id string, draft store.Draft, now int64,
	by store.Actor) (store.Accepted, error) {
	e := acceptEntry{draft: &draft}
	err := e.encode(&db.written)
	if err == nil {
		err = db.change(ctx, "run schedule "+id, func(t *tx) error {
			return t.runScheduleNow(project, id, &e, now, by)
		})
	}
	if err != nil {
		return store.Accepted{}, err
	}
	db.cacheAccepted(&e)
	return e.out, nil
}

// runScheduleNow is the transaction of RunScheduleNow. The schedule's row is locked, so that a repeated try
// can recognize its own callback.
func (t *tx) runScheduleNow(project, id string, e *acceptEntry, now int64, by store.Actor) error {
	s, err := t.lockSchedule(project, id)
	if err != nil {
		return err
	}
	if t.MayBeCommitted && s.LastID == e.draft.Callback.ID {
		// an earlier try was committed, and its reply lost
		found, err := t.callbacksByID([]string{s.LastID}, "")
		e.out = store.Accepted{Callback: found[s.LastID].Callback}
		return err
	}
	if err := t.applyDrafts([]*acceptEntry{e}); err != nil {
		return named("accept its callback", err)
	}
	if e.out.Err != nil {
		return e.out.Err
	}
	made := e.out.Callback.ID
	_, err = t.Exec(`UPDATE schedules SET last_at = $1, last_id = $2, last_error = '' WHERE id = $3`,
		now, made, id)
	if err != nil {
		return named("store its last run", err)
	}
	run := store.ScheduleRun{CallbackID: made, DueAt: now, FiredAt: now, Trigger: store.Manual}
	if err := t.writeRuns([]scheduleRun{{id, run}}); err != nil {
		return err
	}
	ran := auditDiff{
		before: fields{"last_at": printedTime(s.LastAt), "last_id": callbackName(s.LastID)},
		after:  fields{"last_at": printedTime(now), "last_id": callbackName(made)},
	}
	return t.auditChange(project, "schedule.run", id, now, by, ran,
		fields{"callback": store.CallbackPrefix + made})
}
