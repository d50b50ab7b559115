package sqlstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
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

const redriveColumns = `id, project, state, paused, spec, actor, address, reason, matched, done, failed,
	created_at, updated_at, finished_at, gathered_due, gathered_id`

func scanRedrive(rows scanner) (store.Redrive, error) {
	var r store.Redrive
	var after store.Cursor
	var paused int
	var text string
	if err := rows.Scan(&r.ID, &r.Project, &r.State, &paused, &text, &r.Actor, &r.Address, &r.Reason,
		&r.Matched, &r.Done, &r.Failed, &r.CreatedAt, &r.UpdatedAt, &r.FinishedAt, &after.DueAt,
		&after.ID); err != nil {
		return r, fmt.Errorf("scan redrive: %w", err)
	}
	var spec redriveSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return r, fmt.Errorf("decode redrive %s: %w", r.ID, err)
	}
	r.Paused = paused != 0
	r.Action, r.Filter, r.Shown, r.Ladder, r.URL = spec.Action, spec.Filter, spec.Shown, spec.Ladder, spec.URL
	r.DueAt, r.Delay, r.Rate = spec.DueAt, spec.Delay, spec.Rate
	if after != (store.Cursor{}) {
		r.After = &after
	}
	return r, nil
}

func (db *DB) readRedrives(ctx context.Context, query string, args ...any) ([]store.Redrive, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var redrives []store.Redrive
	err := queryEach(ctx, db.read, func(rows scanner) error {
		r, err := scanRedrive(rows)
		redrives = append(redrives, r)
		return err
	}, `SELECT `+redriveColumns+` FROM redrives `+query, args...)
	if err != nil {
		return nil, readError("read redrives", err)
	}
	return redrives, nil
}

