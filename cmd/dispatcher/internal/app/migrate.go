package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// MigrateCommand applies the SQL migrations without a server.
type MigrateCommand struct {
	config.Flags
	Status bool `help:"Only show which migrations are applied; exit with 1 if any is not."`
}

// Run applies the migrations or prints their status.
func (cmd *MigrateCommand) Run(ctx context.Context, c *console.Console) error {
	l, err := config.LoadStorage(c, &cmd.Flags)
	if err != nil {
		return err
	}
	s := &l.Settings
	db, err := sqlstore.Open(ctx, sqlstore.Options{URL: s.Database(), MaxConns: s.DatabaseMaxConns,
		Logger: NewLogger(c, s)})
	if err != nil {
		return s.Clean(fmt.Errorf("open the database: %w", err))
	}
	return s.Clean(errors.Join(cmd.migrate(ctx, c, db), db.Close()))
}

func (cmd *MigrateCommand) migrate(ctx context.Context, c *console.Console, db *sqlstore.DB) error {
	before, err := sqlstore.MigrationStatus(ctx, db)
	if err != nil {
		return fmt.Errorf("read the status of migrations: %w", err)
	}
	if cmd.Status {
		showMigrations(c, before)
		if pending(before) > 0 {
			return console.ErrPrinted
		}
		return nil
	}
	progress, done := c.NewProgress("migrations", pending(before)), 0
	err = sqlstore.MigrateEach(ctx, db, func(int64) {
		done++
		progress.Set(done, pending(before))
	})
	progress.End(err != nil)
	if err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	if n := pending(before); n > 0 {
		fmt.Fprintf(c.Out, "applied %d of %d migrations\n", n, len(before))
	} else {
		fmt.Fprintf(c.Out, "all %d migrations are already applied\n", len(before))
	}
	return nil
}

func pending(list []sqlstore.Migration) int {
	n := 0
	for _, m := range list {
		if !m.Applied {
			n++
		}
	}
	return n
}

func showMigrations(c *console.Console, list []sqlstore.Migration) {
	t := c.NewTable("version", "name", "applied")
	for _, m := range list {
		applied := c.Paint("no", console.Yellow)
		if m.Applied {
			applied = m.AppliedAt.Local().Format(time.DateTime)
		}
		t.Row(m.Version, m.Name, applied)
	}
	t.Render()
}
