package dispatch_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// emptyDatabase returns the bytes of a migrated SQLite file without rows. Migrations take longer than
// most tests: they run once, and each test starts with a copy.
var emptyDatabase = sync.OnceValues(func() (empty []byte, err error) {
	dir, err := os.MkdirTemp("", "dispatch")
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "empty.db")
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: "sqlite:" + path})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(sqlstore.Migrate(context.Background(), db), db.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// databasePath returns a path in a directory of the test's own. It is in memory where the system has such
// a place: a disk is waited for at each commit, and no test reads what survives a power cut.
func databasePath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "dispatch")
	if err != nil {
		return filepath.Join(t.TempDir(), "dispatcher.db")
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "dispatcher.db")
}

// openDatabase opens the SQLite file at the path, which becomes an empty database if there is none.
func openDatabase(ctx context.Context, path string) (*sqlstore.DB, error) {
	empty, err := emptyDatabase()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, empty, 0o600); err != nil {
			return nil, err
		}
	}
	return sqlstore.Open(ctx, sqlstore.Options{URL: "sqlite:" + path})
}
