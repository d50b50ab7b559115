package sqlstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// The databases of tests are copies of databases that were migrated once for the test binary.

// migratedFile returns the content of an SQLite file that has only the schema.
var migratedFile = testserver.SQLiteTemplate(migrateURL)

// migrateURL migrates a database and closes all connections to it.
func migrateURL(url string) error {
	ctx := context.Background()
	db, err := Open(ctx, Options{URL: url})
	if err != nil {
		return err
	}
	return errors.Join(Migrate(ctx, db), db.Close())
}

// sqliteURL writes a migrated file for the test and returns its URL.
func sqliteURL(tb testing.TB) string {
	tb.Helper()
	content, err := migratedFile()
	if err != nil {
		tb.Fatalf("make the migrated file: %v", err)
	}
	path := filepath.Join(tb.TempDir(), "d.db")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return "sqlite:" + path
}

// postgresURL gives the test a migrated database of the shared server, and returns its URL. Text is sorted by
// the rules of a language.
func postgresURL(tb testing.TB) string {
	tb.Helper()
	return sortedByPeople.take(tb, testserver.SharedPostgres(tb).Copy)
}

// postgresURLC is postgresURL with a database that sorts text by bytes.
func postgresURLC(tb testing.TB) string {
	tb.Helper()
	return sortedByBytes.take(tb, testserver.SharedPostgres(tb).CopyC)
}

var sortedByPeople, sortedByBytes emptied

// emptied holds databases that earlier tests have left, and that are empty again. A new copy costs PostgreSQL
// as much time as everything else in most tests.
type emptied struct {
	mu   sync.Mutex
	urls []string
}

// take returns one of them, or a new copy of the template. The database returns to the list after the test
// has closed it.
func (e *emptied) take(tb testing.TB, copyOf func(testing.TB, string, func(string) error) string) string {
	tb.Helper()
	e.mu.Lock()
	var url string
	if last := len(e.urls) - 1; last >= 0 {
		url, e.urls = e.urls[last], e.urls[:last]
	}
	e.mu.Unlock()
	if url == "" {
		url = copyOf(tb, "schema", fillTemplate)
	}
	tb.Cleanup(func() {
		small, err := emptyDatabase(url)
		if err != nil {
			tb.Errorf("empty the database: %v", err)
		} else if small {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.urls = append(e.urls, url)
		}
	})
	return url
}

// fillTemplate migrates a database, and keeps a copy of the rows that migrations insert.
func fillTemplate(url string) error {
	if err := migrateURL(url); err != nil {
		return err
	}
	return execURL(url, `CREATE SCHEMA made;
		CREATE TABLE made.projects AS TABLE projects; CREATE TABLE made.versions AS TABLE versions;
		CREATE TABLE made.audit_head AS TABLE audit_head; CREATE TABLE made.stop AS TABLE stop`)
}

// emptyDatabase deletes all rows but those that migrations insert. It reports whether the database is still
// small.
func emptyDatabase(url string) (small bool, err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return false, err
	}
	defer db.Close()
	const most = 20 << 20 // bytes; a database without rows has 9 MB
	ctx := context.Background()
	if err := db.QueryRowContext(ctx, `SELECT pg_database_size(current_database()) < $1`,
		most).Scan(&small); err != nil || !small {
		return false, err
	}
	_, err = db.ExecContext(ctx, `DO $$
		DECLARE name TEXT;
		BEGIN
			FOR name IN
				SELECT tablename FROM pg_tables
				WHERE schemaname = 'public' AND tablename <> 'schema_migrations'
			LOOP
				EXECUTE format('DELETE FROM %I', name);
			END LOOP;
			INSERT INTO projects SELECT * FROM made.projects;
			INSERT INTO versions SELECT * FROM made.versions;
			INSERT INTO audit_head SELECT * FROM made.audit_head;
			INSERT INTO stop SELECT * FROM made.stop;
		END $$`)
	return err == nil, err
}

// execURL runs statements on a database.
func execURL(url, statements string) error {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(context.Background(), statements)
	return errors.Join(err, db.Close())
}

// openURL opens a database that is closed when the test ends.
func openURL(tb testing.TB, o Options) *DB {
	tb.Helper()
	db, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() {
		if err := db.Close(); err != nil {
			tb.Errorf("close: %v", err)
		}
	})
	return db
}

