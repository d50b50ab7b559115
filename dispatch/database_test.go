package dispatch_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// emptyDatabase returns the bytes of a migrated SQLite file without rows. Migrations take longer than
// most tests: they run once, and each test starts with a copy.
var emptyDatabase = testserver.SQLiteTemplate(func(url string) error {
	db, err := sqlstore.Open(context.Background(), sqlstore.Options{URL: url})
	if err != nil {
		return err
	}
	return errors.Join(sqlstore.Migrate(context.Background(), db), db.Close())
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
