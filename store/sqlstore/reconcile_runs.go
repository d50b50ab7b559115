package sqlstore

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// AddExpected adds items to the list of a project and day, which may have at most most items. Items that are
// in the list already change nothing. The error of a list that would be too long is a store.InvalidError, and
// then nothing is added.
func (db *DB) AddExpected(ctx context.Context, project, day string, items []store.RefTopic, most, now int64,
	by store.Actor) (store.ExpectedDay, error) {
	return changed(ctx, db.changeLong, "add expected callbacks", func(t *tx) (d store.ExpectedDay, _ error) {
		created, err := t.Exec(`INSERT INTO expected_days (project, day, items, updated_at)
			VALUES ($1, $2, 0, $3) ON CONFLICT (project, day) DO NOTHING`, project, day, now)
		if err != nil {
			return d, err
		}
		before, err := t.lockExpected(project, day)
		if err != nil {
			return d, err
		}
		for page := range slices.Chunk(newGivenItems(items).all, compareRefs) {
			n, err := t.Exec(`INSERT INTO expected_items (project, day, ref, topic)
				SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), i.ref, i.topic FROM $i WHERE TRUE
				ON CONFLICT (project, day, ref, topic) DO NOTHING`, project, day,
				sqldb.Rows(page, refTopicColumns))
			if err != nil {
				return d, err
			}
			d.Added += n
		}
		d.Items = before + d.Added
		switch {
		case d.Items > most:
			return d, invalid("items", fmt.Sprintf("the list of %s would have %d items; at most %d", day,
				d.Items, most))
		case d.Added+created == 0:
			return d, nil
		}
		return d, t.listChanged(project, day, "reconcile.list.add", d.Items, now, by,
			fields{"added": d.Added})
	})
}

// lockExpected locks a list and returns the number of its items, or store.ErrNotFound.
func (t *tx) lockExpected(project, day string) (int64, error) {
	items, found, err := sqldb.Value[int64](t, `SELECT items FROM expected_days
		WHERE project = $1 AND day = $2 FOR UPDATE`, project, day)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return items, err
}

// listChanged stores the number of items of a list, and one audit entry for the request.
func (t *tx) listChanged(project, day, action string, items, now int64, by store.Actor, detail fields) error {
	if _, err := t.Exec(`UPDATE expected_days SET items = $1, updated_at = $2
		WHERE project = $3 AND day = $4`, items, now, project, day); err != nil {
		return err
	}
	detail["items"] = items
	return t.auditChange(project, action, day, now, by, auditDiff{}, detail)
}

// RemoveExpected removes items from the list of a project and day. Items that the list does not have change
// nothing. It returns store.ErrNotFound if there is no list.
func (db *DB) RemoveExpected(ctx context.Context, project, day string, items []store.RefTopic, now int64,
	by store.Actor) (store.ExpectedDay, error) {
	return changed(ctx, db.changeLong, "remove expected callbacks",
		func(t *tx) (d store.ExpectedDay, _ error) {
			before, err := t.lockExpected(project, day)
			if err != nil {
				return d, err
			}
			for page := range slices.Chunk(newGivenItems(items).all, compareRefs) {
				n, err := t.Exec(`DELETE FROM expected_items WHERE project = $1 AND day = $2
					AND (ref, topic) IN (SELECT i.ref, i.topic FROM $i)`, project, day,
					sqldb.Rows(page, refTopicColumns))
				if err != nil {
					return d, err
				}
				d.Removed += n
			}
			d.Items = before - d.Removed
			if d.Removed == 0 {
				return d, nil
			}
			return d, t.listChanged(project, day, "reconcile.list.remove", d.Items, now, by,
				fields{"removed": d.Removed})
		})
}

