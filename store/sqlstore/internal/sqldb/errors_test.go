package sqldb

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestErrorsOfARow checks that a row is blamed only for errors that a row can cause. All other errors mean
// that the database is unavailable. Otherwise a missing column, for example, would end every callback that is
// due.
func TestErrorsOfARow(t *testing.T) {
	for _, c := range []struct {
		code, name string
		row        bool
	}{
		{"22P05", "untranslatable character", true},
		{"22003", "number out of range", true},
		{"23505", "unique violation", true},
		{"23502", "not-null violation", true},
		{"54000", "row too large", true},
		{"P0001", "error raised by a trigger", true},
		{"XX001", "damaged page", true},
		{"42703", "missing column", false},
		{"42P01", "missing table", false},
		{"42501", "missing privilege", false},
		{"42P05", "prepared statement of another session, behind a pooler", false},
		{"26000", "missing prepared statement, behind a pooler", false},
		{"0A000", "cached plan that a migration made stale", false},
		{"25006", "standby", false},
		{"25P02", "transaction that failed before", false},
		{"55P03", "lock not available", false},
		{"57014", "canceled statement", false},
		{"53100", "full disk", false},
		{"40003", "commit with unknown result", false},
		{"3F000", "missing schema", false},
	} {
		err := fmt.Errorf("stamp: %w", &pgconn.PgError{Code: c.code})
		if got := !unavailable(err); got != c.row {
			t.Errorf("%s, %s: blames a row: %v, want %v", c.code, c.name, got, c.row)
		}
	}
	if !transient(fmt.Errorf("claim rows: %w", &pgconn.PgError{Code: "0A000"})) {
		t.Error("a transaction with a stale plan is not tried again")
	}
}

// TestMissingColumnOnSQLite checks the same on SQLite, which has one code for all errors in a statement.
func TestMissingColumnOnSQLite(t *testing.T) {
	db, err := Open(t.Context(), Options{URL: "sqlite:" + t.TempDir() + "/x.db"})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, query := range []string{`SELECT absent FROM sqlite_master`, `SELECT 1 FROM nowhere`} {
		rows, err := db.Reads.QueryContext(t.Context(), query)
		if err == nil {
			err = rows.Close()
		}
		if err == nil || !unavailable(err) {
			t.Errorf("%s: %v blames a row", query, err)
		}
	}
}
