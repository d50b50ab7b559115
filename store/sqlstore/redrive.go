package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// The actions of redrives in the audit.
const (
	actionCreateRedrive = "redrive.create"
	actionPauseRedrive  = "redrive.pause"
	actionResumeRedrive = "redrive.resume"
	actionCancelRedrive = "redrive.cancel"
)

// A redriveSpec is what a redrive does, as it is stored.
type redriveSpec struct {
	Action store.RedriveAction `json:"action"`
	Filter store.Filter        `json:"filter"`
	Shown  store.JSONText      `json:"shown"`
	Ladder store.Ladder        `json:"ladder,omitempty"`
	URL    string              `json:"url,omitempty"`
	DueAt  int64               `json:"due_at,omitempty"`
	Delay  int64               `json:"delay,omitempty"`
	Rate   store.Rate          `json:"rate,omitzero"`
}

// A redriveRow is a redrive as it is stored.
type redriveRow struct {
	store.Redrive
	spec  redriveSpec
	after store.Cursor
}

func redriveColumns(r *redriveRow) sqldb.Columns {
	return append(redriveProgress(r),
		col("id", &r.ID), col("project", &r.Project), col("spec", sqldb.JSON(&r.spec)), col("actor", &r.Actor),
		col("address", &r.Address), col("reason", &r.Reason), col("created_at", &r.CreatedAt))
}

// redriveProgress describes what changes of a redrive.
func redriveProgress(r *redriveRow) sqldb.Columns {
	return sqldb.Columns{
		col("state", &r.State), col("paused", sqldb.Bool(&r.Paused)), col("matched", &r.Matched), col("done", &r.Done),
		col("failed", &r.Failed), col("updated_at", &r.UpdatedAt), col("finished_at", &r.FinishedAt),
		col("gathered_due", &r.after.DueAt), col("gathered_id", &r.after.ID),
	}
}

func readRedrives(q sqldb.Querier, rest string, args ...any) ([]store.Redrive, error) {
	rows, err := sqldb.Select(q, redriveColumns, `FROM redrives `+rest, args...)
	var redrives []store.Redrive
	for i := range rows {
		r, spec := rows[i].Redrive, rows[i].spec
		r.Action, r.Filter, r.Shown, r.Ladder, r.URL = spec.Action, spec.Filter, spec.Shown, spec.Ladder, spec.URL
		r.DueAt, r.Delay, r.Rate = spec.DueAt, spec.Delay, spec.Rate
		if rows[i].after != (store.Cursor{}) {
			r.After = &rows[i].after
		}
		redrives = append(redrives, r)
	}
	return redrives, err
}

// CreateRedrive inserts a redrive; its callbacks are gathered from then on. It returns
// store.ErrTooManyRedrives if the project has store.MaxOpenRedrives already, and store.ErrNotFound if there
// is no such project.
func (db *DB) CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error) {
	r.State, r.UpdatedAt = store.RedriveGathering, r.CreatedAt
	r.Actor, r.Address, r.Reason = by.Name, by.Address, by.Reason
	row := redriveRow{Redrive: r, spec: redriveSpec{r.Action, r.Filter, r.Shown, r.Ladder, r.URL, r.DueAt, r.Delay, r.Rate}}
	return r, db.change(ctx, "create redrive", func(t *tx) error {
		// The lock has parallel creates count each other's redrive.
		if _, err := t.lockProject(r.Project); err != nil {
			return err
		}
		n, err := redriveColumns(&row).Insert(t.Tx, "redrives", `ON CONFLICT (id) DO NOTHING`)
		if err != nil || n == 0 {
			return err // there already: an earlier try was committed, and its reply lost
		}
		if err := t.boundRedrives(r.Project); err != nil {
			return err
		}
		return t.auditChange(r.Project, actionCreateRedrive, r.ID, r.CreatedAt, by,
			diffRedrive(new(store.Redrive), &r).made(), map[string]any{"action": r.Action, "filter": r.Shown})
	})
}

// boundRedrives returns store.ErrTooManyRedrives if the project has too many open redrives. The caller holds
// the project's lock.
func (t *tx) boundRedrives(project string) error {
	open, _, err := sqldb.Value[int](t, `SELECT COUNT(*) FROM redrives WHERE project = $1 AND finished_at = 0`, project)
	if err == nil && open > store.MaxOpenRedrives {
		return store.ErrTooManyRedrives
	}
	return named("count open redrives", err)
}

