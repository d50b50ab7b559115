package ui

import (
	"context"
	"time"
)

// A Migration is one step of the database's schema.
type Migration struct {
	Version int64
	Name    string
	// AppliedAt is zero for one that is not applied.
	AppliedAt time.Time
}

// Schema says how far the database's schema is.
type Schema interface {
	Migrations(ctx context.Context) ([]Migration, error)
}

// migrationsPage is the steps of the schema. It is not kept up to date: each look opens a connection of its own.
type migrationsPage struct {
	base
	Rows []*migrationRow
	// Open is how many are not applied.
	Open int
}

type migrationRow struct {
	Migration
	// At is zero for one that is not applied.
	At int64
}

// migrations is GET /ui/system/migrations.
func (u *UI) migrations(r *request) (*answer, error) {
	steps, err := u.Schema.Migrations(r.ctx)
	if err != nil {
		return nil, err
	}
	p := &migrationsPage{base: u.base(r, "system", "system.migrations.title")}
	for _, m := range steps {
		row := &migrationRow{Migration: m}
		if m.AppliedAt.IsZero() {
			p.Open++
		} else {
			row.At = m.AppliedAt.UnixMilli()
		}
		p.Rows = append(p.Rows, row)
	}
	return show("migrations", p)
}
