package sqlstore_test

import (
	"math"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
	"github.com/seed-ff5a32d8/dispatcher/store/storetest"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// On SQLite the model runs as many histories as -rapid.checks says: there a history takes a tenth of the time.
const allHistories = math.MaxInt

// Under the race detector only those tests run that call the store from several goroutines; make test runs all without it.
func TestSQLite(t *testing.T) {
	t.Parallel()
	o := storetest.Options{Histories: allHistories}
	if underRace && !testserver.Full() {
		o.Groups = storetest.Concurrent
	}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return sqlstore.TestDB{DB: sqlstore.OpenSQLite(t)}
	})
}

// A claim may be for callbacks that another process has accepted, and the books may need more than one statement.
func TestSQLiteRemembersNothing(t *testing.T) {
	if underRace && !testserver.Full() {
		return
	}
	t.Parallel()
	o := storetest.Options{Groups: []string{"Accept", "Stamp", "Strict", "Endpoint", "Books"}}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		db := sqlstore.OpenSQLite(t)
		sqlstore.Forget(db)
		sqlstore.SetBooksWindow(db, 3)
		return sqlstore.TestDB{DB: db}
	})
}

func TestPostgres(t *testing.T) {
	sqlstore.NeedsPostgres(t)
	o := storetest.Options{Histories: 20}
	if testserver.Full() {
		o.Histories = allHistories
	}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return sqlstore.TestDB{DB: sqlstore.OpenPostgres(t)}
	})
}

// TestPostgresC runs the groups that put text in order, or compare it, on a database that sorts by bytes. The others
// sort as people do.
func TestPostgresC(t *testing.T) {
	sqlstore.NeedsPostgres(t)
	o := storetest.Options{Groups: []string{
		"Audit/Filters", "Books", "Endpoint/Find", "Lane/List", "Project/Presets", "Read/DeadGroups", "Schedule/List", "Walk/Pages",
		"Walk/Until",
	}}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return sqlstore.TestDB{DB: sqlstore.OpenURL(t, sqlstore.Options{URL: sqlstore.PostgresURLC(t)})}
	})
}