// ClearExpected deletes the list of a project and day. Then it is as if none had been submitted. It returns
// store.ErrNotFound if there is no list.
func (db *DB) ClearExpected(ctx context.Context, project, day string, now int64,
	by store.Actor) (store.ExpectedDay, error) {
	return changed(ctx, db.changeLong, "delete a list of expected callbacks",
		func(t *tx) (d store.ExpectedDay, _ error) {
			_, err := t.lockExpected(project, day)
			if err != nil {
				return d, err
			}
			for _, table := range []string{"expected_days", "expected_items"} { // d.Removed is of the last
				d.Removed, err = t.Exec(`DELETE FROM `+table+` WHERE project = $1 AND day = $2`, project, day)
				if err != nil {
					return d, err
				}
			}
			return d, t.auditChange(project, "reconcile.list.remove", day, now, by, auditDiff{},
				fields{"removed": d.Removed, "items": 0})
		})
}

// DueReconciles returns up to limit projects whose daily reconciliation is due, the longest due first.
func (db *DB) DueReconciles(ctx context.Context, now int64, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `reconcile_next > 0 AND reconcile_next <= $1
		ORDER BY reconcile_next, id LIMIT $2`, now, limit)
}

// FailReconcile records why the daily run of a project that is due at a time failed. The next run that
// succeeds removes it.
func (db *DB) FailReconcile(ctx context.Context, project string, due int64, why string) error {
	return db.changeBy(ctx, "record a failed reconciliation", `UPDATE projects SET reconcile_error = $1
		WHERE id = $2 AND reconcile_next = $3`, why, project, due)
}

var (
	reconciledColumns = sqldb.Named[store.ReconcileReport](`project day run_id timezone from_at=From to_at=To
		run_at accepted=BooksAccepted succeeded=BooksSucceeded dead=BooksDead canceled=BooksCanceled
		open=BooksOpen expect_list list_given listed matched missing unfinished duplicates extra announced`)
	reconcileItemColumns = sqldb.Named[store.ReconcileItem](`number kind ref=RefTopicRef topic=RefTopicTopic
		state callback_id callbacks`)
)

// RunReconcile counts and compares one day of a project, and stores the report in the place of the day's
// earlier one, with up to most items of each kind. A listed item that was accepted after the day, before the
// run, is not missing: an order of the last second may be, and so may one that was lost and sent again.
//
// A run for a due time sets the project's next time. If another process has made that run, it returns the
// report that is stored.
func (db *DB) RunReconcile(ctx context.Context, run store.ReconcileRun, most int, now int64,
	by store.Actor) (store.ReconcileReport, error) {
	report, items, err := db.reconcileDay(ctx, run, most, now)
	if err != nil {
		return report, err
	}
	report.RunID, err = db.idAt(now)
	if err == nil {
		err = db.writeItems(ctx, report.RunID, items)
	}
	if err != nil {
		return report, err
	}
	var replaced string
	report, err = changed(ctx, db.change, "store the reconciliation",
		func(t *tx) (r store.ReconcileReport, err error) {
			r, replaced, err = t.storeReport(run, report, now, by)
			return r, err
		})
	if err != nil || replaced == "" {
		return report, err
	}
	_, err = db.deleteBatches(ctx, "remove a replaced reconciliation", maxReconcileItems,
		`DELETE FROM reconcile_items WHERE run_id = $1 AND number IN (
			SELECT number FROM reconcile_items WHERE run_id = $1 LIMIT $2)`, replaced)
	return report, err
}

// maxReconcileItems bounds the items of one run.
const maxReconcileItems = 1_000_000

