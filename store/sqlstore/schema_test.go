package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore"
)

// lists runs a query of two text columns and groups the second by the first.
func lists(t *testing.T, db *sql.DB, query string) map[string][]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	all := make(map[string][]string)
	for rows.Next() {
		var key, value string
		if err := rows.Scan(&key, &value); err != nil {
			t.Fatal(err)
		}
		all[key] = append(all[key], value)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

const (
	sqliteColumns = `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.name`
	postgresColumns = `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = 'public' ORDER BY table_name COLLATE "C", column_name COLLATE "C"`
	sqliteIndexes   = `SELECT tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`
	postgresIndexes = `SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'`
)

// raw opens a handle apart from the store's.
func raw(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// checkIndexes fails for an index over a column that a claim stamp changes.
func checkIndexes(t *testing.T, indexes map[string][]string) {
	t.Helper()
	if len(indexes["callbacks"]) < 5 {
		t.Errorf("only %d indexes were found", len(indexes["callbacks"]))
	}
	hot := regexp.MustCompile(`\b(fence|claim_\w+|claimed_at|lost_at|crash_count|divert_count|attempt_seq|updated_at)\b`)
	for _, index := range indexes["callbacks"] {
		if m := hot.FindString(index); m != "" {
			t.Errorf("a stamp would write an index, because of %s: %s", m, index)
		}
	}
}

// migrated opens an empty database and migrates it, as serve does.
func migrated(t *testing.T, url string) *sqlstore.DB {
	t.Helper()
	db := sqlstore.OpenURL(t, sqlstore.Options{URL: url})
	if err := sqlstore.Migrate(t.Context(), db); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return db
}

func TestSQLiteSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	migrated(t, "sqlite:"+path)
	checkIndexes(t, lists(t, raw(t, "sqlite", path), sqliteIndexes))
}

// TestSchemaParity compares the tables and columns of the two databases.
func TestSchemaParity(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
	path := filepath.Join(t.TempDir(), "d.db")
	migrated(t, "sqlite:"+path)
	url := testserver.SharedPostgres(t).Database(t)
	migrated(t, url)
	handle := raw(t, "pgx", url)
	lite, pg := lists(t, raw(t, "sqlite", path), sqliteColumns), lists(t, handle, postgresColumns)
	tables := slices.Sorted(maps.Keys(lite))
	if !slices.Equal(tables, slices.Sorted(maps.Keys(pg))) {
		t.Fatalf("tables of SQLite: %v\nof PostgreSQL: %v", tables, slices.Sorted(maps.Keys(pg)))
	}
	for _, table := range tables {
		if !slices.Equal(lite[table], pg[table]) {
			t.Errorf("%s has on SQLite: %v\non PostgreSQL: %v", table, lite[table], pg[table])
		}
	}
	checkIndexes(t, lists(t, handle, postgresIndexes))
}

// migrateTogether lets several processes start at once.
func migrateTogether(t *testing.T, url string) {
	t.Helper()
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := sqlstore.Open(ctx, sqlstore.Options{URL: url})
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			for range 2 {
				if err := sqlstore.Migrate(ctx, db); err != nil {
					t.Errorf("migrate: %v", err)
				}
			}
			if err := db.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	wg.Wait()
	db := migrated(t, url)
	status, err := sqlstore.MigrationStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if len(status) == 0 {
		t.Fatal("no migrations are known")
	}
	for _, m := range status {
		if !m.Applied || m.AppliedAt.IsZero() || m.Version == 0 || !strings.Contains(m.Name, "_") {
			t.Errorf("migration: %+v", m)
		}
	}
}

func TestMigrateTogetherSQLite(t *testing.T) {
	t.Parallel()
	migrateTogether(t, "sqlite:"+filepath.Join(t.TempDir(), "d.db"))
}

func TestMigrateTogetherPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a PostgreSQL server")
	}
	t.Parallel()
	migrateTogether(t, testserver.SharedPostgres(t).Database(t))
}

// TestOtherSchemaIsRefused changes what the database says of its migrations.
func TestOtherSchemaIsRefused(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "d.db")
		otherSchema(t, "sqlite:"+path, "sqlite", path)
	})
	t.Run("postgres", func(t *testing.T) {
		if testing.Short() {
			t.Skip("needs a PostgreSQL server")
		}
		t.Parallel()
		url := testserver.SharedPostgres(t).Database(t)
		otherSchema(t, url, "pgx", url)
	})
}

func otherSchema(t *testing.T, url, driver, dsn string) {
	db := migrated(t, url)
	handle := raw(t, driver, dsn)
	for _, step := range []struct {
		name, change string
		refused      bool
	}{
		{"a migration of a newer program",
			`INSERT INTO schema_migrations (version_id, is_applied, hash) VALUES (999, '1', 'unknown')`, false},
		{"another text", `UPDATE schema_migrations SET hash = 'other' WHERE version_id = 1`, true},
		{"a program that kept no hash", `ALTER TABLE schema_migrations DROP COLUMN hash`, true},
	} {
		if _, err := handle.ExecContext(t.Context(), step.change); err != nil {
			t.Fatal(err)
		}
		_, statusErr := sqlstore.MigrationStatus(t.Context(), db)
		for call, err := range map[string]error{"Migrate": sqlstore.Migrate(t.Context(), db), "MigrationStatus": statusErr} {
			if errors.Is(err, sqlstore.ErrOtherSchema) != step.refused || (err != nil) != step.refused {
				t.Errorf("%s: %s returned %v", step.name, call, err)
			}
		}
	}
}

func TestMigrationStatusBefore(t *testing.T) {
	t.Parallel()
	db, err := sqlstore.Open(t.Context(), sqlstore.Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "d.db")})
	if err != nil {
		t.Fatal(err)
	}
	status, err := sqlstore.MigrationStatus(t.Context(), db)
	if err != nil || len(status) == 0 || status[0].Applied {
		t.Errorf("status before the first migration: %v, %+v", err, status)
	}
	if _, err := db.Get(t.Context(), store.DefaultProject, "x"); err == nil {
		t.Error("a read before the first migration got no error")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:", "postgres://%zz"} {
		if db, err := sqlstore.Open(t.Context(), sqlstore.Options{URL: url}); err == nil {
			t.Errorf("Open(%q) got no error", url)
			_ = db.Close()
		}
	}
	path := filepath.Join(t.TempDir(), "a?b #c%20", "d.db")
	migrated(t, "sqlite:"+path)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %o", info.Mode().Perm())
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
}
