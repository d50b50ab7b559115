package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// projectColumns are what scanProject reads, in its order.
const projectColumns = `id, name, defaults, paused_until, pause_reason, paused_at, open_quota, lane_quota,
	version, created_at, updated_at`

func scanProject(rows scanner) (store.Project, error) {
	var p store.Project
	var defaults string
	if err := rows.Scan(&p.ID, &p.Name, &defaults, &p.PausedUntil, &p.PauseReason, &p.PausedAt,
		&p.Quotas.OpenCallbacks, &p.Quotas.Lanes, &p.Version, &p.CreatedAt, &p.UpdatedAt); err != nil {
		return p, fmt.Errorf("scan project: %w", err)
	}
	return p, decode("defaults", defaults, &p.Defaults)
}

func (db *DB) readProjects(ctx context.Context, query string, args ...any) ([]store.Project, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var projects []store.Project
	err := queryEach(ctx, db.read, func(rows scanner) error {
		p, err := scanProject(rows)
		projects = append(projects, p)
		return err
	}, query, args...)
	if err != nil {
		return nil, readError("read projects", err)
	}
	return projects, nil
}

// Projects returns all projects with ids above after, in the order of their ids, at most limit.
func (db *DB) Projects(ctx context.Context, after string, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `SELECT `+projectColumns+` FROM projects WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// Project returns one project, or store.ErrNotFound.
func (db *DB) Project(ctx context.Context, id string) (store.Project, error) {
	found, err := db.readProjects(ctx, `SELECT `+projectColumns+` FROM projects WHERE id = $1`, id)
	if err != nil {
		return store.Project{}, err
	}
	if len(found) == 0 {
		return store.Project{}, fmt.Errorf("project %s: %w", id, store.ErrNotFound)
	}
	return found[0], nil
}

// ProjectsChanged returns the projects that were changed after version since, they or their presets, in the order of their versions,
// at most limit.
func (db *DB) ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `SELECT `+projectColumns+` FROM projects
		WHERE version > 0 AND version > $1
		ORDER BY version
		LIMIT $2`, since, limit)
}

// CreateProject makes a project, at its CreatedAt, or returns store.ErrExists. A pause is not taken over.
func (db *DB) CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error) {
	p.UpdatedAt, p.PausedUntil, p.PausedAt, p.PauseReason = p.CreatedAt, 0, 0, ""
	defaults, err := encodeDefaults(p.Defaults)
	if err != nil {
		return store.Project{}, fmt.Errorf("create project %s: %w", p.ID, err)
	}
	err = db.change(ctx, func(t *tx) error {
		var err error
		if p.Version, err = t.nextVersion(); err != nil {
			return err
		}
		n, err := t.exec(`INSERT INTO projects
				(id, name, defaults, version, created_at, updated_at, sealed_key, open_quota, lane_quota)
			VALUES ($1, $2, $3, $4, $5, $5, $6, $7, $8)
			ON CONFLICT (id) DO NOTHING`, p.ID, p.Name, defaults, p.Version, p.CreatedAt,
			store.SealedKey(p.Defaults.Headers), p.Quotas.OpenCallbacks, p.Quotas.Lanes)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrExists
		}
		return t.auditChange(p.ID, actionCreateProject, p.ID, p.CreatedAt, by,
			diffProject(new(store.Project), &p).made(), map[string]any{"name": p.Name})
	})
	if err != nil {
		return store.Project{}, fmt.Errorf("create project %s: %w", p.ID, err)
	}
	return p, nil
}

// encodeDefaults writes a project's defaults; empty for none.
func encodeDefaults(d store.Defaults) (string, error) {
	if d.Policy.IsZero() && d.Success == (store.Success{}) && d.Signer == "" && len(d.Headers) == 0 && len(d.HeaderHosts) == 0 {
		return "", nil
	}
	return encode(d)
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
		defaults, err := encodeDefaults(p.Defaults)
		if err != nil {
			return err
		}
		if _, err := t.exec(`UPDATE projects SET
				name = $1, defaults = $2, sealed_key = $3, open_quota = $4, lane_quota = $5
			WHERE id = $6`, p.Name, defaults, store.SealedKey(p.Defaults.Headers), p.Quotas.OpenCallbacks,
			p.Quotas.Lanes, id); err != nil {
			return err
		}
		d := diffProject(&before, p)
		if len(d.names) == 0 {
			return nil
		}
		return t.auditChange(id, actionUpdateProject, id, now, by, d, map[string]any{"changed": d.names})
	})
}

// SetProjectPause holds everything that a project sends until then, or with zero resumes it. All its lanes get a new version.
func (db *DB) SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64, by store.Actor) (store.Project, error) {
	return db.changeProject(ctx, project, now, func(t *tx, p *store.Project) error {
		action, detail := actionPauseProject, pauseDetail(until, reason)
		if until == 0 {
			action, detail, reason = actionResumeProject, nil, ""
		}
		before := *p
		p.PausedAt = pausedSince(p.PausedUntil, p.PausedAt, until, now)
		p.PausedUntil, p.PauseReason = until, reason
		if _, err := t.exec(`UPDATE projects SET paused_until = $1, pause_reason = $2, paused_at = $3
			WHERE id = $4`, until, reason, p.PausedAt, project); err != nil {
			return err
		}
		if err := t.pauseLanes(project, until); err != nil {
			return err
		}
		return t.auditChange(project, action, project, now, by, diffProject(&before, p), detail)
	})
}

// pauseLanes gives all lanes of a project its pause, and versions in their order. Whoever makes a lane keeps the project's row from
// being changed until that is committed, so none is missed.
func (t *tx) pauseLanes(project string, until int64) error {
	if err := t.lockSettings(); err != nil {
		return err
	}
	n, err := t.exec(`UPDATE lanes SET
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

// changeProject changes a project whose row is locked, and gives it a version. A project has many lanes, so this may take long.
func (db *DB) changeProject(ctx context.Context, id string, now int64, change func(*tx, *store.Project) error) (store.Project, error) {
	var changed store.Project
	err := db.alone(ctx, false, maintenanceLimit, func(t *tx) error {
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
		_, err = t.exec(`UPDATE projects SET version = $1, updated_at = $2 WHERE id = $3`, p.Version, now, id)
		return err
	})
	if err != nil {
		return store.Project{}, fmt.Errorf("change project %s: %w", id, err)
	}
	return changed, nil
}

// lockProject reads a project that this transaction is going to change, and keeps others from changing it.
func (t *tx) lockProject(id string) (store.Project, error) {
	var p store.Project
	found := false
	if err := t.each(func(rows scanner) error {
		var err error
		found = true
		p, err = scanProject(rows)
		return err
	}, `SELECT `+projectColumns+` FROM projects WHERE id = $1`+t.db.dialect.forUpdate, id); err != nil {
		return p, err
	}
	if !found {
		return p, store.ErrNotFound
	}
	return p, nil
}