// reconcileDay makes the report of a run, and its items.
func (db *DB) reconcileDay(ctx context.Context, run store.ReconcileRun, most int,
	now int64) (r store.ReconcileReport, items []store.ReconcileItem, err error) {
	r = store.ReconcileReport{Project: run.Project, Day: run.Day, Timezone: run.Timezone, From: run.From,
		To: run.To, RunAt: now, ExpectList: run.ExpectList}
	books, err := db.Reconcile(ctx, run.Project, store.ReconcileQuery{From: run.From, To: run.To})
	if err != nil {
		return r, nil, err
	}
	r.Books = books[0]
	read := db.read(ctx, "compare the expected callbacks")
	r.ListGiven, err = sqldb.Exists(read, `SELECT 1 FROM expected_days WHERE project = $1 AND day = $2`,
		run.Project, run.Day)
	if err != nil || !r.ListGiven {
		r.Announced = len(r.Wrong()) == 0
		return r, nil, err
	}
	c := itemComparer{db: db, read: read, project: run.Project, from: run.From, to: run.To,
		until: max(run.To, now+1), most: most}
	found, err := c.compare(&expectedItems{read: read, project: run.Project, day: run.Day})
	r.Listed, r.Matched, r.Missing = found.Listed, found.Matched, found.Missing
	r.Unfinished, r.Duplicates, r.Extra = found.Unfinished, found.Duplicates, found.Extra
	r.Announced = len(r.Wrong()) == 0
	return r, found.Items, err
}

// writeItems stores the items of a run, before its report.
func (db *DB) writeItems(ctx context.Context, runID string, items []store.ReconcileItem) error {
	for i := range items {
		items[i].Number = int64(i) + 1
	}
	columns := func(item *store.ReconcileItem) sqldb.Columns {
		return append(reconcileItemColumns(item), col("run_id", &runID))
	}
	for part := range slices.Chunk(items, db.sql.Dialect.MaintenanceBatch) {
		if err := db.maintain(ctx, "store the items of a reconciliation", func(t *tx) error {
			return sqldb.InsertRows(t.Tx, "reconcile_items", columns, part,
				`ON CONFLICT (run_id, number) DO NOTHING`)
		}); err != nil {
			return err
		}
	}
	return nil
}

// storeReport replaces the report of the day. The project's row is locked, so one run for a due time wins. It
// returns the report that is stored now, and the run whose items are not needed any more.
func (t *tx) storeReport(run store.ReconcileRun, r store.ReconcileReport, now int64,
	by store.Actor) (_ store.ReconcileReport, replaced string, err error) {
	p, err := t.lockProject(run.Project)
	if err != nil {
		return r, "", err
	}
	stored, found, err := sqldb.One(t, reconciledColumns, `FROM reconcile_reports
		WHERE project = $1 AND day = $2`, run.Project, run.Day)
	switch {
	case err != nil:
		return r, "", err
	case found && stored.RunID == r.RunID:
		return stored, "", nil // an earlier try was committed, and its reply was lost
	case run.Due != 0 && p.ReconcileNext != run.Due && found:
		return stored, r.RunID, nil
	case run.Due != 0 && p.ReconcileNext != run.Due:
		return r, r.RunID, nil // the daily run was switched off meanwhile
	}
	columns := reconciledColumns(&r)
	if _, err := columns.Insert(t.Tx, "reconcile_reports",
		`ON CONFLICT (project, day) DO UPDATE SET `+columns.Overwrite("project", "day")); err != nil {
		return r, "", err
	}
	if run.Due == 0 {
		return r, stored.RunID, t.auditChange(run.Project, "reconcile.run", run.Day, now, by, auditDiff{},
			nil)
	}
	_, err = t.Exec(`UPDATE projects SET reconcile_next = $1, reconcile_error = '' WHERE id = $2`,
		run.Next, run.Project)
	return r, stored.RunID, err
}

// ReconcileReports returns up to limit reports of the project with days before one, newest day
// first. An empty
// day means all.
func (db *DB) ReconcileReports(ctx context.Context, project, before string,
	limit int) ([]store.ReconcileReport, error) {
	return sqldb.Select(db.read(ctx, "read reconciliations"), reconciledColumns, `FROM reconcile_reports
		WHERE project = $1 AND ($2 = '' OR day < $2) ORDER BY day DESC LIMIT $3`, project, before, limit)
}

