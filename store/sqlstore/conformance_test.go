package sqlstore

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store/storetest"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// allHistories makes the model run as many histories as -rapid.checks says. On SQLite a history takes a tenth
// of the time.
const allHistories = math.MaxInt

// onlyCrowds reports whether a suite runs only the tests that call the store from several goroutines. It is
// so under the race detector, unless the size is full.
func onlyCrowds() bool { return underRace && !testserver.Full() }

func TestSQLite(t *testing.T) {
	t.Parallel()
	o := storetest.Options{Histories: allHistories, Crowds: onlyCrowds()}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return testDB{DB: openSQLite(t)}
	})
}

// TestSQLiteWithoutCache runs the suite as if another process had accepted every callback, and with windows
// so small that reconciliation, Claimed and OverdueLanes need several statements.
func TestSQLiteWithoutCache(t *testing.T) {
	t.Parallel()
	groups := []string{"Accept", "Stamp", "Strict", "Endpoint", "Reconcile", "Walk", "Model"}
	o := storetest.Options{Groups: groups, Histories: 20}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		db := openSQLite(t)
		db.accepted.max = -1 // disables the cache
		db.reconcileWindow, db.claimWindow = 3, 1
		db.overdueBudget = pageBudget{first: 2, rows: 3, time: time.Minute}
		return testDB{DB: db}
	})
}

func TestPostgres(t *testing.T) {
	needsPostgres(t)
	o := storetest.Options{Histories: 20, Crowds: onlyCrowds()}
	if testserver.Full() {
		o.Histories = allHistories
	}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return testDB{DB: openPostgres(t)}
	})
}

// TestPostgresC runs the groups that sort or compare text, on a database that sorts by bytes. The databases
// of other tests sort by the rules of a language.
func TestPostgresC(t *testing.T) {
	needsPostgres(t)
	o := storetest.Options{Groups: []string{
		"Audit/Filters", "Reconcile", "Endpoint/Find", "Lane/List", "Project/Presets", "Read/DeadGroups",
		"Schedule/List", "Walk/Pages",
		"Walk/Until",
	}}
	storetest.Run(t, o, func(t *testing.T) storetest.Store {
		return testDB{DB: openSlow(t, postgresURLC(t))}
	})
}

// A testDB is a DB whose rows can be damaged.
type testDB struct{ *DB }

// Damage makes a callback's policy undecodable, as a change that went wrong would.
func (db testDB) Damage(ctx context.Context, id string) error {
	return db.change(ctx, "damage", func(t *tx) error {
		_, err := t.Exec(`UPDATE callbacks SET updated_at = updated_at + 1 WHERE id = $1`, id)
		if err == nil {
			_, err = t.Exec(`UPDATE requests SET policy = '{"tiers": [1' WHERE id = $1`, id)
		}
		return err
	})
}
