package apptest

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Outbox is a database of an application, with an outbox table.
type Outbox struct {
	// DSN is that of the relay.
	DSN     string
	DB      *sql.DB
	dialect source.Dialect
}

// NewOutbox creates a database with the tables of an outbox on a shared server, PostgreSQL or MariaDB.
func NewOutbox(t *testing.T, dialect source.Dialect) *Outbox {
	t.Helper()
	o := EmptyOutbox(t, dialect)
	ddl, err := source.DDL(dialect, source.DDLOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o.Exec(t, ddl)
	return o
}

// EmptyOutbox is NewOutbox without the tables.
func EmptyOutbox(t *testing.T, dialect source.Dialect) *Outbox {
	t.Helper()
	o := &Outbox{dialect: dialect}
	if dialect == source.MySQL {
		o.DSN = testserver.SharedMariaDB(t).Database(t)
	} else {
		o.DSN = testserver.SharedPostgres(t).Database(t)
	}
	o.DB = testserver.DB(t, o.DSN)
	return o
}

// Exec executes a statement, which must succeed.
func (o *Outbox) Exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := o.DB.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%.100s: %v", statement, err)
	}
}

// Insert commits a row as an application does.
func (o *Outbox) Insert(ctx context.Context, id, request string) error {
	statement := "INSERT INTO dispatcher_outbox (id, request) VALUES ($1, $2)"
	if o.dialect == source.MySQL {
		statement = "INSERT INTO dispatcher_outbox (id, request) VALUES (?, ?)"
	}
	_, err := o.DB.ExecContext(ctx, statement, id, request)
	return err
}

// Count returns the number of rows of a table.
func (o *Outbox) Count(t *testing.T, table string) (n int) {
	t.Helper()
	if err := o.DB.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Setting returns the setting relay with one source of each name. All but the first are in a database that
// does not exist.
func (o *Outbox) Setting(t *testing.T, names ...string) string {
	t.Helper()
	var sources []map[string]any
	for i, name := range names {
		s := map[string]any{"name": name, "dsn": o.DSN, "poll": "20ms"}
		if i > 0 {
			s["dsn"] = fmt.Sprintf("postgres://127.0.0.1:1/absent-%d", i)
		}
		sources = append(sources, s)
	}
	text, err := json.Marshal(sources)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