// CreateRedrive inserts a redrive; its callbacks are gathered from then on. It returns
// store.ErrTooManyRedrives if the project has store.MaxOpenRedrives already, and store.ErrNotFound if there
// is no such project.
func (db *DB) CreateRedrive(ctx context.Context, r store.Redrive, by store.Actor) (store.Redrive, error) {
	spec, err := encode(redriveSpec{r.Action, r.Filter, r.Shown, r.Ladder, r.URL, r.DueAt, r.Delay, r.Rate})
	if err != nil {
		return r, fmt.Errorf("encode redrive: %w", err)
	}
	r.State, r.UpdatedAt = store.RedriveGathering, r.CreatedAt
	r.Actor, r.Address, r.Reason = by.Name, by.Address, by.Reason
	err = db.change(ctx, func(t *tx) error {
		// The lock has parallel creates count each other's redrive.
		if _, err := t.lockProject(r.Project); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO redrives
				(id, project, state, spec, actor, address, reason, created_at, updated_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
			ON CONFLICT (id) DO NOTHING`,
			r.ID, r.Project, string(r.State), spec, r.Actor, r.Address, r.Reason, r.CreatedAt)
		if err != nil || n == 0 {
			return err // there already: an earlier try was committed, and its reply lost
		}
		if err := t.boundRedrives(r.Project); err != nil {
			return err
		}
		return t.auditChange(r.Project, actionCreateRedrive, r.ID, r.CreatedAt, by,
			diffRedrive(new(store.Redrive), &r).made(), map[string]any{"action": r.Action, "filter": r.Shown})
	})
	if err != nil {
		return r, fmt.Errorf("create redrive: %w", err)
	}
	return r, nil
}

// boundRedrives returns store.ErrTooManyRedrives if the project has too many open redrives. The caller holds
// the project's lock.
func (t *tx) boundRedrives(project string) error {
	open := 0
	if err := t.each(func(rows scanner) error { return rows.Scan(&open) },
		`SELECT COUNT(*) FROM redrives WHERE project = $1 AND finished_at = 0`, project); err != nil {
		return fmt.Errorf("count open redrives: %w", err)
	}
	if open > store.MaxOpenRedrives {
		return store.ErrTooManyRedrives
	}
	return nil
}

// Redrive returns one of the project; store.ErrNotFound.
func (db *DB) Redrive(ctx context.Context, project, id string) (store.Redrive, error) {
	found, err := db.readRedrives(ctx, `WHERE id = $1 AND project = $2`, id, project)
	if err != nil {
		return store.Redrive{}, err
	}
	if len(found) == 0 {
		return store.Redrive{}, fmt.Errorf("redrive %s: %w", id, store.ErrNotFound)
	}
	return found[0], nil
}

// Redrives returns the project's, newest first, those before the one named after; "" is the beginning.
func (db *DB) Redrives(ctx context.Context, project, after string, limit int) ([]store.Redrive, error) {
	return db.readRedrives(ctx, `WHERE project = $1 AND ($2 = '' OR id < $2) ORDER BY id DESC LIMIT $3`, project, after, limit)
}

// redriveToDo selects redrives that are neither paused nor ended, in the words of the index redrives_to_do. A
// redrive that is paused while it is being gathered is gathered to the end.
const redriveToDo = `state IN ('gathering', 'running')`

// RedrivesToDo returns, by project and id, the redrives that are neither paused nor ended, of the first limit
// projects above after that have any.
func (db *DB) RedrivesToDo(ctx context.Context, after string, limit int) ([]store.Redrive, error) {
	return db.readRedrives(ctx, `WHERE `+redriveToDo+` AND project IN (
			SELECT DISTINCT project FROM redrives WHERE `+redriveToDo+` AND project > $1
			ORDER BY project LIMIT $2)
		ORDER BY project, id`, after, limit)
}

// SetRedrive pauses a redrive, resumes it or cancels it: what it has not done yet it will not do. One that has ended is
// store.ErrTerminal.
func (db *DB) SetRedrive(ctx context.Context, project, id string, to store.RedriveState, now int64, by store.Actor) (store.Redrive, error) {
	var r store.Redrive
	err := db.change(ctx, func(t *tx) error {
		var err error
		if r, err = t.lockRedrive(id); err != nil {
			return err
		}
		if r.Project != project {
			return store.ErrNotFound
		}
		if !r.Open() {
			return store.ErrTerminal
		}
		action, before := actionPauseRedrive, r
		switch to {
		case store.RedrivePaused:
			r.Paused = true
		case store.RedriveRunning:
			action, r.Paused = actionResumeRedrive, false
		case store.RedriveCanceled:
			action, r.State, r.FinishedAt = actionCancelRedrive, to, now
			if _, err := t.exec(`DELETE FROM redrive_items WHERE redrive_id = $1`, id); err != nil {
				return fmt.Errorf("forget what is left of it: %w", err)
			}
		default:
			return fmt.Errorf("a redrive cannot be made %q", to)
		}
		if r.State != store.RedriveGathering && r.Open() {
			r.State = store.RedriveRunning
			if r.Paused {
				r.State = store.RedrivePaused
			}
		}
		if err := t.writeRedrive(&r, now); err != nil {
			return err
		}
		return t.auditChange(project, action, id, now, by, diffRedrive(&before, &r), nil)
	})
	if err != nil {
		return store.Redrive{}, fmt.Errorf("change redrive %s: %w", id, err)
	}
	return r, nil
}

// lockRedrive reads a redrive that this transaction is going to change.
func (t *tx) lockRedrive(id string) (r store.Redrive, err error) {
	found := false
	err = t.each(func(rows scanner) error {
		found = true
		r, err = scanRedrive(rows)
		return err
	}, `SELECT `+redriveColumns+` FROM redrives WHERE id = $1`+t.db.dialect.forUpdate, id)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return r, err
}

func (t *tx) writeRedrive(r *store.Redrive, now int64) error {
	var after store.Cursor
	if r.After != nil {
		after = *r.After
	}
	r.UpdatedAt = now
	if _, err := t.exec(`UPDATE redrives SET state = $1, paused = $2, matched = $3, done = $4, failed = $5, updated_at = $6,
			finished_at = $7, gathered_due = $8, gathered_id = $9
		WHERE id = $10`, string(r.State), flag(r.Paused), r.Matched, r.Done, r.Failed, r.UpdatedAt, r.FinishedAt, after.DueAt, after.ID, r.ID); err != nil {
		return fmt.Errorf("write redrive: %w", err)
	}
	return nil
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
	err = db.change(ctx, func(t *tx) error {
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
	if err != nil && !errors.Is(err, errMoved) {
		return r, fmt.Errorf("gather redrive %s: %w", id, err)
	}
	return r, nil
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
	if len(callbacks) == 0 {
		return 0, nil
	}
	input, args, _, err := t.input([]column{
		texts("redrive_id", callbacks, func(store.Callback) string { return id }),
		texts("callback_id", callbacks, func(c store.Callback) string { return c.ID }),
	})
	if err != nil {
		return 0, err
	}
	added, err := t.exec(`INSERT INTO redrive_items (redrive_id, callback_id)
		SELECT i.redrive_id, i.callback_id FROM `+input+` WHERE 1 = 1
		ON CONFLICT (redrive_id, callback_id) DO NOTHING`, args...)
	if err != nil {
		return 0, fmt.Errorf("write down what is to be done: %w", err)
	}
	return added, nil
}
