package testserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
)

// A Postgres is a PostgreSQL server on 127.0.0.1. It can be ended and started again on the same port with the
// same data. Its databases sort text by language rules (ICU, en-US), as most installations do. CopyC makes
// databases that sort by bytes.
type Postgres struct {
	daemon
	bin string

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
	return startPostgres(tb, daemonDir(tb, "postgres"), nil, settings)
}

// NewPostgresIn is NewPostgres in a given directory. The server's user must be able to reach it, and becomes
// its owner. Further arguments are those of initdb.
func NewPostgresIn(tb testing.TB, dir string, initdb ...string) *Postgres {
	tb.Helper()
	return startPostgres(tb, dir, initdb, nil)
}

func startPostgres(tb testing.TB, dir string, initdb, settings []string) *Postgres {
	tb.Helper()
	p := &Postgres{templates: map[string]error{}}
	p.daemon = newDaemon(tb, "postgres", dir, p.answers)
	var err error
	p.bin, err = postgresBinaries()
	if err != nil {
		tb.Fatal(err)
	}
	initdb = append([]string{
		"--pgdata", p.data(), "--username", "dispatcher", "--auth", "trust", "--no-sync",
		"--encoding", "UTF8", "--locale", "C", "--locale-provider", "icu", "--icu-locale", "en-US",
	}, initdb...)
	if out, err := p.program("initdb", initdb...).CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	p.url = &url.URL{
		Scheme: "postgres", User: url.User("dispatcher"), Path: "/postgres", RawQuery: "sslmode=disable",
	}
	args := append([]string{
		"-D", p.data(), "-h", "127.0.0.1", "-k", dir,
		"-c", "max_connections=400", "-c", "shared_buffers=64MB",
	}, settings...)
	// SIGINT closes all sessions and shuts the server down cleanly.
	p.launch(tb, syscall.SIGINT, func() *exec.Cmd {
		return p.program("postgres", append(slices.Clone(args), "-p", p.url.Port())...)
	})
	return p
}

// program returns a command with one of PostgreSQL's programs. It runs as the server's user.
func (p *Postgres) program(name string, args ...string) *exec.Cmd {
	return p.command(filepath.Join(p.bin, name), args...)
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// Stop ends the server at once, as pg_ctl stop -m immediate does: it closes all sessions, and the next start
// recovers. Stop returns when the server has ended.
func (p *Postgres) Stop() error { return p.end(syscall.SIGQUIT) }

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

// answers returns nil if this server answers. It checks the data directory, because another server may listen
// on the port.
func (p *Postgres) answers(ctx context.Context) error {
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
