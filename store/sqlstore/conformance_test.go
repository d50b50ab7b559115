package sqlstore_test

import (
	"path/filepath"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/store/storetest"
)

// open opens and migrates a database that is closed when the test ends.
func open(tb testing.TB, o sqlstore.Options) *sqlstore.DB {
	tb.Helper()
	db, err := sqlstore.Open(tb.Context(), o)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	if err := sqlstore.Migrate(tb.Context(), db); err != nil {
		tb.Fatalf("migrate: %v", err)
	}
	return db
}

func openSQLite(tb testing.TB) *sqlstore.DB {
	tb.Helper()
	return open(tb, sqlstore.Options{URL: "sqlite:" + filepath.Join(tb.TempDir(), "data dir", "dispatcher.db")})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store { return sqlstore.TestDB{DB: openSQLite(t)} })
}

// A database may be asked for callbacks that another process accepted, or that were accepted long ago; and for more than one statement
// looks at.
func TestSQLiteRemembersNothing(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Store {
		db := openSQLite(t)
		sqlstore.Forget(db)
		sqlstore.SetBooksWindow(db, 3)
		return sqlstore.TestDB{DB: db}
	})
}

func TestPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
	server := testserver.NewPostgres(t)
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return sqlstore.TestDB{DB: open(t, sqlstore.Options{URL: server.Database(t)})}
	})
}
