package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/outbox"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// A transaction writes callbacks, and ends with a commit or a rollback.
type transaction interface {
	insert(outbox.Callback) (string, error)
	end(commit bool) error
}

// A way is one of the libraries and servers.
type way struct {
	name    string
	dialect outbox.Dialect
	begin   func(t *testing.T, address string) transaction
}

var ways = []way{
	{"PostgreSQL, database/sql", outbox.Postgres, beginSQL(outbox.Postgres)},
	{"PostgreSQL, database/sql, one connection", outbox.Postgres, beginConn(outbox.Postgres, "SELECT 1")},
	{"PostgreSQL, pgx", outbox.Postgres, beginPgx(pgx.QueryExecModeCacheStatement)},
	{"PostgreSQL, pgx, exec", outbox.Postgres, beginPgx(pgx.QueryExecModeExec)},
	{"PostgreSQL, pgx, simple protocol", outbox.Postgres, beginPgx(pgx.QueryExecModeSimpleProtocol)},
	{"MariaDB, database/sql", outbox.MySQL, beginSQL(outbox.MySQL)},
	// The columns request and body are bytes, so the character set of the connection does not matter.
	{"MariaDB, database/sql, GBK", outbox.MySQL, beginConn(outbox.MySQL, "SET NAMES gbk")},
}

type sqlTransaction struct {
	t       *testing.T
	tx      *sql.Tx
	dialect outbox.Dialect
}

func (s sqlTransaction) insert(c outbox.Callback) (string, error) {
	return outbox.Insert(s.t.Context(), s.tx, s.dialect, c)
}

func (s sqlTransaction) end(commit bool) error {
	if commit {
		return s.tx.Commit()
	}
	return s.tx.Rollback()
}

func beginSQL(d outbox.Dialect) func(*testing.T, string) transaction {
	return func(t *testing.T, address string) transaction {
		tx, err := testserver.DB(t, address).BeginTx(t.Context(), nil)
		check(t, err)
		return sqlTransaction{t, tx, d}
	}
}

// A connTransaction is one that statements begin and end, on a connection.
type connTransaction struct {
	t       *testing.T
	conn    *sql.Conn
	dialect outbox.Dialect
}

func (c connTransaction) insert(cb outbox.Callback) (string, error) {
	return outbox.Insert(c.t.Context(), c.conn, c.dialect, cb)
}

func (c connTransaction) end(commit bool) error {
	query := "ROLLBACK"
	if commit {
		query = "COMMIT"
	}
	_, err := c.conn.ExecContext(c.t.Context(), query)
	return errors.Join(err, c.conn.Close())
}

func beginConn(d outbox.Dialect, first string) func(*testing.T, string) transaction {
	return func(t *testing.T, address string) transaction {
		conn, err := testserver.DB(t, address).Conn(t.Context())
		check(t, err)
		for _, query := range []string{first, "BEGIN"} {
			_, err := conn.ExecContext(t.Context(), query)
			check(t, err)
		}
		return connTransaction{t, conn, d}
	}
}

type pgxTransaction struct {
	t  *testing.T
	tx pgx.Tx
}

func (p pgxTransaction) insert(c outbox.Callback) (string, error) {
	return outbox.InsertPgx(p.t.Context(), p.tx, c)
}

func (p pgxTransaction) end(commit bool) error {
	if commit {
		return p.tx.Commit(p.t.Context())
	}
	return p.tx.Rollback(p.t.Context())
}

func beginPgx(mode pgx.QueryExecMode) func(*testing.T, string) transaction {
	return func(t *testing.T, address string) transaction {
		config, err := pgx.ParseConfig(address)
		check(t, err)
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), config)
		check(t, err)
		t.Cleanup(func() { check(t, conn.Close(context.Background())) })
		tx, err := conn.Begin(t.Context())
		check(t, err)
		return pgxTransaction{t, tx}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newTable creates a database with an outbox table. The name may be empty.
func newTable(t *testing.T, d outbox.Dialect, table string) (address string, db *sql.DB) {
	if d == outbox.Postgres {
		address = testserver.SharedPostgres(t).Database(t)
	} else {
		address = testserver.SharedMariaDB(t).Database(t)
	}
	db = testserver.DB(t, address)
	ddl, err := source.DDL(source.Dialect(d), source.DDLOptions{Table: table})
	check(t, err)
	_, err = db.ExecContext(t.Context(), ddl)
	check(t, err)
	return address, db
}

// A row is what a table has of a callback.
type row struct {
	id, kind, request string
	body              []byte
}

func rows(t *testing.T, db *sql.DB) (all []row) {
	t.Helper()
	found, err := db.QueryContext(t.Context(),
		"SELECT id, kind, request, body FROM dispatcher_outbox ORDER BY seq")
	check(t, err)
	defer found.Close()
	for found.Next() {
		var r row
		check(t, found.Scan(&r.id, &r.kind, &r.request, &r.body))
		all = append(all, r)
	}
	check(t, found.Err())
	return all
}

// everyByte has all bytes, and those after which a driver may look for an escape.
func everyByte() []byte {
	var b []byte
	for i := range 256 {
		b = append(b, byte(i))
	}
	return append(b, `\x41 \101 \\ ' " $1 ? ;`+"\x00\xbf'\xf0\x9f"...)
}

