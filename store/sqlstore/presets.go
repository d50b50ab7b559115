package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

func presetColumns(p *store.Preset) sqldb.Columns {
	return sqldb.Columns{
		col("project", &p.Project),
		col("kind", &p.Kind),
		col("name", &p.Name),
		col("value", &p.Value),
		col("created_at", &p.CreatedAt),
		col("updated_at", &p.UpdatedAt),
	}
}

// Presets returns the project's own presets of a kind, by name.
func (db *DB) Presets(ctx context.Context, project string, kind store.PresetKind) ([]store.Preset, error) {
	return sqldb.Select(db.read(ctx, "read presets"), presetColumns,
		`FROM presets WHERE project = $1 AND kind = $2 ORDER BY name`, project, string(kind))
}

// AllPresets returns all the project's own presets, by kind and name.
func (db *DB) AllPresets(ctx context.Context, project string) ([]store.Preset, error) {
	return sqldb.Select(db.read(ctx, "read presets"), presetColumns,
		`FROM presets WHERE project = $1 ORDER BY kind, name`, project)
}

// PutPreset makes a preset, or gives the one of that kind and name its value, at its UpdatedAt. The project's version
// grows. Without the project it returns store.ErrNotFound.
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
		return t.auditChange(p.Project, actionPutPreset, presetObject(p.Kind, p.Name), p.UpdatedAt, by,
			presetDiff(p.Kind, before.Value, p.Value), nil)
	})
	if err != nil {
		return store.Preset{}, fmt.Errorf("put preset %s: %w", p.Name, err)
	}
	return p, nil
}

// DeletePreset removes a preset; store.ErrNotFound where there is none. Callbacks that were accepted with it keep what
// it was.
func (db *DB) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64, by store.Actor) error {
	_, err := db.changeProject(ctx, project, now, func(t *tx, _ *store.Project) error {
		before, found, err := t.preset(&store.Preset{Project: project, Kind: kind, Name: name})
		if err != nil {
			return err
		}
		if !found {
			return store.ErrNotFound
		}
		if _, err := t.Exec(`DELETE FROM presets WHERE project = $1 AND kind = $2 AND name = $3`, project, string(kind), name); err != nil {
			return err
		}
		return t.auditChange(project, actionDeletePreset, presetObject(kind, name), now, by,
			presetDiff(kind, before.Value, "").removed(), nil)
	})
	return named("delete preset "+name, err)
}

// preset reads the preset of the same kind and name as it is. The project's row is locked.
func (t *tx) preset(p *store.Preset) (before store.Preset, found bool, err error) {
	before, found, err = sqldb.One(t, presetColumns, `FROM presets WHERE project = $1 AND kind = $2 AND name = $3`,
		p.Project, string(p.Kind), p.Name)
	return before, found, named("read what it was", err)
}

// presetDiff is what a preset was and is; an empty value: it was not there, or is not any more.
func presetDiff(kind store.PresetKind, before, after store.JSONText) auditDiff {
	var d auditDiff
	if before == "" {
		d.add("value", nil, shownPreset(kind, after))
		return d.made()
	}
	if before != after {
		d.add("value", shownPreset(kind, before), shownPreset(kind, after))
	}
	return d
}

// presetObject is how the audit names a preset.
func presetObject(kind store.PresetKind, name string) string { return string(kind) + "/" + name }
