package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

var projectColumns = sqldb.Named[store.Project](`id name defaults open_quota=QuotasOpenCallbacks
	lane_quota=QuotasLanes paused_until pause_reason paused_at reconcile_at=ReconcileAt
	reconcile_zone=ReconcileTimezone reconcile_list=ReconcileExpectList reconcile_next reconcile_error
	version created_at updated_at`)

// settingsOf are the columns that PatchProject may change.
var settingsOf = sqldb.Named[store.Project](
	`name defaults open_quota=QuotasOpenCallbacks lane_quota=QuotasLanes reconcile_at=ReconcileAt
	reconcile_zone=ReconcileTimezone reconcile_list=ReconcileExpectList reconcile_next
	reconcile_error`)

// sealedKey is the column with the id of the master key that sealed the credentials in headers. Empty means
// that none is sealed.
func sealedKey(headers []store.Header) sqldb.Column {
	id := store.SealedKey(headers)
	return col("sealed_key", &id)
}

// readProjects reads the projects that a condition finds.
func (db *DB) readProjects(ctx context.Context, rest string, args ...any) ([]store.Project, error) {
	return sqldb.Select(db.read(ctx, "read projects"), projectColumns, `FROM projects WHERE `+rest, args...)
}

// Projects returns up to limit projects with ids above after, in the order of their ids.
func (db *DB) Projects(ctx context.Context, after string, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `id > $1 ORDER BY id LIMIT $2`, after, limit)
}

// Project returns one project, or store.ErrNotFound.
func (db *DB) Project(ctx context.Context, id string) (store.Project, error) {
	return sqldb.Get(db.read(ctx, "read projects"), "project "+id, projectColumns,
		`FROM projects WHERE id = $1`, id)
}

// ProjectsChanged returns up to limit projects that changed after version since, in the order of their
// versions. A change of a preset is a change of its project.
func (db *DB) ProjectsChanged(ctx context.Context, since int64, limit int) ([]store.Project, error) {
	return db.readProjects(ctx, `version > 0 AND version > $1 ORDER BY version LIMIT $2`, since, limit)
}

