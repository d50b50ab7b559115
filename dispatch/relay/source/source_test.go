package source_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// A server is a way to a database.
type server struct {
	name    string
	dialect source.Dialect
	// database creates an empty database. It returns its URL for the source, and for the application.
	database func(t *testing.T) (url, app string)
}

// eachServer runs a test on every kind of server, in parallel.
func eachServer(t *testing.T, test func(t *testing.T, s server)) {
	if testing.Short() {
		t.Skip("needs PostgreSQL and MariaDB")
	}
	servers := []server{
		{"postgres", source.Postgres, func(t *testing.T) (string, string) {
			url := testserver.SharedPostgres(t).Database(t)
			return url, url
		}},
		{"pgbouncer", source.Postgres, func(t *testing.T) (string, string) {
			server := testserver.SharedPostgres(t)
			url := server.Database(t)
			return testserver.NewPgBouncer(t, server, 2).URL(url), url
		}},
		{"mariadb", source.MySQL, func(t *testing.T) (string, string) {
			url := testserver.SharedMariaDB(t).Database(t)
			return url, url
		}},
		{"mysql", source.MySQL, func(t *testing.T) (string, string) {
			url, _ := testserver.MySQLDatabase(t)
			return url, url
		}},
	}
	for _, s := range servers {
		if _, set := testserver.MySQLDatabase(t); s.name == "mysql" && !set {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			test(t, s)
		})
	}
}

// A world is a database with the tables of a source.
type world struct {
	server
	t   *testing.T
	url string
	app *sql.DB
}

func newWorld(t *testing.T, s server, o source.DDLOptions) *world {
	t.Helper()
	w := &world{server: s, t: t}
	var app string
	w.url, app = s.database(t)
	w.app = testserver.DB(t, app)
	ddl, err := source.DDL(s.dialect, o)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // once more changes nothing
		w.exec(ddl)
	}
	return w
}

// exec runs statements of the application.
func (w *world) exec(statements string, args ...any) {
	w.t.Helper()
	if _, err := w.app.ExecContext(w.t.Context(), statements, args...); err != nil {
		w.t.Fatalf("%.200s: %v", statements, err)
	}
}

// insert writes a row as an application does.
func (w *world) insert(id, request string, body []byte) {
	w.t.Helper()
	w.exec("INSERT INTO dispatcher_outbox (id, request, body) VALUES ("+w.params(3)+")", id, request, body)
}

func (w *world) params(n int) string {
	var p []string
	for i := range n {
		if w.dialect == source.MySQL {
			p = append(p, "?")
		} else {
			p = append(p, fmt.Sprintf("$%d", i+1))
		}
	}
	return strings.Join(p, ", ")
}

// connect opens a connection of the source.
func (w *world) connect(o source.Options) *source.Conn {
	w.t.Helper()
	o.DSN = w.url
	s, err := source.Open(o)
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
		rows, more, err := c.Read(w.t.Context(), after, 500)
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

func keysOf(rows []source.Row) (keys []source.Key) {
	for _, r := range rows {
		keys = append(keys, r.Key)
	}
	return keys
}
