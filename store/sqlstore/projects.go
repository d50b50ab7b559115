package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

func projectColumns(p *store.Project) sqldb.Columns {
	return append(settingsOf(p),
		col("id", &p.ID),
		col("paused_until", &p.PausedUntil),
		col("pause_reason", &p.PauseReason),
		col("paused_at", &p.PausedAt),
		col("version", &p.Version),
		col("created_at", &p.CreatedAt),
		col("updated_at", &p.UpdatedAt),
	)
}

// settingsOf are the columns that a patch may change.
func settingsOf(p *store.Project) sqldb.Columns {
	return sqldb.Columns{
		col("name", &p.Name),
		col("defaults", sqldb.JSON(&p.Defaults)),
		col("open_quota", &p.Quotas.OpenCallbacks),
		col("lane_quota", &p.Quotas.Lanes),
	}
}

// sealedKey is the column with the id of the master key that credentials are sealed with; empty: none is sealed.
func sealedKey(headers []store.Header) sqldb.Column {
	id := store.SealedKey(headers)
	return col("sealed_key", &id)
}

func (db *DB) readProjects(ctx context.Context, rest string, args ...any) ([]store.Project, error) {
	return sqldb.Select(db.read(ctx, "read projects"), projectColumns, `FROM projects WHERE `+rest, args...)
}

// Projects returns all projects with ids above after, in the order of their ids, at most limit.
func (db *DB) Projects(ctx context.Context, after string, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// Project returns one project, or store.ErrNotFound.
func (db *DB) Project(ctx context.Context, id string) (store.Project, error) {
	return sqldb.Get(db.read(ctx, "read projects"), "project "+id, projectColumns, `FROM projects WHERE id = $1`, id)
}

// ProjectsChanged returns the projects that were changed after version since, they or their presets, in the order of
// their versions, at most limit.
func (db *DB) ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `version > 0 AND version > $1 ORDER BY version LIMIT $2`, since, limit)
}

// CreateProject makes a project, at its CreatedAt, or returns store.ErrExists. A pause is not taken over.
func (db *DB) CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error) {
	p.UpdatedAt, p.PausedUntil, p.PausedAt, p.PauseReason = p.CreatedAt, 0, 0, ""
	return changed(ctx, db, "create project "+p.ID, func(t *tx) (store.Project, error) {
		var err error
		if p.Version, err = t.nextVersion(); err != nil {
			return p, err
		}
		columns := append(projectColumns(&p), sealedKey(p.Defaults.Headers))
		n, err := columns.Insert(t.Tx, "projects", `ON CONFLICT (id) DO NOTHING`)
		if err != nil {
			return p, err
		}
		if n == 0 {
			return p, store.ErrExists
		}
		return p, t.auditChange(p.ID, actionCreateProject, p.ID, p.CreatedAt, by,
			diffProject(new(store.Project), &p).made(), map[string]any{"name": p.Name})
	})
}

// PatchProject changes a project's name, defaults and quotas: change is given the project as it is, locked,
// and may be called more than once. Whatever else it sets stays as it was. It returns the project after the
// change, store.ErrNotFound, or the error of change. What changes nothing is not audited.
func (db *DB) PatchProject(
	ctx context.Context, id string, change func(*store.Project) error, now int64, by store.Actor,
) (store.Project, error) {
	return db.changeProject(ctx, id, now, func(t *tx, p *store.Project) error {
		before, wanted := *p, *p
		if err := change(&wanted); err != nil {
			return err
		}
		p.Name, p.Defaults, p.Quotas = wanted.Name, wanted.Defaults, wanted.Quotas
		columns := append(settingsOf(p), sealedKey(p.Defaults.Headers))
		if _, err := columns.Update(t.Tx, "projects", `id = $1`, id); err != nil {
			return err
		}
		d := diffProject(&before, p)
		if len(d.names) == 0 {
			return nil
		}
		return t.auditChange(id, actionUpdateProject, id, now, by, d, map[string]any{"changed": d.names})
	})
}