// ReconcileReport returns the report of a day, or store.ErrNotFound.
func (db *DB) ReconcileReport(ctx context.Context, project, day string) (store.ReconcileReport, error) {
	return sqldb.Get(db.read(ctx, "read reconciliations"), "reconciliation of "+day, reconciledColumns,
		`FROM reconcile_reports WHERE project = $1 AND day = $2`, project, day)
}

// ReconcileItems returns up to limit items of a report with numbers above after. An empty kind means all.
func (db *DB) ReconcileItems(ctx context.Context, project, day string, kind store.ItemKind, after int64,
	limit int) ([]store.ReconcileItem, error) {
	return sqldb.Select(db.read(ctx, "read reconciliations"), reconcileItemColumns, `FROM reconcile_items
		WHERE run_id = (SELECT run_id FROM reconcile_reports WHERE project = $1 AND day = $2)
			AND number > $3 AND ($4 = '' OR kind = $4)
		ORDER BY number LIMIT $5`, project, day, after, string(kind), limit)
}

// UnannouncedReports returns up to limit reports whose operational event has not been accepted.
func (db *DB) UnannouncedReports(ctx context.Context, limit int) ([]store.ReconcileReport, error) {
	return sqldb.Select(db.read(ctx, "read reconciliations"), reconciledColumns, `FROM reconcile_reports
		WHERE announced = 0 ORDER BY run_at LIMIT $1`, limit)
}

// MarkAnnounced records that the event of a run was accepted.
func (db *DB) MarkAnnounced(ctx context.Context, runID string) error {
	return db.changeBy(ctx, "mark reconciliation", `UPDATE reconcile_reports SET announced = 1
		WHERE run_id = $1`, runID)
}

// orphanAge is how old the items of a run that died are when they are removed, and orphanSpan how long the
// purge looks for them. Later, retention removes them.
const (
	orphanAge  = 24 * time.Hour
	orphanSpan = 2 * time.Hour
)

// PurgeReconciles deletes up to limit rows of each kind: reports of runs before a time with their
// items, items
// of runs that died, and lists of days before a day. It returns how many.
func (db *DB) PurgeReconciles(ctx context.Context, now, before int64, day string, limit int) (int, error) {
	old := now - orphanAge.Milliseconds()
	removed := 0
	for _, d := range []struct {
		text string
		args []any
	}{
		{`DELETE FROM reconcile_reports WHERE run_id IN (
			SELECT run_id FROM reconcile_reports WHERE run_at < $1 ORDER BY run_at LIMIT $2)`, []any{before}},
		{`DELETE FROM reconcile_items WHERE (run_id, number) IN (
			SELECT run_id, number FROM reconcile_items WHERE run_id < $1 LIMIT $2)`, []any{idsFrom(before)}},
		{`DELETE FROM reconcile_items WHERE (run_id, number) IN (
			SELECT items.run_id, items.number FROM reconcile_items AS items
			WHERE items.run_id > $1 AND items.run_id < $2 AND NOT EXISTS (
				SELECT 1 FROM reconcile_reports AS r WHERE r.run_id = items.run_id) LIMIT $3)`,
			[]any{idsFrom(old - orphanSpan.Milliseconds()), idsFrom(old)}},
		{`DELETE FROM expected_items WHERE (project, day, ref, topic) IN (
			SELECT items.project, items.day, items.ref, items.topic
			FROM expected_days AS days CROSS JOIN expected_items AS items
			WHERE days.day < $1 AND items.project = days.project AND items.day = days.day LIMIT $2)`,
			[]any{day}},
		{`DELETE FROM expected_days WHERE (project, day) IN (
			SELECT days.project, days.day FROM expected_days AS days
			WHERE days.day < $1 AND NOT EXISTS (
				SELECT 1 FROM expected_items AS items
				WHERE items.project = days.project AND items.day = days.day) LIMIT $2)`, []any{day}},
	} {
		n, err := db.deleteBatches(ctx, "purge reconciliations", limit, d.text, d.args...)
		removed += n
		if err != nil {
			return removed, err
		}
	}
	return removed, nil
}