// Redrive returns one of the project; store.ErrNotFound.
func (db *DB) Redrive(ctx context.Context, project, id string) (store.Redrive, error) {
	found, err := readRedrives(db.read(ctx, "read redrives"), `WHERE id = $1 AND project = $2`, id, project)
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("redrive %s: %w", id, store.ErrNotFound)
	}
	if err != nil {
		return store.Redrive{}, err
	}
	return found[0], nil
}

// Redrives returns the project's, newest first, those before the one named after; "" is the beginning.
func (db *DB) Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error) {
	return readRedrives(db.read(ctx, "read redrives"), `WHERE project = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, project, after, limit)
}

// redriveToDo selects redrives that are neither paused nor ended, in the words of the index redrives_to_do. A
// redrive that is paused while it is being gathered is gathered to the end.
const redriveToDo = `state IN ('gathering', 'running')`

// RedrivesToDo returns, by project and id, the redrives that are neither paused nor ended, of the first limit
// projects above after that have any.
func (db *DB) RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error) {
	return readRedrives(db.read(ctx, "read redrives"), `WHERE `+redriveToDo+` AND project IN (
			SELECT DISTINCT project FROM redrives WHERE `+redriveToDo+` AND project > $1
			ORDER BY project LIMIT $2)
		ORDER BY project, id`, after, limit)
}

// SetRedrive pauses a redrive, resumes it or cancels it: what it has not done yet it will not do. One that has ended is
// store.ErrTerminal.
func (db *DB) SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64, by store.Actor) (store.Redrive, error) {
	return changed(ctx, db, "change redrive "+id, func(t *tx) (store.Redrive, error) {
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
		action, before := actionPauseRedrive, r
		switch to {
		case store.RedrivePaused:
			r.Paused = true
		case store.RedriveRunning:
			action, r.Paused = actionResumeRedrive, false
		case store.RedriveCanceled:
			action, r.State, r.FinishedAt = actionCancelRedrive, to, now
			if _, err := t.Exec(`DELETE FROM redrive_items WHERE redrive_id = $1`, id); err != nil {
				return r, fmt.Errorf("forget what is left of it: %w", err)
			}
		default:
			return r, fmt.Errorf("a redrive cannot be made %q", to)
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
		return r, t.auditChange(project, action, id, now, by, diffRedrive(&before, &r), nil)
	})
}

// lockRedrive reads a redrive that this transaction is going to change.
func (t *tx) lockRedrive(id string) (store.Redrive, error) {
	found, err := readRedrives(t, `WHERE id = $1 FOR UPDATE`, id)
	if err == nil && len(found) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		return store.Redrive{}, err
	}
	return found[0], nil
}

func (t *tx) writeRedrive(r *store.Redrive, now int64) error {
	r.UpdatedAt = now
	row := redriveRow{Redrive: *r}
	if r.After != nil {
		row.after = *r.After
	}
	_, err := redriveProgress(&row).Update(t.Tx, "redrives", `id = $1`, r.ID)
	return named("write redrive", err)
}

// GatherRedrive writes down one more page of what a redrive's filter picks, and returns the redrive as it is then. It does nothing for
// one that is not being gathered.
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
	err = db.change(ctx, "gather redrive "+id, func(t *tx) error {
		locked, err := t.lockRedrive(id)
		if err != nil {
			return err
		}
		if locked.State != store.RedriveGathering || !sameCursor(locked.After, r.After) {
			r = locked
			return errMoved // somebody else gathers, or it was canceled
		}
		added, err := t.addRedriveItems(id, page.Callbacks)
		if err != nil {
			return err
		}
		r = locked
		r.Matched += added
		if r.After = page.Next; r.After == nil {
			gathered(&r, now)
		}
		return t.writeRedrive(&r, now)
	})
	if errors.Is(err, errMoved) {
		err = nil
	}
	return r, err
}

// errMoved: what was read is not what is there any more.
var errMoved = errors.New("the redrive has moved on")

func sameCursor(a, b *store.Cursor) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// gathered says that a redrive knows all its callbacks.
func gathered(r *store.Redrive, now int64) {
	switch {
	case r.Matched == 0:
		r.State, r.FinishedAt = store.RedriveDone, now
	case r.Paused:
		r.State = store.RedrivePaused
	default:
		r.State = store.RedriveRunning
	}
}

// addRedriveItems writes down what is to be done, and returns how many of it are new.
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
	return added, named("write down what is to be done", err)
}
