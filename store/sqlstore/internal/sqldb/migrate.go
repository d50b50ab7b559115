package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

// A Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
	// AppliedAt is zero where Applied is false.
	AppliedAt time.Time
}

// Migrate brings the schema up to date, and does nothing where it is. Several processes may call it at once: one
// migrates, the others wait, up to a minute. It returns [ErrOtherSchema] for a database that it cannot bring up to date.
func (db *DB) Migrate(ctx context.Context) error {
	return db.withMigrations(func(_ *sql.DB, _ *versionTable, p *goose.Provider) error {
		unlock, err := db.lockMigrations(ctx)
		if err != nil {
			return err
		}
		applied, err := p.Up(ctx)
		failed, partly := errors.AsType[*goose.PartialError](err)
		if partly {
			applied = failed.Applied
			err = fmt.Errorf("migration %s failed and left nothing behind; the schema is as it was before it, and processes that run go on; start a version whose migration is mended: %w",
				failed.Failed.Source.Path, failed.Err)
		}
		for _, r := range applied {
			db.logger.Info("migration applied", "version", r.Source.Version, "name", r.Source.Path, "took", r.Duration)
		}
		return errors.Join(err, unlock())
	})
}

// MigrationStatus lists all migrations that this program knows, and which of them the database has. It returns
// [ErrOtherSchema] for a database that has one of them with other statements.
func (db *DB) MigrationStatus(ctx context.Context) ([]Migration, error) {
	var list []Migration
	err := db.withMigrations(func(handle *sql.DB, v *versionTable, p *goose.Provider) error {
		if err := v.check(ctx, handle); err != nil {
			return err
		}
		status, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("migration status: %w", err)
		}
		for _, s := range status {
			list = append(list, Migration{
				Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied, AppliedAt: s.AppliedAt,
			})
		}
		return nil
	})
	return list, err
}

// withMigrations runs fn with a handle of its own: migrations must not wait for the writers, nor they for them.
func (db *DB) withMigrations(fn func(*sql.DB, *versionTable, *goose.Provider) error) (err error) {
	handle, err := db.migrate()
	if err != nil {
		return fmt.Errorf("open for migrations: %w", err)
	}
	defer func() { err = errors.Join(err, handle.Close()) }()
	known, foreign, err := migrations.For(db.Dialect.name)
	if err != nil {
		return err
	}
	table, err := newVersionTable(db.Dialect.name, known)
	if err != nil {
		return err
	}
	options := []goose.ProviderOption{
		goose.WithStore(table),
		goose.WithExcludeNames(foreign),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(db.logger),
	}
	if !db.Embedded() {
		// Asked for every second, not every five: processes start together.
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
		if err != nil {
			return fmt.Errorf("migration lock: %w", err)
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	p, err := goose.NewProvider(goose.DialectCustom, handle, migrations.Files, options...)
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	return fn(handle, table, p)
}

// lockMigrations keeps other processes from migrating the same SQLite file, by a transaction on a file beside it: the
// file itself must stay open to the migrations' own transactions. On PostgreSQL an advisory lock does this.
func (db *DB) lockMigrations(ctx context.Context) (unlock func() error, err error) {
	if db.migrateLock == "" {
		return func() error { return nil }, nil
	}
	if err := createPrivate(db.migrateLock); err != nil {
		return nil, err
	}
	handle, err := sql.Open("sqlite", sqliteDSN(db.migrateLock, "busy_timeout(60000)")+"&_txlock=exclusive")
	if err != nil {
		return nil, fmt.Errorf("open migration lock: %w", err)
	}
	held, err := handle.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock migrations: %w", err), handle.Close())
	}
	return func() error { return errors.Join(held.Rollback(), handle.Close()) }, nil
}
