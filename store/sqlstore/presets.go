package sqlstore

import (
	"context"
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Presets returns the project's own presets of a kind, by name.
func (db *DB) Presets(ctx context.Context, project string, kind store.PresetKind) ([]store.Preset, error) {
	return db.readPresets(ctx, `project = $1 AND kind = $2`, project, string(kind))
}

// AllPresets returns all the project's own presets, by kind and name.
func (db *DB) AllPresets(ctx context.Context, project string) ([]store.Preset, error) {
	return db.readPresets(ctx, `project = $1`, project)
}

func (db *DB) readPresets(ctx context.Context, which string, args ...any) ([]store.Preset, error) {
	ctx, cancel := context.WithTimeout(ctx, db.limits.read)
	defer cancel()
	var presets []store.Preset
	err := queryEach(ctx, db.read, func(rows scanner) error {
		var p store.Preset
		err := rows.Scan(&p.Project, &p.Kind, &p.Name, &p.Value, &p.CreatedAt, &p.UpdatedAt)
		presets = append(presets, p)
		return err
	}, `SELECT project, kind, name, value, created_at, updated_at FROM presets WHERE `+which+` ORDER BY kind, name`, args...)
	if err != nil {
		return nil, readError("read presets", err)
	}
	return presets, nil
}

// PutPreset makes a preset, or gives the one of that kind and name its value, at its UpdatedAt. The project's version grows. Without the
// project it returns store.ErrNotFound.
func (db *DB) PutPreset(ctx context.Context, p store.Preset, by store.Actor) (store.Preset, error) {
	p.CreatedAt = p.UpdatedAt
	_, err := db.changeProject(ctx, p.Project, p.UpdatedAt, func(t *tx, _ *store.Project) error {
		before, err := t.presetValue(&p)
		if err != nil {
			return err
		}
		if err := t.each(func(rows scanner) error { return rows.Scan(&p.CreatedAt) }, `INSERT INTO presets
				(project, kind, name, value, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $5)
			ON CONFLICT (project, kind, name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at
			RETURNING created_at`, p.Project, string(p.Kind), p.Name, string(p.Value), p.UpdatedAt); err != nil {
			return err
		}
		return t.auditChange(p.Project, actionPutPreset, presetObject(p.Kind, p.Name), p.UpdatedAt, by,
			presetDiff(p.Kind, before, p.Value), nil)
	})
	if err != nil {
		return store.Preset{}, fmt.Errorf("put preset %s: %w", p.Name, err)
	}
	return p, nil
}

// DeletePreset removes a preset; store.ErrNotFound where there is none. Callbacks that were accepted with it keep what it was.
func (db *DB) DeletePreset(ctx context.Context, project string, kind store.PresetKind, name string, now int64, by store.Actor) error {
	_, err := db.changeProject(ctx, project, now, func(t *tx, _ *store.Project) error {
		before, err := t.presetValue(&store.Preset{Project: project, Kind: kind, Name: name})
		if err != nil {
			return err
		}
		n, err := t.exec(`DELETE FROM presets WHERE project = $1 AND kind = $2 AND name = $3`, project, string(kind), name)
		if err != nil {
			return err
		}
		if n == 0 {
			return store.ErrNotFound
		}
		return t.auditChange(project, actionDeletePreset, presetObject(kind, name), now, by,
			presetDiff(kind, before, "").removed(), nil)
	})
	if err != nil {
		return fmt.Errorf("delete preset %s: %w", name, err)
	}
	return nil
}

// presetValue reads what a preset is; empty: it is not there. The project's row is locked.
func (t *tx) presetValue(p *store.Preset) (value store.JSONText, err error) {
	err = t.each(func(rows scanner) error { return rows.Scan(&value) },
		`SELECT value FROM presets WHERE project = $1 AND kind = $2 AND name = $3`,
		p.Project, string(p.Kind), p.Name)
	if err != nil {
		return "", fmt.Errorf("read what it was: %w", err)
	}
	return value, nil
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
