package testserver

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// A PgBouncer pools the connections to a Postgres in transaction mode, so two transactions of one client may
// run in different sessions. It can be ended and started again on the same port.
type PgBouncer struct {
	daemon
	behind *Postgres
}

// NewPgBouncer starts a PgBouncer in front of a server. It ends with the test, and must be started after the
// server. It serves all databases with their names there, each with at most sessions sessions, to the users
// dispatcher and relay.
func NewPgBouncer(tb testing.TB, server *Postgres, sessions int) *PgBouncer {
	tb.Helper()
	b := &PgBouncer{behind: server}
	b.daemon = newDaemon(tb, "pgbouncer", daemonDir(tb, "pgbouncer"), b.answers)
	b.url = &url.URL{
		Scheme: "postgres", User: url.User("dispatcher"), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	var program string
	for _, dir := range []string{"", "/usr/sbin/"} { // a user's PATH may lack the second one
		if path, err := exec.LookPath(dir + "pgbouncer"); err == nil {
			program = path
		}
	}
	if program == "" {
		tb.Fatal("this test needs pgbouncer in PATH (Debian and Ubuntu: apt-get install pgbouncer); " +
			"-short skips the test")
	}
	b.launch(tb, syscall.SIGTERM, func() *exec.Cmd {
		if err := b.configure(sessions); err != nil {
			tb.Errorf("configure pgbouncer: %v", err) // the server does not start
		}
		return b.command(program, b.file("pgbouncer.ini"))
	})
	return b
}

func (b *PgBouncer) file(name string) string { return filepath.Join(b.dir, name) }

func (b *PgBouncer) configure(sessions int) error {
	users := "\"dispatcher\" \"\"\n\"relay\" \"\"\n"
	if err := os.WriteFile(b.file("users"), []byte(users), 0o644); err != nil {
		return err
	}
	return os.WriteFile(b.file("pgbouncer.ini"), fmt.Appendf(nil, `[databases]
* = host=127.0.0.1 port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = trust
auth_file = %s
pool_mode = transaction
max_client_conn = 200
default_pool_size = %d
`, b.behind.url.Port(), b.url.Port(), b.file("users"), sessions), 0o644)
}

// URL returns the URL of a database by its URL at the server.
func (b *PgBouncer) URL(database string) string {
	u, err := url.Parse(database)
	if err != nil {
		return "" // the URL of a server is one
	}
	u.Host = b.url.Host
	return u.String()
}

// Pause stops the process. Its connections stay open, but it does not answer.
func (b *PgBouncer) Pause(tb testing.TB) { tb.Helper(); b.pause(tb) }

// Continue ends Pause.
func (b *PgBouncer) Continue(tb testing.TB) { tb.Helper(); b.resume(tb) }

// Stop ends the process and its connections at once.
func (b *PgBouncer) Stop() error { return b.end(syscall.SIGTERM) }

// answers returns nil if a query through this process succeeds.
func (b *PgBouncer) answers(ctx context.Context) error {
	db, err := openDatabase(b.url.String() + "&default_query_exec_mode=exec")
	if err != nil {
		return err
	}
	defer db.Close()
	var data string
	if err := db.QueryRowContext(ctx, "SHOW data_directory").Scan(&data); err != nil {
		return err
	}
	if data != b.behind.data() {
		return fmt.Errorf("another server answers, with the data directory %s", data)
	}
	return nil
}