// SetProjectPause holds everything that a project sends until then, or with zero resumes it. All its lanes get a new
// version.
func (db *DB) SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64, by store.Actor) (store.Project, error) {
	return db.changeProject(ctx, project, now, func(t *tx, p *store.Project) error {
		action, detail := actionPauseProject, pauseDetail(until, reason)
		if until == 0 {
			action, detail, reason = actionResumeProject, nil, ""
		}
		before := *p
		p.PausedAt = pausedSince(p.PausedUntil, p.PausedAt, until, now)
		p.PausedUntil, p.PauseReason = until, reason
		if _, err := t.Exec(`UPDATE projects SET paused_until = $1, pause_reason = $2, paused_at = $3
			WHERE id = $4`, until, reason, p.PausedAt, project); err != nil {
			return err
		}
		if err := t.pauseLanes(project, until); err != nil {
			return err
		}
		return t.auditChange(project, action, project, now, by, diffProject(&before, p), detail)
	})
}

// pauseLanes gives all lanes of a project its pause, and versions in their order. A transaction that makes a lane keeps
// the project's row from being changed until it is committed, so none is missed.
func (t *tx) pauseLanes(project string, until int64) error {
	if err := t.lockSettings(); err != nil {
		return err
	}
	n, err := t.Exec(`UPDATE lanes SET
			project_paused_until = $1,
			paused_until = `+lastPause("lanes.own_paused_until", "lanes.endpoint_paused_until", "$1")+`,
			version = $2 + i.place
		FROM (SELECT lanes.id, ROW_NUMBER() OVER (ORDER BY lanes.id) AS place FROM lanes WHERE lanes.project = $3) AS i
		WHERE lanes.id = i.id`, until, *t.settings, project)
	if err != nil {
		return fmt.Errorf("pause lanes: %w", err)
	}
	*t.settings += n
	return nil
}

// changeProject changes a project whose row is locked, and gives it a version. A project has many lanes, so this may
// take long.
func (db *DB) changeProject(ctx context.Context, id string, now int64, change func(*tx, *store.Project) error) (store.Project, error) {
	var changed store.Project
	err := db.sql.ChangeLong(ctx, func(s *sqldb.Tx) error {
		return db.within(s, func(t *tx) error {
			p, err := t.lockProject(id)
			if err != nil {
				return err
			}
			if err := change(t, &p); err != nil {
				return err
			}
			if p.Version, err = t.nextVersion(); err != nil {
				return err
			}
			p.UpdatedAt = now
			changed = p
			_, err = t.Exec(`UPDATE projects SET version = $1, updated_at = $2 WHERE id = $3`, p.Version, now, id)
			return err
		})
	})
	if err != nil {
		return store.Project{}, fmt.Errorf("change project %s: %w", id, err)
	}
	return changed, nil
}

// lockProject reads a project that this transaction is going to change, and keeps others from changing it.
func (t *tx) lockProject(id string) (store.Project, error) {
	p, found, err := sqldb.One(t, projectColumns, `FROM projects WHERE id = $1 FOR UPDATE`, id)
	if err == nil && !found {
		err = store.ErrNotFound
	}
	return p, err
}

// Changes of settings (of projects and their presets, of endpoints and of lanes) are numbered together, and every
// process follows them by their numbers. The row of the number is locked from before the first change of a transaction
// until its commit, so a reader that has seen one change has seen, or sees next, all that have a lower number.
//
// Locks are taken in this order, or two transactions could wait for each other: the project's row, the number,
// endpoints by id, lanes.

// lockSettings keeps other transactions from changing settings until this one ends.
func (t *tx) lockSettings() error {
	if t.settings != nil {
		return nil
	}
	last, found, err := sqldb.Value[int64](t, `SELECT value FROM versions WHERE name = 'settings' FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("the row is not there")
	}
	if err != nil {
		return fmt.Errorf("lock settings: %w", err)
	}
	t.settings, t.settled = &last, last
	return nil
}

// nextVersion numbers a change of settings.
func (t *tx) nextVersion() (int64, error) {
	if err := t.lockSettings(); err != nil {
		return 0, err
	}
	*t.settings++
	return *t.settings, nil
}

// writeVersion keeps the last number that was given.
func (t *tx) writeVersion() error {
	if t.settings == nil || *t.settings == t.settled {
		return nil
	}
	return named("write version", t.Later(`UPDATE versions SET value = $1 WHERE name = 'settings'`, *t.settings))
}