// callbacks are callbacks with the longest and the strangest values.
func callbacks() []outbox.Callback {
	return []outbox.Callback{
		{ID: "order-1001 paid", Endpoint: "m-1001", Topic: "payment.succeeded", Ref: "茶 😀",
			Labels: map[string]string{"shop": `茶 "<&>" ' \ 😀`}, Body: everyByte(), ContentType: "a/b"},
		{ID: strings.Repeat("a", outbox.MaxID), Endpoint: "m-1001", Body: []byte{}, ContentType: "a/b"},
		{ID: "get", URL: "https://shop.example/a?b=1&c=2", More: map[string]any{"method": "GET"}},
		{ID: "event", Event: true, Topic: "a",
			Body: append(append([]byte{'"'}, bytes.Repeat([]byte("a"), outbox.MaxBody-2)...), '"')},
		{ID: "long", Endpoint: "m-1001", Body: []byte("1"),
			More: map[string]any{"x": strings.Repeat("茶", outbox.MaxRequest/3-32)}},
	}
}

func TestRowsHaveTheBytesOfTheirCallbacks(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			address, db := newTable(t, w.dialect, "")
			for _, commit := range []bool{false, true} {
				tx := w.begin(t, address)
				for _, c := range callbacks() {
					id, err := tx.insert(c)
					if err != nil || id != c.ID {
						t.Fatalf("%s: %q, %v", c.ID, id, err)
					}
				}
				if got := rows(t, db); len(got) > 0 {
					t.Errorf("%d rows before the end of the transaction", len(got))
				}
				check(t, tx.end(commit))
				if got := rows(t, db); !commit && len(got) > 0 {
					t.Errorf("%d rows after the rollback", len(got))
				}
			}
			compare(t, rows(t, db), w.dialect)
		})
	}
}

// compare checks that rows are those of callbacks.
func compare(t *testing.T, got []row, d outbox.Dialect) {
	t.Helper()
	want := callbacks()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i, c := range want {
		_, args, id, err := outbox.Statement(d, "", c)
		check(t, err)
		request, isText := args[2].(string)
		if !isText {
			request = string(args[2].([]byte))
		}
		r := got[i]
		if r.id != id || r.kind != args[1] || r.request != request || !bytes.Equal(r.body, c.Body) ||
			(r.body == nil) != (c.Body == nil) {
			t.Errorf("row %d: %q %q, a request of %d bytes and a body of %d bytes (nil: %t) differ from %q",
				i, r.id, r.kind, len(r.request), len(r.body), r.body == nil, id)
		}
	}
}

// TestIDsAreAnyText: an id of 128 characters may have four bytes each.
func TestIDsAreAnyText(t *testing.T) {
	for _, w := range ways {
		if strings.Contains(w.name, "GBK") {
			continue // the id is text, so this connection would change it
		}
		t.Run(w.name, func(t *testing.T) {
			address, db := newTable(t, w.dialect, "")
			tx := w.begin(t, address)
			want := strings.Repeat("😀", outbox.MaxID)
			_, err := tx.insert(outbox.Callback{ID: want, Endpoint: "m-1001", Body: []byte("1")})
			check(t, err)
			check(t, tx.end(true))
			if got := rows(t, db); len(got) != 1 || got[0].id != want {
				t.Errorf("the rows are %q", got)
			}
		})
	}
}

// TestErrorsOfTheServerAreWrapped: an application finds the error of its driver.
func TestErrorsOfTheServerAreWrapped(t *testing.T) {
	address, db := newTable(t, outbox.Postgres, "")
	_, err := db.ExecContext(t.Context(), "DROP TABLE dispatcher_outbox")
	check(t, err)
	for _, w := range ways {
		if w.dialect != outbox.Postgres {
			continue
		}
		tx := w.begin(t, address)
		_, err := tx.insert(outbox.Callback{ID: "a", Endpoint: "m-1001", Body: []byte("1")})
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "42P01" || errors.Is(err, outbox.ErrInvalid) {
			t.Errorf("%s: %v", w.name, err)
		}
		check(t, tx.end(false))
	}
}

// TestTablesHaveTheNamesOfTheRelay: Statement and "relay ddl" agree on the name of a table.
func TestTablesHaveTheNamesOfTheRelay(t *testing.T) {
	callback := outbox.Callback{Endpoint: "m-1001", Body: []byte("1")}
	for _, table := range []string{"Pay_Outbox", strings.Repeat("a", 54)} {
		for _, d := range []outbox.Dialect{outbox.Postgres, outbox.MySQL} {
			_, db := newTable(t, d, table)
			query, args, _, err := outbox.Statement(d, table, callback)
			check(t, err)
			_, err = db.ExecContext(t.Context(), query, args...)
			check(t, err)
		}
	}
	for _, table := range []string{strings.Repeat("a", 55), "a.b.c", "a-b", "1a", "a.", ".", "a b"} {
		_, _, _, err := outbox.Statement(outbox.MySQL, table, callback)
		_, err2 := source.DDL(source.MySQL, source.DDLOptions{Table: table})
		if err == nil || err2 == nil {
			t.Errorf("%q: %v, %v", table, err, err2)
		}
	}
}

// TestLimitsAreThoseOfTheRelay: a row that this module writes is read.
func TestLimitsAreThoseOfTheRelay(t *testing.T) {
	if outbox.MaxRequest != source.MaxRequest || outbox.MaxBody != source.MaxBody ||
		outbox.Table != source.DefaultTable {
		t.Errorf("request %d, body %d, table %s; the relay has %d, %d, %s", outbox.MaxRequest, outbox.MaxBody,
			outbox.Table, source.MaxRequest, source.MaxBody, source.DefaultTable)
	}
}
