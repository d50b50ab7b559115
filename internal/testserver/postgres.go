package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
)

// postgresStart bounds the wait for a server to answer or to end.
const postgresStart = 30 * time.Second

// postgresPorts is the number of ports that a first start tries. Another test binary may take a free port
// first.
const postgresPorts = 5

// A Postgres is a PostgreSQL server on 127.0.0.1. It can be ended and started again on the same port with the
// same data. Its databases sort text by language rules (ICU, en-US), as most installations do. CopyC makes
// databases that sort by bytes.
type Postgres struct {
	url *url.URL

	bin, dir   string
	credential *syscall.Credential
	args       []string
	server     *child

	mu        sync.Mutex
	templates map[string]error // the templates of Copy, each with the error of its creation
}

// SharedPostgres returns one server for the whole test binary. Each test must create its own database. A test
// that disturbs the server needs NewPostgres. The server does not sync to disk. The package's TestMain must
// call [Main].
func SharedPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	return sharedServers(tb).postgres.get(tb, func(tb testing.TB) *Postgres {
		return NewPostgres(tb, "-c", "fsync=off")
	})
}

// NewPostgres starts a PostgreSQL server that ends with the test. It syncs to disk as in production, unless
// the settings (arguments of postgres) change that. The programs initdb and postgres must be on the PATH or
// below /usr/lib/postgresql. Otherwise the test fails.
func NewPostgres(tb testing.TB, settings ...string) *Postgres {
	tb.Helper()
	// The user of the server cannot read the parents of tb.TempDir.
	dir, err := os.MkdirTemp("", "postgres-*")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the server's directory: %v", err)
		}
	})
	return startPostgres(tb, dir, nil, settings)
}

// NewPostgresIn is NewPostgres in a given directory. The server's user must be able to reach it, and becomes
// its owner. Further arguments are those of initdb.
func NewPostgresIn(tb testing.TB, dir string, initdb ...string) *Postgres {
	tb.Helper()
	return startPostgres(tb, dir, initdb, nil)
}

