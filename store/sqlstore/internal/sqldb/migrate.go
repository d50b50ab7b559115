package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
)

// A Migration is one step of the schema.
type Migration struct {
	Version int64
	Name    string
	Applied bool
	// AppliedAt is zero unless Applied.
	AppliedAt time.Time
}

// Migrate applies the missing migrations. Several processes may call it at the same time: one of them
// migrates, and the others wait for it for up to a minute. Migrate returns [ErrOtherSchema] if an applied
// migration differs from this program's. After the statements of each migration it calls each, unless that is
// nil.
func (db *DB) Migrate(ctx context.Context, each func(version int64)) error {
	return db.withMigrations(func(_ *sql.DB, v *versionTable, p *goose.Provider) error {
		v.each = each
		unlock, err := db.lockMigrations(ctx)
		if err != nil {
			return err
		}
		applied, err := p.Up(ctx)
		failed, partly := errors.AsType[*goose.PartialError](err)
		if partly {
			applied = failed.Applied
			err = fmt.Errorf("migration %s failed and was rolled back; running processes are not affected; "+
				"start a version with a fixed migration: %w", failed.Failed.Source.Path, failed.Err)
		}
		for _, r := range applied {
			db.logger.Info("migration applied", "version", r.Source.Version, "name", r.Source.Path, "took",
				r.Duration)
		}
		return errors.Join(err, unlock())
	})
}

// MigrationStatus returns all migrations that this program knows, with their state in the database. It
// returns [ErrOtherSchema] if an applied migration differs from this program's.
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
				Version: s.Source.Version, Name: s.Source.Path, Applied: s.State == goose.StateApplied,
				AppliedAt: s.AppliedAt,
			})
		}
		return nil
	})
	return list, err
}

// withMigrations runs fn with a separate database handle, so that migrations and writers do not wait for each
// other's connections.
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
		// Try the lock every second, 60 times. The default of 5 s would delay processes that start together.
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

// lockMigrations prevents other processes from migrating the same SQLite file. It holds a transaction on a
// separate lock file, because the migrations need transactions on the database file. On PostgreSQL it does
// nothing: an advisory lock (see withMigrations) has this role.
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
	lockTx, err := handle.BeginTx(ctx, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock migrations: %w", err), handle.Close())
	}
	return func() error { return errors.Join(lockTx.Rollback(), handle.Close()) }, nil
}

// migrationsTable has a row for each applied migration, and one for version 0.
const migrationsTable = "schema_migrations"

// ErrOtherSchema means that an applied migration has other statements than the same migration of this
// program.
var ErrOtherSchema = errors.New("the database has the schema of another version of dispatcher; " +
	"run that version, or start this one on an empty database (releases before 0.1.0 convert no schemas)")

// AppliedMigrations returns the hashes of the applied migrations by version. It returns nil if the database
// was never migrated. A hash is empty if an old program applied the migration without storing hashes.
func AppliedMigrations(ctx context.Context, db Queryer, engine string) (map[int64]string, error) {
	columns := `SELECT COUNT(*), COUNT(CASE WHEN name = 'hash' THEN 1 END) FROM pragma_table_info('` +
		migrationsTable + `')`
	if engine == migrations.Postgres {
		columns = `SELECT COUNT(*), COUNT(CASE WHEN attname = 'hash' THEN 1 END) FROM pg_attribute
			WHERE attrelid = to_regclass('` + migrationsTable + `') AND attnum > 0 AND NOT attisdropped`
	}
	var all, hashes int
	if err := db.QueryRowContext(ctx, columns).Scan(&all, &hashes); err != nil {
		return nil, fmt.Errorf("find table %s: %w", migrationsTable, err)
	}
	if all == 0 {
		return nil, nil
	}
	hash := "hash"
	if hashes == 0 {
		hash = "''"
	}
	rows, err := db.QueryContext(ctx, `SELECT version_id, `+hash+` FROM `+migrationsTable+
		` WHERE version_id > 0`)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", migrationsTable, err)
	}
	defer rows.Close()
	applied := make(map[int64]string)
	for rows.Next() {
		var version int64
		var hash string
		if err := rows.Scan(&version, &hash); err != nil {
			return nil, fmt.Errorf("read %s: %w", migrationsTable, err)
		}
		applied[version] = hash
	}
	return applied, rows.Err()
}

// A Queryer is an *sql.DB, an *sql.Conn or an *sql.Tx.
type Queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// CheckSchema returns [ErrOtherSchema] if the hash of an applied migration differs from that of the known
// migration. It ignores unknown versions: they come from a newer program, and this program can run with its
// schema.
func CheckSchema(known []migrations.File, applied map[int64]string) error {
	for _, m := range known {
		if hash, ok := applied[m.Version]; ok && hash != m.Hash {
			return ErrOtherSchema
		}
	}
	return nil
}

// versionTable is goose's table of applied migrations with an additional column for the hash. The hash is
// written in the transaction of its migration.
type versionTable struct {
	database.StoreExtender
	engine string
	known  []migrations.File
	// each is called after the statements of each migration; nil: not.
	each func(version int64)
}

func newVersionTable(engine string, known []migrations.File) (*versionTable, error) {
	dialect := database.DialectSQLite3
	if engine == migrations.Postgres {
		dialect = database.DialectPostgres
	}
	base, err := database.NewStore(dialect, migrationsTable)
	if err != nil {
		return nil, fmt.Errorf("open table of migrations: %w", err)
	}
	extended, ok := base.(database.StoreExtender)
	if !ok {
		return nil, fmt.Errorf("open table of migrations: %T does not implement StoreExtender", base)
	}
	return &versionTable{StoreExtender: extended, engine: engine, known: known}, nil
}

// CreateVersionTable implements [database.Store].
func (v *versionTable) CreateVersionTable(ctx context.Context, db database.DBTxConn) error {
	if err := v.StoreExtender.CreateVersionTable(ctx, db); err != nil {
		return err
	}
	_, err := db.ExecContext(ctx, `ALTER TABLE `+migrationsTable+` ADD COLUMN hash TEXT NOT NULL DEFAULT ''`)
	return err
}

// Insert implements [database.Store].
func (v *versionTable) Insert(ctx context.Context, db database.DBTxConn, r database.InsertRequest) error {
	if err := v.StoreExtender.Insert(ctx, db, r); err != nil {
		return err
	}
	for _, m := range v.known {
		if m.Version != r.Version {
			continue
		}
		set := `UPDATE ` + migrationsTable + ` SET hash = $1 WHERE version_id = $2`
		if _, err := db.ExecContext(ctx, set, m.Hash, m.Version); err != nil {
			return fmt.Errorf("set the hash of migration %d: %w", m.Version, err)
		}
		if v.each != nil {
			v.each(m.Version)
		}
	}
	return nil
}

// ListMigrations implements [database.Store]. goose's Up calls it under the migration lock before it applies
// a migration, so this check also protects Migrate.
func (v *versionTable) ListMigrations(
	ctx context.Context, db database.DBTxConn,
) ([]*database.ListMigrationsResult, error) {
	if err := v.check(ctx, db); err != nil {
		return nil, err
	}
	return v.StoreExtender.ListMigrations(ctx, db)
}

func (v *versionTable) check(ctx context.Context, db Queryer) error {
	applied, err := AppliedMigrations(ctx, db, v.engine)
	if err != nil {
		return err
	}
	return CheckSchema(v.known, applied)
}
