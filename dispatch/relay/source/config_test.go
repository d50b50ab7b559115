package source_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

func TestOrigin(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://relay:pw@db1/pay?sslmode=disable":  "db1:5432/pay/app.outbox",
		"postgresql://relay@db1:6000,db2/pay":          "db1:6000,db2:5432/pay/app.outbox",
		"mysql://relay:p%40w@db1/pay_01?tls=true":      "db1:3306/pay_01/app.outbox",
		"mariadb://relay@[::1]:3307/pay?tls=preferred": "[::1]:3307/pay/app.outbox",
	} {
		s, err := source.Open(source.Options{DSN: dsn, Table: "app.outbox"})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if s.Origin() != want {
			t.Errorf("%s has the origin %s, want %s", dsn, s.Origin(), want)
		}
	}
}

// TestOpenRefuses checks that errors name the cause and show no part of the DSN.
func TestOpenRefuses(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const at = "must be percent-encoded"
	for dsn, want := range map[string]string{
		"":                                                                       "not a URL",
		"host=db1 password=hunter2":                                              "not a URL",
		"sqlite://hunter2":                                                       "scheme",
		"mysql://relay:hunter2@db1":                                              "database name",
		"mysql://relay:hunter2@/pay":                                             "no host",
		"mysql://:hunter2@db1/pay":                                               "no user",
		"mysql://relay:hunter2@db1:x/pay":                                        at,
		"mysql://relay:a/hunter2@db1/pay":                                        at,
		"mysql://relay:a@b/hunter2@db1/pay":                                      at,
		"mysql://relay:a%zzhunter2@db1/pay":                                      at,
		"mysql://relay:hunter2@db1/pay?charset":                                  "other than tls",
		"mysql://relay:hunter2@db1/pay?allowAllFiles=true":                       "other than tls",
		"mysql://relay:hunter2@db1/pay?tls=maybe":                                "tls in the DSN",
		"mysql://relay:hunter2@db1/pay?tls_ca=" + empty:                          "needs tls=true",
		"mysql://relay:hunter2@db1/pay?tls=true&tls_ca=" + empty:                 "no certificates",
		"mysql://relay:hunter2@db1/pay?tls=true&tls_ca=/none":                    "/none",
		"postgres://relay:hunter2@db1":                                           "database name",
		"postgres://relay:hunter2@db1:x/pay":                                     at,
		"postgres://relay:a/hunter2@db1/pay":                                     at,
		"postgres://relay:a@b/hunter2@db1/pay":                                   at,
		"postgres://relay:hunter2@db1/pay?sslmode=maybe":                         "sslmode",
		"postgres://relay:hunter2@db1/pay?sslmode=verify-full&sslrootcert=/none": "/none",
	} {
		_, err := source.Open(source.Options{DSN: dsn})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one with %q", dsn, err, want)
		}
		mustNotHave(t, err, "hunter2")
	}
}

func TestNames(t *testing.T) {
	for _, table := range []string{
		"a b", "a.b.c", `a"b`, "a`b", "a;b", ".a", "a.", "1a", "表", strings.Repeat("a", 55),
	} {
		if _, err := source.DDL(source.Postgres, source.DDLOptions{Table: table}); err == nil {
			t.Errorf("table %q is accepted", table)
		}
		if _, err := source.Open(source.Options{DSN: "mysql://a@b/c", Table: table}); err == nil {
			t.Errorf("table %q is accepted by Open", table)
		}
	}
	for _, user := range []string{"a b", "a'b", `a"b`, "a@b'c", "a;b"} {
		if _, err := source.DDL(source.MySQL, source.DDLOptions{Grant: user}); err == nil {
			t.Errorf("user %q is accepted", user)
		}
	}
	if _, err := source.DDL("oracle", source.DDLOptions{}); err == nil {
		t.Error("the dialect oracle is accepted")
	}
}