func startPostgres(tb testing.TB, dir string, initdb, settings []string) *Postgres {
	tb.Helper()
	p := &Postgres{dir: dir, templates: map[string]error{}}
	var err error
	p.bin, err = postgresBinaries()
	if err != nil {
		tb.Fatal(err)
	}
	p.credential, err = postgresUser()
	if err != nil {
		tb.Fatal(err)
	}
	if p.credential != nil {
		if err := os.Chown(dir, int(p.credential.Uid), int(p.credential.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	initdb = append([]string{
		"--pgdata", p.data(), "--username", "dispatcher", "--auth", "trust", "--no-sync",
		"--encoding", "UTF8", "--locale", "C", "--locale-provider", "icu", "--icu-locale", "en-US",
	}, initdb...)
	if out, err := p.command("initdb", initdb...).CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	p.url = &url.URL{
		Scheme: "postgres", User: url.User("dispatcher"), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	p.args = append([]string{
		"-D", p.data(), "-h", "127.0.0.1", "-k", dir,
		"-c", "max_connections=400", "-c", "shared_buffers=64MB",
	}, settings...)
	tb.Cleanup(func() { p.shutDown(tb) })
	for try := 1; ; try++ {
		p.url.Host = net.JoinHostPort("127.0.0.1", FreePort(tb))
		err := p.try()
		if err == nil {
			return p
		}
		if !p.portTaken() || try == postgresPorts {
			tb.Fatalf("postgres does not answer: %v\n%s", err, p.Log())
		}
	}
}

// command returns a command with one of PostgreSQL's programs. It runs as the server's user.
func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	c := exec.Command(filepath.Join(p.bin, name), args...)
	c.Dir = p.dir
	c.SysProcAttr = &syscall.SysProcAttr{Credential: p.credential}
	return c
}

// Start starts a server that has ended, and returns when it answers. A start fails while sessions of a killed
// server are still ending, so it is repeated.
func (p *Postgres) Start(tb testing.TB) {
	tb.Helper()
	if err := poll(postgresStart, func(context.Context) error {
		err := p.try()
		if err != nil && !p.HasEnded() {
			return ended{err}
		}
		return err
	}); err != nil {
		tb.Fatalf("postgres does not answer: %v\n%s", err, p.Log())
	}
}

// try starts the server once. It returns when the server answers or has ended.
func (p *Postgres) try() error {
	if err := p.begin(); err != nil {
		return err
	}
	return p.wait()
}

// portTaken reports whether the server has ended because another program has its port.
func (p *Postgres) portTaken() bool {
	return p.HasEnded() && strings.Contains(p.Log(), "Address already in use")
}

// begin starts the server without waiting for it. It appends to the log of the last run.
func (p *Postgres) begin() error {
	log, err := os.OpenFile(p.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	p.server = &child{cmd: p.command("postgres", append(slices.Clone(p.args), "-p", p.url.Port())...)}
	p.server.cmd.Stdout, p.server.cmd.Stderr = log, log
	return errors.Join(p.server.start(), log.Close())
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

func (p *Postgres) logFile() string { return p.dir + ".log" }

// Stop ends the server at once, as pg_ctl stop -m immediate does: it closes all sessions, and the next start
// recovers. Stop returns when the server has ended.
func (p *Postgres) Stop() error { return p.end(syscall.SIGQUIT) }

// Kill sends SIGKILL to the server's main process. Its sessions end when they notice. Kill returns when the
// main process has ended.
func (p *Postgres) Kill() error { return p.end(syscall.SIGKILL) }

func (p *Postgres) end(with syscall.Signal) error {
	if err := p.server.cmd.Process.Signal(with); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end postgres: %w", err)
	}
	select {
	case <-p.server.ended:
		return nil
	case <-time.After(postgresStart):
		return fmt.Errorf("postgres still runs %s after %s", postgresStart, with)
	}
}

// HasEnded reports whether the server has ended for any cause.
func (p *Postgres) HasEnded() bool { return p.server.hasEnded() }

// KillBackend sends SIGKILL to one session of the database. The server then ends all sessions and recovers.
func (p *Postgres) KillBackend(ctx context.Context, database string) error {
	var pid int
	err := p.read(ctx, &pid, `SELECT pid FROM pg_stat_activity
		WHERE datname = $1 AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		ORDER BY state_change DESC LIMIT 1`, database)
	if err != nil {
		return fmt.Errorf("find a session of %s: %w", database, err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill session %d: %w", pid, err)
	}
	return nil
}

// Log returns the end of the server's log.
func (p *Postgres) Log() string {
	text, err := os.ReadFile(p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// shutDown ends the server with the test.
func (p *Postgres) shutDown(tb testing.TB) {
	if p.server == nil || p.server.cmd.Process == nil {
		return
	}
	// SIGINT closes all sessions and shuts the server down cleanly.
	if err := p.end(syscall.SIGINT); err != nil {
		if err := p.Kill(); err != nil {
			tb.Errorf("kill postgres: %v", err)
		}
	}
	if err := os.Remove(p.logFile()); err != nil {
		tb.Errorf("remove the server's log: %v", err)
	}
}

// URL returns the URL of the server's first database.
func (p *Postgres) URL() string { return p.url.String() }

// Exec runs a statement in the first database.
func (p *Postgres) Exec(ctx context.Context, statement string) error {
	db, err := sql.Open("pgx", p.URL())
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// read reads one value with a query in the first database.
func (p *Postgres) read(ctx context.Context, value any, query string, args ...any) error {
	db, err := sql.Open("pgx", p.URL())
	if err != nil {
		return err
	}
	defer db.Close()
	return db.QueryRowContext(ctx, query, args...).Scan(value)
}

// databases counts the databases of all servers. It makes URLs unique even if a server gets the port of an
// earlier one, because tests distinguish databases by URL.
var databases atomic.Int64

// Database creates an empty database and returns its URL, which is unique in this process.
func (p *Postgres) Database(tb testing.TB) string {
	tb.Helper()
	return p.create(tb, "")
}

// sortedByBytes are the options of CREATE DATABASE for a database that sorts text by bytes.
const sortedByBytes = " TEMPLATE template0 LOCALE_PROVIDER libc LOCALE 'C'"

// Copy is Database with the content of a template. The first call with a template's name creates it: fill
// gets the URL of an empty database and must close its connections. So tests that need a migrated database
// migrate only once.
func (p *Postgres) Copy(tb testing.TB, template string, fill func(url string) error) string {
	tb.Helper()
	return p.copyOf(tb, template, "", fill)
}

// CopyC is Copy with databases that sort text by bytes. Its templates are separate from those of Copy.
func (p *Postgres) CopyC(tb testing.TB, template string, fill func(url string) error) string {
	tb.Helper()
	return p.copyOf(tb, template+"_c", sortedByBytes, fill)
}

func (p *Postgres) copyOf(tb testing.TB, template, with string, fill func(url string) error) string {
	tb.Helper()
	name := "template_" + template
	p.mu.Lock()
	defer p.mu.Unlock() // PostgreSQL copies a database only while it has no connection
	err, made := p.templates[name]
	if !made {
		err = p.Exec(tb.Context(), "CREATE DATABASE "+name+with)
		if err == nil {
			err = fill(p.at(name))
		}
		p.templates[name] = err
	}
	if err != nil {
		tb.Fatalf("make the template %s: %v", template, err)
	}
	return p.create(tb, " TEMPLATE "+name)
}

func (p *Postgres) create(tb testing.TB, with string) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	if err := p.Exec(tb.Context(), "CREATE DATABASE "+name+with); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	return p.at(name)
}

// at returns the URL of a database.
func (p *Postgres) at(database string) string {
	u := *p.url
	u.Path = "/" + database
	return u.String()
}

// wait waits until the server answers or has ended.
func (p *Postgres) wait() error {
	return poll(postgresStart, func(ctx context.Context) error {
		if p.HasEnded() {
			return ended{fmt.Errorf("server has ended: %v", p.server.ending)}
		}
		return p.answers(ctx)
	})
}

// answers returns nil if this server answers. It checks the data directory, because another server may listen
// on the port.
func (p *Postgres) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var data string
	if err := p.read(ctx, &data, "SHOW data_directory"); err != nil {
		return err
	}
	if data != p.data() {
		return fmt.Errorf("another server answers, with the data directory %s", data)
	}
	return nil
}

// postgresBinaries returns the directory with the server's programs.
func postgresBinaries() (string, error) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	packaged, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, dir := range append(dirs, packaged...) {
		// Resolve links: initdb needs the share directory next to the real directory.
		initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(initdb), "postgres")); err == nil {
			return filepath.Dir(initdb), nil
		}
	}
	return "", errors.New(
		"find PostgreSQL: install initdb and postgres on the PATH or below /usr/lib/postgresql")
}

// postgresUser returns the user of the server, or nil for the user of the test. PostgreSQL refuses to run as
// root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	const withoutRights = "65534" // the id of the user that owns no files
	for _, find := range []func() (*user.User, error){
		func() (*user.User, error) { return user.Lookup("postgres") },
		func() (*user.User, error) { return user.LookupId(withoutRights) },
	} {
		u, err := find()
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root; create the user postgres")
}
