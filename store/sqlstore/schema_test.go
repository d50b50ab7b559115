package sqlstore

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
)

// lists runs a query with two text columns, and groups the second by the first.
func lists(t *testing.T, db *sql.DB, query string) map[string][]string {
	t.Helper()
	rows := must(db.QueryContext(t.Context(), query))
	defer rows.Close()
	all := make(map[string][]string)
	for rows.Next() {
		var key, value string
		noError(rows.Scan(&key, &value))
		all[key] = append(all[key], value)
	}
	noError(rows.Err())
	return all
}

const (
	sqliteColumns = `SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c
		WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.name`
	postgresColumns = `SELECT table_name, column_name FROM information_schema.columns
		WHERE table_schema = 'public' ORDER BY table_name COLLATE "C", column_name COLLATE "C"`
)

// raw opens the database without the store.
func raw(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := must(sql.Open(driver, dsn))
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// migrated migrates an empty database, as the command serve does.
func migrated(t *testing.T, url string) *DB {
	t.Helper()
	db := openURL(t, Options{URL: url})
	if err := Migrate(t.Context(), db); err != nil {
		t.Fatalf("migrate: %v", err)
	}
	return db
}

// onBothEmpty runs a test on an empty database of each kind. driver and dsn open it without the store.
func onBothEmpty(t *testing.T, test func(t *testing.T, url, driver, dsn string)) {
	t.Helper()
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "d.db")
		test(t, "sqlite:"+path, "sqlite", path)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		needsPostgres(t)
		url := testserver.SharedPostgres(t).Database(t)
		test(t, url, "pgx", url)
	})
}

// TestStampsWriteNoIndex: no index of callbacks has a column that a claim stamp changes.
func TestStampsWriteNoIndex(t *testing.T) {
	onBothEmpty(t, func(t *testing.T, url, driver, dsn string) {
		migrated(t, url)
		query := map[string]string{
			"sqlite": `SELECT tbl_name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL`,
			"pgx":    `SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'`,
		}[driver]
		indexes := lists(t, raw(t, driver, dsn), query)["callbacks"]
		if len(indexes) < 5 {
			t.Errorf("only %d indexes were found", len(indexes))
		}
		hot := regexp.MustCompile(`\b(fence|claim_\w+|claimed_at|lost_at|claims_without_result|` +
			`divert_count|attempt_seq|updated_at)\b`)
		for _, index := range indexes {
			if m := hot.FindString(index); m != "" {
				t.Errorf("a stamp would write an index, because of %s: %s", m, index)
			}
		}
	})
}

// TestSchemaParity: both databases have the same tables and columns.
func TestSchemaParity(t *testing.T) {
	needsPostgres(t)
	lite := lists(t, raw(t, "sqlite", strings.TrimPrefix(sqliteURL(t), "sqlite:")), sqliteColumns)
	pg := lists(t, raw(t, "pgx", postgresURL(t)), postgresColumns)
	tables := slices.Sorted(maps.Keys(lite))
	if !slices.Equal(tables, slices.Sorted(maps.Keys(pg))) {
		t.Fatalf("tables of SQLite: %v\nof PostgreSQL: %v", tables, slices.Sorted(maps.Keys(pg)))
	}
	for _, table := range tables {
		if !slices.Equal(lite[table], pg[table]) {
			t.Errorf("%s has on SQLite: %v\non PostgreSQL: %v", table, lite[table], pg[table])
		}
	}
}

// TestMigrateTogether: several processes may migrate one database at the same time.
func TestMigrateTogether(t *testing.T) {
	onBothEmpty(t, migrateTogether)
}

func migrateTogether(t *testing.T, url, _, _ string) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			db, err := Open(ctx, Options{URL: url})
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			for range 2 {
				if err := Migrate(ctx, db); err != nil {
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
	status := must(MigrationStatus(t.Context(), db))
	if len(status) == 0 {
		t.Fatal("no migrations are known")
	}
	for _, m := range status {
		if !m.Applied || m.AppliedAt.IsZero() || m.Version == 0 || !strings.Contains(m.Name, "_") {
			t.Errorf("migration: %+v", m)
		}
	}
}

// TestOtherSchemaIsRefused: a database whose migrations differ from those of the program is refused.
func TestOtherSchemaIsRefused(t *testing.T) { onBothEmpty(t, otherSchema) }

func otherSchema(t *testing.T, url, driver, dsn string) {
	db := migrated(t, url)
	handle := raw(t, driver, dsn)
	for _, step := range []struct {
		name, change string
		refused      bool
	}{
		{"a migration of a newer program",
			`INSERT INTO schema_migrations (version_id, is_applied, hash) VALUES (999, '1', 'unknown')`,
			false},
		{"another text", `UPDATE schema_migrations SET hash = 'other' WHERE version_id = 1`, true},
		{"a program that kept no hash", `ALTER TABLE schema_migrations DROP COLUMN hash`, true},
	} {
		must(handle.ExecContext(t.Context(), step.change))
		_, statusErr := MigrationStatus(t.Context(), db)
		for call, err := range map[string]error{"Migrate": Migrate(t.Context(), db),
			"MigrationStatus": statusErr} {
			if errors.Is(err, ErrOtherSchema) != step.refused || (err != nil) != step.refused {
				t.Errorf("%s: %s returned %v", step.name, call, err)
			}
		}
	}
}

// TestMigrationStatusBefore reads the status of a database that was never migrated.
func TestMigrationStatusBefore(t *testing.T) {
	t.Parallel()
	db := must(Open(t.Context(), Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "d.db")}))
	status, err := MigrationStatus(t.Context(), db)
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

// TestOpen opens impossible URLs, and a path with characters that mean something in a URL.
func TestOpen(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "mysql://x", "sqlite:", "sqlite::memory:", "postgres://%zz"} {
		if db, err := Open(t.Context(), Options{URL: url}); err == nil {
			t.Errorf("Open(%q) got no error", url)
			_ = db.Close()
		}
	}
	path := filepath.Join(t.TempDir(), "a?b #c%20", "d.db")
	migrated(t, "sqlite:"+path)
	info := must(os.Stat(path))
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %o", info.Mode().Perm())
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}
}
