package source_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// relayUser is the user of the source in the tests. It has the rights of the DDL and no others.
const relayUser, relayPassword = "relay", "relay-secret"

// A server is a way to a database.
type server struct {
	name    string
	dialect source.Dialect
	// database creates an empty database. It returns its URL for the source, and for the application.
	database func(t *testing.T) (relay, app string)
	// restricted is false if the source has the rights of the application.
	restricted bool
}

var servers = []server{
	{"postgres", source.Postgres, func(t *testing.T) (string, string) {
		app := testserver.SharedPostgres(t).Database(t)
		return app, app
	}, true},
	{"pgbouncer", source.Postgres, func(t *testing.T) (string, string) {
		server := testserver.SharedPostgres(t)
		app := server.Database(t)
		return testserver.NewPgBouncer(t, server, 2).URL(app), app
	}, true},
	{"mariadb", source.MySQL, func(t *testing.T) (string, string) {
		app := testserver.SharedMariaDB(t).Database(t)
		return app, app
	}, true},
	{"mysql", source.MySQL, func(t *testing.T) (string, string) {
		app := testserver.MySQLDatabase(t)
		return app, app
	}, false},
}

// needsServers skips a test in short runs.
func needsServers(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL, PgBouncer and MariaDB")
	}
}

// eachServer runs a test on every kind of server, in parallel. That of TEST_MYSQL_URL is one if it is set.
func eachServer(t *testing.T, test func(t *testing.T, s server)) {
	needsServers(t)
	t.Parallel()
	for _, s := range servers {
		if s.name == "mysql" && os.Getenv("TEST_MYSQL_URL") == "" {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// directly runs a test on PostgreSQL and MariaDB, in parallel.
func directly(t *testing.T, test func(t *testing.T, s server)) {
	needsServers(t)
	t.Parallel()
	for _, i := range []int{0, 2} {
		t.Run(servers[i].name, func(t *testing.T) {
			t.Parallel()
			test(t, servers[i])
		})
	}
}

// A world is a database with the tables of a source.
type world struct {
	server
	t   *testing.T
	url string // of the source
	app *sql.DB
}

// newWorld creates the tables, and those of keep.
func newWorld(t *testing.T, s server) *world {
	t.Helper()
	w := &world{server: s, t: t}
	relay, app := s.database(t)
	w.url = relay
	w.app = testserver.DB(t, app)
	o := source.DDLOptions{Keep: true}
	if s.restricted {
		w.url = withUser(t, relay)
		w.createUser()
		o.Grant = relayUser
	}
	ddl, err := source.DDL(s.dialect, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // once more changes nothing
		w.exec(ddl)
	}
	return w
}

func withUser(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(relayUser, relayPassword)
	return u.String()
}

// createUser creates the user of all sources unless it exists. Another test may do so at the same time.
func (w *world) createUser() {
	w.t.Helper()
	w.exec(w.sql(`DO $$ BEGIN CREATE ROLE relay LOGIN;
		EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`,
		"CREATE USER IF NOT EXISTS relay@'%' IDENTIFIED BY '"+relayPassword+"'"))
}

// sql returns the text of the dialect.
func (w *world) sql(postgres, mysql string) string {
	if w.dialect == source.MySQL {
		return mysql
	}
	return postgres
}

// exec runs statements of the application.
func (w *world) exec(statements string, args ...any) {
	w.t.Helper()
	if _, err := w.app.ExecContext(w.t.Context(), statements, args...); err != nil {
		w.t.Fatalf("%.200s: %v", statements, err)
	}
}

// begin opens a transaction of the application. It ends with the test, or before.
func (w *world) begin() *sql.Tx {
	w.t.Helper()
	tx, err := w.app.Begin()
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
			w.t.Error(err)
		}
	})
	return tx
}

// in runs a statement in a transaction.
func (w *world) in(tx *sql.Tx, statement string, args ...any) {
	w.t.Helper()
	if _, err := tx.ExecContext(w.t.Context(), statement, args...); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

// insertion writes a row as applications do. Its arguments are id, request and body.
func (w *world) insertion() string {
	return "INSERT INTO dispatcher_outbox (id, request, body) VALUES (" + w.sql("$1, $2, $3", "?, ?, ?") + ")"
}

// insert writes rows with short contents.
func (w *world) insert(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		w.exec(w.insertion(), id, `{"ref":"`+id+`"}`, []byte("body of "+id))
	}
}

// fill writes n rows with contents of some bytes in one statement. Their ids are 1 to n, after the prefix.
func (w *world) fill(prefix string, n, request, body int) {
	w.t.Helper()
	w.exec(fmt.Sprintf("INSERT INTO dispatcher_outbox (id, request, body) SELECT concat('%s', n), "+
		"repeat('r', %d), %s FROM %s", prefix, request,
		w.sql(fmt.Sprintf("convert_to(repeat('b', %d), 'UTF8')", body), fmt.Sprintf("repeat('b', %d)", body)),
		w.sql(fmt.Sprintf("generate_series(1, %d) n", n), numbers(n))))
}

// numbers is a table of the numbers from 1 to n in MySQL, at most 10,000.
func numbers(n int) string {
	const digits = "(SELECT 0 d UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 " +
		"UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9)"
	return fmt.Sprintf("(SELECT 1 + a.d + 10 * b.d + 100 * c.d + 1000 * e.d AS n FROM %[1]s a, %[1]s b, "+
		"%[1]s c, %[1]s e ORDER BY n LIMIT %[2]d) numbers", digits, n)
}

// open returns the source.
func (w *world) open(o source.Options) *source.Source {
	w.t.Helper()
	o.DSN = w.url
	s, err := source.Open(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// connect opens a connection of the source.
func (w *world) connect(o source.Options) *source.Conn {
	w.t.Helper()
	return w.connectTo(w.open(o), nil)
}

// connectTo opens a connection of an opened source.
func (w *world) connectTo(s *source.Source, err error) *source.Conn {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := s.Connect(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(c.Close)
	return c
}

// read reads all rows after a position.
func (w *world) read(c *source.Conn, after int64) []source.Row {
	w.t.Helper()
	var all []source.Row
	for {
		rows, more, err := c.Read(w.t.Context(), after, 500, false)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, rows...)
		if !more {
			return all
		}
		after = rows[len(rows)-1].Seq
	}
}

// remains checks the ids of the rows in the outbox.
func (w *world) remains(c *source.Conn, want ...string) {
	w.t.Helper()
	if got := idsOf(w.read(c, 0)); !slices.Equal(got, want) {
		w.t.Errorf("the outbox has the rows %q, want %q", got, want)
	}
}

// changed checks the results of a call that changes rows.
func (w *world) changed(n int, err error) func(want int) {
	return func(want int) {
		w.t.Helper()
		if err != nil || n != want {
			w.t.Errorf("changed %d rows, %v; want %d", n, err, want)
		}
	}
}

// count reads a number in the application's database.
func (w *world) count(query string) (n int) {
	w.t.Helper()
	if err := w.app.QueryRowContext(w.t.Context(), query).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func keysOf(rows []source.Row) (keys []source.Key) {
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}

func idsOf(rows []source.Row) (ids []string) {
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids
}

// refusals refuses rows with a code.
func refusals(code string, rows ...source.Row) (list []source.Refusal) {
	for _, r := range rows {
		list = append(list, source.Refusal{Key: r.Key, Code: code, Problem: "problem of " + code})
	}
	return list
}

// mustNotHave checks that an error has no part of a password.
func mustNotHave(t *testing.T, err error, password string) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), password) {
		t.Errorf("the password is in the error: %v", err)
	}
}