// CreateProject makes a project, at its CreatedAt, or returns store.ErrExists. A new project is never paused.
func (db *DB) CreateProject(ctx context.Context, p store.Project, by store.Actor) (store.Project, error) {
	p.UpdatedAt, p.PausedUntil, p.PausedAt, p.PauseReason = p.CreatedAt, 0, 0, ""
	return changed(ctx, db.change, "create project "+p.ID, func(t *tx) (store.Project, error) {
		var err error
		p.Version, err = t.nextVersion()
		if err != nil {
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
		return p, t.auditChange(p.ID, "project.create", p.ID, p.CreatedAt, by,
			diff(projectParts, new(store.Project), &p).made(), fields{"name": p.Name})
	})
}

// PatchProject changes a project's name, defaults, quotas and daily reconciliation. change gets the locked
// project, and may run more than once. What else it sets is ignored. PatchProject returns the project after
// the change, store.ErrNotFound, or the error of change. A patch that changes nothing is not audited.
func (db *DB) PatchProject(
	ctx context.Context, id string, change func(*store.Project) error, now int64, by store.Actor,
) (store.Project, error) {
	return db.changeProject(ctx, id, now, func(t *tx, p *store.Project) error {
		before, wanted := *p, *p
		if err := change(&wanted); err != nil {
			return err
		}
		p.Name, p.Defaults, p.Quotas = wanted.Name, wanted.Defaults, wanted.Quotas
		p.Reconcile, p.ReconcileNext = wanted.Reconcile, wanted.ReconcileNext
		p.ReconcileError = wanted.ReconcileError
		columns := append(settingsOf(p), sealedKey(p.Defaults.Headers))
		if _, err := columns.Update(t.Tx, "projects", `id = $1`, id); err != nil {
			return err
		}
		d := diff(projectParts, &before, p)
		if len(d.names) == 0 {
			return nil
		}
		return t.auditChange(id, "project.update", id, now, by, d, fields{"changed": d.names})
	})
}

// SetProjectPause pauses everything that a project sends until then, and with zero resumes it. All lanes of
// the project get a new version in the same transaction.
func (db *DB) SetProjectPause(ctx context.Context, project string, until int64, reason string, now int64,
	by store.Actor) (store.Project, error) {
	return db.changeProject(ctx, project, now, func(t *tx, p *store.Project) error {
		action, detail := "project.pause", pauseDetail(until, reason)
		if until == 0 {
			action, detail, reason = "project.resume", nil, ""
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
		return t.auditChange(project, action, project, now, by, diff(projectParts, &before, p), detail)
	})
}

// pauseLanes writes the project's pause to all its lanes, with ascending versions. The caller has locked the
// project's row. A transaction that makes a lane holds a lock on that row until its commit (see
// readNewLanes), so no lane is missed.
func (t *tx) pauseLanes(project string, until int64) error {
	if err := t.lockSettings(); err != nil {
		return err
	}
	n, err := t.Exec(`UPDATE lanes SET
			project_paused_until = $1,
			paused_until = `+lastPause("lanes.own_paused_until", "lanes.endpoint_paused_until", "$1")+`,
			version = $2 + i.place
		FROM (
			SELECT lanes.id, ROW_NUMBER() OVER (ORDER BY lanes.id) AS place FROM lanes
			WHERE lanes.project = $3
		) AS i
		WHERE lanes.id = i.id`, until, *t.settings, project)
	if err != nil {
		return named("pause lanes", err)
	}
	*t.settings += n
	return nil
}

// changeProject locks a project, runs change and gives the project a version, in one transaction. It has the
// long time limit, because a project may have many lanes.
func (db *DB) changeProject(ctx context.Context, id string, now int64,
	change func(*tx, *store.Project) error) (store.Project, error) {
	return changed(ctx, db.changeLong, "change project "+id, func(t *tx) (store.Project, error) {
		p, err := t.lockProject(id)
		if err == nil {
			err = change(t, &p)
		}
		if err != nil {
			return p, err
		}
		p.Version, err = t.nextVersion()
		if err != nil {
			return p, err
		}
		p.UpdatedAt = now
		_, err = t.Exec(`UPDATE projects SET version = $1, updated_at = $2 WHERE id = $3`, p.Version, now, id)
		return p, err
	})
}

// lockProject reads a project and locks its row until the transaction ends. It returns store.ErrNotFound.
func (t *tx) lockProject(id string) (store.Project, error) {
	return sqldb.Get(t, "", projectColumns, `FROM projects WHERE id = $1 FOR UPDATE`, id)
}

// lockProjectRow locks the row of a project, if it exists.
func (t *tx) lockProjectRow(id string) error {
	_, err := sqldb.Exists(t, `SELECT 1 FROM projects WHERE id = $1 FOR UPDATE`, id)
	return named("lock project", err)
}

// Changes of settings (projects, presets, endpoints, lanes) take versions from one row, and every process
// reads changes by their versions. A transaction locks that row before its first change and until its commit.
// So a reader that has seen a version has seen all lower ones, or reads them next.
//
// Transactions take locks in this order, so that they cannot deadlock: the project's row, the row of the
// version, endpoints by id, lanes.

// lockSettings locks the row of the version until the transaction ends. Further calls do nothing.
func (t *tx) lockSettings() error {
	if t.settings != nil {
		return nil
	}
	last, found, err := sqldb.Value[int64](t, `SELECT value FROM versions WHERE name = 'settings' FOR UPDATE`)
	if err == nil && !found {
		err = errors.New("table versions has no row \"settings\": restore it from a backup")
	}
	if err != nil {
		return named("lock settings", err)
	}
	t.settings, t.settingsBefore = &last, last
	return nil
}

// nextVersion returns the version for one change of settings, and locks them if needed.
func (t *tx) nextVersion() (int64, error) {
	if err := t.lockSettings(); err != nil {
		return 0, err
	}
	*t.settings++
	return *t.settings, nil
}

// writeVersion stores the last version that this transaction gave away. within calls it before the commit.
func (t *tx) writeVersion() error {
	if t.settings == nil || *t.settings == t.settingsBefore {
		return nil
	}
	return named("write version", t.Later(`UPDATE versions SET value = $1 WHERE name = 'settings'`,
		*t.settings))
}

var presetColumns = sqldb.Named[store.Preset](`project kind name value created_at updated_at`)

// AllPresets returns all presets of the project, by kind and name.
func (db *DB) AllPresets(ctx context.Context, project string) ([]store.Preset, error) {
	return sqldb.Select(db.read(ctx, "read presets"), presetColumns,
		`FROM presets WHERE project = $1 ORDER BY kind, name`, project)
}

// PutPreset inserts a preset, or changes the value of the one with that kind and name, at its UpdatedAt. The
// project gets a new version. It returns store.ErrNotFound if the project does not exist.
func (db *DB) PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error) {
	p.CreatedAt = p.UpdatedAt
	_, err := db.changeProject(ctx, p.Project, p.UpdatedAt, func(t *tx, _ *store.Project) error {
		before, found, err := t.preset(&p)
		if err != nil {
			return err
		}
		if found {
			p.CreatedAt = before.CreatedAt
		}
		if _, err := presetColumns(&p).Insert(t.Tx, "presets", `ON CONFLICT (project, kind, name)
			DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at`); err != nil {
			return err
		}
		return t.auditChange(p.Project, "preset.put", presetObject(p.Kind, p.Name), p.UpdatedAt, by,
			presetDiff(p.Kind, before.Value, p.Value), nil)
	})
	if err != nil {
		return store.Preset{}, fmt.Errorf("put preset %s: %w", p.Name, err)
	}
	return p, nil
}

// DeletePreset deletes a preset, or returns store.ErrNotFound. Callbacks that were accepted with it keep its
// value.
func (db *DB) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64,
	by store.Actor) error {
	_, err := db.changeProject(ctx, project, now, func(t *tx, _ *store.Project) error {
		before, found, err := t.preset(&store.Preset{Project: project, Kind: kind, Name: name})
		if err != nil {
			return err
		}
		if !found {
			return store.ErrNotFound
		}
		_, err = t.Exec(`DELETE FROM presets WHERE project = $1 AND kind = $2 AND name = $3`,
			project, string(kind), name)
		if err != nil {
			return err
		}
		return t.auditChange(project, "preset.delete", presetObject(kind, name), now, by,
			presetDiff(kind, before.Value, "").removed(), nil)
	})
	return named("delete preset "+name, err)
}

// preset reads the stored preset of the same kind and name. The caller has locked the project's row.
func (t *tx) preset(p *store.Preset) (before store.Preset, found bool, err error) {
	before, found, err = sqldb.One(t, presetColumns,
		`FROM presets WHERE project = $1 AND kind = $2 AND name = $3`,
		p.Project, string(p.Kind), p.Name)
	return before, found, named("read the stored preset", err)
}

// presetDiff compares the stored and the new value of a preset. An empty value means that there is none.
func presetDiff(kind store.PresetKind, before, after store.JSONText) auditDiff {
	switch {
	case before == "":
		return changeOf("value", nil, printedPreset(kind, after)).made()
	case before == after:
		return auditDiff{}
	}
	return changeOf("value", printedPreset(kind, before), printedPreset(kind, after))
}

// presetObject is the name of a preset in the audit.
func presetObject(kind store.PresetKind, name string) string { return string(kind) + "/" + name }