// TestSchema checks a table in a schema, with the longest name.
func TestSchema(t *testing.T) {
	eachServer(t, func(t *testing.T, s server) {
		w := newWorld(t, s)
		schema := "app"
		if w.dialect == source.MySQL {
			schema = "" // the database itself
			if err := w.app.QueryRow("SELECT DATABASE()").Scan(&schema); err != nil {
				t.Fatal(err)
			}
		} else {
			w.exec("CREATE SCHEMA app")
		}
		table := schema + "." + strings.Repeat("o", 54)
		o := source.DDLOptions{Table: table, Keep: true}
		if s.restricted {
			o.Grant = relayUser
		}
		ddl, err := source.DDL(s.dialect, o)
		if err != nil {
			t.Fatal(err)
		}
		w.exec(ddl)
		w.exec("INSERT INTO " + table + " (id, request) VALUES ('a', '{}'), ('b', '{}')")
		c := w.connect(source.Options{Table: table, Keep: true})
		rows := w.read(c, 0)
		w.changed(c.Refuse(t.Context(), refusals("x", rows[0])))(1)
		w.changed(c.Remove(t.Context(), keysOf(rows)))(1)
	})
}

// TestPassword checks that the password may come apart from the DSN, and that no error shows it.
func TestPassword(t *testing.T) {
	needsServers(t)
	m := testserver.SharedMariaDB(t)
	u, err := url.Parse(m.URL())
	if err != nil {
		t.Fatal(err)
	}
	right, _ := u.User.Password()
	closed := "127.0.0.1:" + testserver.FreePort(t)
	for _, c := range []struct{ scheme, host, password, want string }{
		{"mysql", u.Host, right, "table dispatcher_outbox does not exist"},
		{"mysql", u.Host, "hunter2", "connect: Error 1045"},
		{"mysql", closed, "hunter2", "connect: dial tcp"},
		{"postgres", closed, "hunter2", "connect: failed to connect"},
	} {
		dsn := url.URL{Scheme: c.scheme, User: url.User("dispatcher"), Host: c.host, Path: "/dispatcher"}
		s, err := source.Open(source.Options{DSN: dsn.String(), Password: c.password})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("connect to %s: %v, want one with %q", c.scheme, err, c.want)
		}
		mustNotHave(t, err, c.password)
	}
}

// TestBrokenConnections checks that a call ends with its context while the server hangs, that a lost
// connection is known as such, and that a new one works.
func TestBrokenConnections(t *testing.T) {
	needsServers(t)
	t.Parallel()
	postgres, mariadb := testserver.NewPostgres(t, "-c", "fsync=off"), testserver.NewMariaDB(t)
	bouncer := testserver.NewPgBouncer(t, postgres, 2)
	for _, s := range []struct {
		name          string
		dialect       source.Dialect
		database      func(testing.TB) string
		url           func(string) string
		pause, resume func(testing.TB)
		end           func() error
		start         func(testing.TB)
	}{
		{"mariadb", source.MySQL, mariadb.Database, func(u string) string { return u }, mariadb.Pause,
			mariadb.Continue, mariadb.Kill, mariadb.Start},
		{"pgbouncer", source.Postgres, postgres.Database, bouncer.URL, bouncer.Pause, bouncer.Continue,
			bouncer.Kill, bouncer.Start},
		{"postgres", source.Postgres, postgres.Database, func(u string) string { return u }, nil, nil,
			postgres.Stop, postgres.Start},
	} {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, server{s.name, s.dialect, func(t *testing.T) (string, string) {
				app := s.database(t)
				return s.url(app), app
			}, true})
			w.insert("a")
			broken := func(cause string, c *source.Conn) {
				t.Helper()
				for range 2 { // it stays broken
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					_, _, err := c.Read(ctx, 0, 1, false)
					cancel()
					if !errors.Is(err, source.ErrBroken) {
						t.Errorf("%s: %v, want ErrBroken", cause, err)
					}
				}
				c.Close()
				c.Close() // once more does nothing
			}
			if s.pause != nil {
				c := w.connect(source.Options{})
				s.pause(t)
				broken("paused", c)
				s.resume(t)
			}
			c := w.connect(source.Options{})
			if err := s.end(); err != nil {
				t.Fatal(err)
			}
			broken("ended", c)
			if _, err := w.open(source.Options{}).Connect(t.Context()); err == nil {
				t.Error("connected to a server that has ended")
			}
			s.start(t)
			w.remains(w.connect(source.Options{}), "a")
		})
	}
}