// openSlow opens a database whose calls may take a minute, because a machine may run many tests at once.
func openSlow(tb testing.TB, url string) *DB {
	tb.Helper()
	if strings.HasPrefix(url, "postgres") {
		url += "&connect_timeout=60"
	}
	db := openURL(tb, Options{URL: url})
	db.sql.Limits = sqldb.Limits{Queue: time.Minute, Read: time.Minute, Commit: time.Minute}
	return db
}

// openSQLite opens a migrated SQLite database for the test.
func openSQLite(tb testing.TB) *DB {
	tb.Helper()
	return openSlow(tb, sqliteURL(tb))
}

// openPostgres opens a migrated PostgreSQL database for the test.
func openPostgres(tb testing.TB) *DB {
	tb.Helper()
	return openSlow(tb, postgresURL(tb))
}

// needsPostgres skips the test in short mode, and lets it run in parallel.
func needsPostgres(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
}

// litePlan returns SQLite's plan of a statement. It does not depend on the rows.
func litePlan(tb testing.TB, db *DB, text string, args ...any) string {
	tb.Helper()
	var steps []string
	if err := db.read(tb.Context(), "explain").Each(func(rows sqldb.Row) error {
		var id, parent, unused int
		var step string
		err := rows.Scan(&id, &parent, &unused, &step)
		steps = append(steps, step)
		return err
	}, "EXPLAIN QUERY PLAN "+text, args...); err != nil {
		tb.Fatalf("%v\n%s", err, text)
	}
	return strings.Join(steps, "; ")
}

// selecting returns a whole SELECT statement.
func selecting[T any](columns func(*T) sqldb.Columns, rest string) string {
	return "SELECT " + columns(new(T)).List() + " " + rest
}

// onBoth runs a test on SQLite, and also on PostgreSQL unless tests are short. All run in parallel.
func onBoth(t *testing.T, test func(*testing.T, *DB)) {
	t.Helper()
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		test(t, openSQLite(t))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		needsPostgres(t)
		test(t, openPostgres(t))
	})
}

// must returns the result of a call that may not fail. noError is for calls without another result.
func must[T any](result T, err error) T {
	noError(err)
	return result
}

func noError(err error) {
	if err != nil {
		panic(err)
	}
}

// stampAll claims the callbacks that are unclaimed and due.
func stampAll(t *testing.T, db *DB, ids ...string) []*store.Stamped {
	t.Helper()
	stamp := store.Stamp{Token: "token", Now: testNow, Margin: 15_000}
	for _, id := range ids {
		stamp.Claims = append(stamp.Claims, store.StampClaim{ID: id})
	}
	stamped, _, err := db.Stamp(t.Context(), stamp)
	noError(err)
	return stamped
}

// succeeded returns the result of a successful attempt.
func succeeded(s *store.Stamped) store.Result {
	return store.Result{ID: s.ID, Fence: s.Fence, State: store.Succeeded, Charge: true,
		Attempt: &store.Attempt{
			Trigger: store.BySchedule, Outcome: store.AttemptSucceeded, Charged: true,
			Class: store.ClassOK, Status: 200, DueAt: testNow, StartedAt: testNow, EndedAt: testNow,
		}}
}

// newDrafts returns drafts with a body of 512 bytes, in ten lanes.
func newDrafts(n int, now int64) []store.Draft {
	entropy := ulid.Monotonic(rand.Reader, 0)
	body := bytes.Repeat([]byte("x"), 512)
	drafts := make([]store.Draft, n)
	for i := range drafts {
		drafts[i] = store.Draft{
			Callback: store.Callback{
				ID:      ulid.MustNew(ulid.Timestamp(time.Now()), entropy).String(),
				Project: store.DefaultProject, Kind: store.Notify, State: store.Scheduled,
				URL: "https://shop.example/notify", Method: "POST", ContentType: "application/json",
				Topic: "payment.succeeded", Ref: fmt.Sprint("order-", i), Lane: fmt.Sprint("lane-", i%10),
				Labels: map[string]string{"channel": "alipay"},
				Policy: store.Policy{Name: "payment", Timeout: 15 * time.Second, RetryAfterCap: time.Hour,
					Tiers: []time.Duration{
						15 * time.Second, 3 * time.Minute, 10 * time.Minute, 30 * time.Minute,
						30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 15 * time.Hour,
					}},
				Success: store.Success{Name: "http-2xx"}, Signer: "standard-v1", Trigger: store.BySchedule,
				DueAt: now, FirstDueAt: now, CreatedAt: now, UpdatedAt: now,
			},
			Body: body,
		}
	}
	return drafts
}
