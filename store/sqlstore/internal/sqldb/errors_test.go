package sqldb

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// A row is blamed, and set aside as dead, only for errors that a row can cause. Everything else says that SQL
// as a whole cannot do it: a missing column would otherwise end every callback that is due.
func TestWhatARowIsBlamedFor(t *testing.T) {
	for _, c := range []struct {
		code, what string
		row        bool
	}{
		{"22P05", "a character that cannot be translated", true},
		{"22003", "a number out of range", true},
		{"23505", "a key that is there already", true},
		{"23502", "a null", true},
		{"54000", "a row that is too large", true},
		{"P0001", "a trigger that raised", true},
		{"XX001", "a damaged page", true},
		{"42703", "a missing column", false},
		{"42P01", "a missing table", false},
		{"42501", "a missing right", false},
		{"42P05", "a prepared statement of somebody else, behind a pooler", false},
		{"26000", "a prepared statement that is gone, behind a pooler", false},
		{"0A000", "a cached plan that a migration made stale", false},
		{"25006", "a standby", false},
		{"25P02", "a transaction that failed before", false},
		{"55P03", "a lock that could not be had", false},
		{"57014", "a statement that was canceled", false},
		{"53100", "a full disk", false},
		{"40003", "a commit whose end is unknown", false},
		{"3F000", "a missing schema", false},
	} {
		err := fmt.Errorf("stamp: %w", &pgconn.PgError{Code: c.code})
		if got := !unavailable(err); got != c.row {
			t.Errorf("%s, %s: blamed on a row: %v, want %v", c.code, c.what, got, c.row)
		}
	}
	if !transient(fmt.Errorf("claim rows: %w", &pgconn.PgError{Code: "0A000"})) {
		t.Error("a stale plan is made anew at the next try, and must be tried again")
	}
}

// The same on SQLite, whose one code for errors in a statement says little.
func TestAMissingColumnIsNoRowsFault(t *testing.T) {
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
			t.Errorf("%s: %v is blamed on a row", query, err)
		}
	}
}
