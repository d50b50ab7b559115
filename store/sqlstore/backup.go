package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/migrations"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// A Backup describes a checked copy of a SQLite database.
type Backup struct {
	// Callbacks is the number of callbacks in the copy. Open are those that have not ended.
	Callbacks, Open int64
}

// BackupSQLite copies the SQLite database at from, which processes may be using, to the new file at to. It
// syncs the copy and then checks it: SQLite's integrity check, the migrations, and that the copy has every
// commit from before the call. The copy has mode 0600. After an error the file at to is not a backup; the
// caller removes it.
//
// Writers continue meanwhile. SQLite cannot shorten its log before the copy is complete.
func BackupSQLite(ctx context.Context, from, to string) (Backup, error) {
	before, err := copySQLite(ctx, from, to)
	if err != nil {
		return Backup{}, fmt.Errorf("copy the database: %w", err)
	}
	b, err := checkCopy(ctx, to, before)
	if err != nil {
		return Backup{}, fmt.Errorf("check the copy: %w", err)
	}
	return b, nil
}

// A Source describes a SQLite database that is to be copied.
type Source struct {
	// Size is the size in bytes of the rows and indexes. A copy is about as large.
	Size int64
	// Installation is a random id that each copy of the database has too. It is empty before the first start
	// of a server.
	Installation string
	// Sealed are encrypted rows, one for each table and master key.
	Sealed []store.SealedRow
}

// InspectSQLite describes the SQLite database at path, which processes may be using.
func InspectSQLite(ctx context.Context, path string) (s Source, err error) {
	err = withSQLite(path, "rw", func(db *sql.DB) error {
		if err := checkTables(ctx, db); err != nil {
			return err
		}
		err := db.QueryRowContext(ctx, `SELECT (page_count - freelist_count) * page_size
			FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()`).Scan(&s.Size)
		if err != nil {
			return err
		}
		s.Installation, err = readInstallation(ctx, db)
		if err != nil {
			return err
		}
		s.Sealed, err = ReadSealedKeys(ctx, db, time.Now().UnixMilli())
		return err
	})
	if err != nil {
		return Source{}, fmt.Errorf("read the database: %w", err)
	}
	return s, nil
}

// CopyInstallation returns the Source.Installation of a copy that BackupSQLite made.
func CopyInstallation(ctx context.Context, path string) (id string, err error) {
	err = withCopy(path, func(db *sql.DB) error {
		var err error
		id, err = readInstallation(ctx, db)
		return err
	})
	return id, err
}

// readInstallation returns the id of the key that signs the cursors of lists: no caller can replace it.
func readInstallation(ctx context.Context, db sqldb.Queryer) (id string, err error) {
	err = db.QueryRowContext(ctx, `SELECT id FROM secrets WHERE project = '' AND use = 'cursor'
		ORDER BY id LIMIT 1`).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return id, err
}

// withCopy runs fn with a copy, which has no log. immutable: SQLite creates no other file next to it.
func withCopy(path string, fn func(*sql.DB) error) error {
	return withSQLite(path, "ro&immutable=1", fn)
}

// withSQLite runs fn with the existing SQLite file at path. mode is SQLite's: "rw", or "ro".
func withSQLite(path, mode string, fn func(*sql.DB) error) error {
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+
		"?_pragma=busy_timeout(5000)&mode="+mode)
	if err != nil {
		return err
	}
	return errors.Join(fn(db), db.Close())
}

// copySQLite copies and syncs the file. before is the number of the last commit when the copy began.
func copySQLite(ctx context.Context, from, to string) (before int64, err error) {
	// SQLite would create the file with the mode of the umask; it accepts an empty one.
	f, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	// Mode rw: readers of a log register in a file beside it, and never create the database.
	err = withSQLite(from, "rw", func(db *sql.DB) error {
		if err := checkTables(ctx, db); err != nil {
			return err
		}
		var err error
		before, err = lastCommit(ctx, db)
		if err != nil {
			return err
		}
		_, err = db.ExecContext(ctx, `VACUUM INTO $1`, to)
		return err
	})
	return before, errors.Join(err, f.Sync(), f.Close())
}

// lastCommit returns the number of the last note. Every commit of callbacks appends one, and SQLite never
// uses a number again, also after a fold.
func lastCommit(ctx context.Context, db sqldb.Queryer) (n int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT seq FROM sqlite_sequence WHERE name = 'commit_notes'`).Scan(&n)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return n, err
}

// checkTables returns an error if the database is not one of this program.
func checkTables(ctx context.Context, db sqldb.Queryer) error {
	known, _, err := migrations.For(migrations.SQLite)
	if err != nil {
		return err
	}
	applied, err := AppliedMigrations(ctx, db, migrations.SQLite)
	if err == nil && len(applied) == 0 {
		err = errors.New("it has no tables of dispatcher; check data_dir and database_url")
	}
	return errors.Join(err, CheckSchema(known, applied))
}

// checkCopy checks the copy at path, which must have the commit number before.
func checkCopy(ctx context.Context, path string, before int64) (b Backup, err error) {
	err = withCopy(path, func(db *sql.DB) error {
		var found string
		if err := db.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
			return err
		}
		if found != "ok" {
			return fmt.Errorf("SQLite's integrity check: %s", found)
		}
		if err := checkTables(ctx, db); err != nil {
			return err
		}
		after, err := lastCommit(ctx, db)
		if err != nil {
			return err
		}
		if after < before {
			return fmt.Errorf("it ends with commit %d, and the database had commit %d before", after, before)
		}
		return db.QueryRowContext(ctx, `SELECT COUNT(*), COUNT(CASE WHEN state = $1 THEN 1 END)
			FROM callbacks`, store.Scheduled).Scan(&b.Callbacks, &b.Open)
	})
	return b, err
}
