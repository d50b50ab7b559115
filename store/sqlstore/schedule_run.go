package sqlstore

import (
	"context"
	"errors"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A runEntry is one firing of a call.
type runEntry struct {
	store.PlannedRun
	accept acceptEntry
	won    bool
	// lastID is the callback that its schedule made last before; made, that an earlier try of this
	// transaction was it.
	lastID          string
	committedBefore bool
	err             error
}

// RunSchedules makes due times of schedules, all in one transaction, and answers each in its place. A firing takes
// effect if its schedule is still as it was read, enabled, and due next at that time: so of all dispatchers
// that see a due time one makes it, and its callback is accepted with that or not at all. A firing that alone
// cannot be made has its reason in Err. The error is store.ErrUnavailable or the context's: then none is
// known to have been made. Where the database goes away after a part was made, the rest has not won, and is
// due.
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
		return nil, named("fire schedules", err)
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

// runAll makes the runs in one transaction; if that is refused for good, each in one of its own.
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
			// What was made before them was made. These are as due as they were, and nothing is wrong with
			// them.
			for _, e := range entries[i:] {
				e.won, e.err = false, nil
			}
			return nil
		}
	}
	return nil
}

// away says that an error is not that of what was to be written.
func databaseFailed(ctx context.Context, err error) bool {
	return errors.Is(err, store.ErrUnavailable) || ctx.Err() != nil
}

// fire makes runs, in rounds in which no schedule comes twice.
func (t *tx) runSchedules(entries []*runEntry) error {
	return inRounds(entries, func(e *runEntry) string { return e.Schedule.ID }, t.runRound)
}

// runRound makes runs of different schedules, in the order of their ids.
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

// lockPlanned locks the schedules of runs and says which of these take effect.
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
		case t.Again && s.NextAt == e.Next:
			// It may be this one that moved it: in a try that was committed without our hearing of it.
			e.committedBefore = e.Draft != nil && s.LastID == e.Draft.Callback.ID ||
				e.Draft == nil && s.LastError == e.Why
			e.won = e.committedBefore
		}
	}
	return named("lock schedules", err)
}

var plannedFields = sqldb.Named[store.PlannedRun](`id=ScheduleID next_at=Next due_at=Due why`)

// advanceSchedules moves locked schedules on to their next due times. What was made last, and when, stays where no
// callback is.
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
	return named("move schedules on", err)
}

// A scheduleRun is a run with its schedule.
type scheduleRun struct {
	schedule string
	store.ScheduleRun
}

func scheduleRunColumns(r *scheduleRun) sqldb.Columns {
	return append(runColumns(&r.ScheduleRun), col("schedule_id", &r.schedule))
}

// writeRuns notes the callbacks of locked schedules, no two of the same, and forgets the oldest ones.
func (t *tx) writeRuns(runs []scheduleRun) error {
	if len(runs) == 0 {
		return nil
	}
	if err := sqldb.InsertRows(t.Tx, "schedule_runs", scheduleRunColumns, runs,
		`ON CONFLICT (schedule_id, callback_id) DO NOTHING`); err != nil {
		return named("note runs", err)
	}
	_, err := t.Exec(`DELETE FROM schedule_runs
		WHERE schedule_id IN (SELECT i.schedule_id FROM $i)
			AND callback_id <= (SELECT newer.callback_id FROM schedule_runs AS newer
				WHERE newer.schedule_id = schedule_runs.schedule_id
				ORDER BY newer.callback_id DESC
				LIMIT 1 OFFSET $1)`, store.KeptRuns, sqldb.Rows(runs, func(r *scheduleRun) sqldb.Columns {
		return sqldb.Columns{col("schedule_id", &r.schedule)}
	}))
	return named("forget old runs", err)
}

// readCommitted answers runs that an earlier try has made with the callbacks of that.
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

// RanSchedule accepts the callback of a schedule that a person wants now, enabled or not. Its next due time
// stays, and a firing that was read before takes effect all the same. It returns store.ErrNotFound, or the
// draft's own error.
func (db *DB) RanSchedule(ctx context.Context, project, id string, draft store.Draft, now int64,
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

func (t *tx) runScheduleNow(project, id string, e *acceptEntry, now int64, by store.Actor) error {
	s, err := t.lockSchedule(project, id)
	if err != nil {
		return err
	}
	if t.Again && s.LastID == e.draft.Callback.ID {
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
	if _, err := t.Exec(`UPDATE schedules SET last_at = $1, last_id = $2, last_error = '' WHERE id = $3`, now,
		made, id); err != nil {
		return named("note when it ran", err)
	}
	if err := t.writeRuns([]scheduleRun{{id, store.ScheduleRun{CallbackID: made, DueAt: now, FiredAt: now,
		Trigger: store.Manual}}}); err != nil {
		return err
	}
	ran := auditDiff{
		before: fields{"last_at": printedTime(s.LastAt), "last_id": callbackName(s.LastID)},
		after:  fields{"last_at": printedTime(now), "last_id": callbackName(made)},
	}
	return t.auditChange(project, "schedule.run", id, now, by, ran,
		fields{"callback": store.CallbackPrefix + made})
}
