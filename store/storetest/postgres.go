package storetest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
)

// postgresStart is how long a server may take until it answers.
const postgresStart = 30 * time.Second

// A Postgres is a real server of its own, on 127.0.0.1, with fsync on.
type Postgres struct {
	url       *url.URL
	databases atomic.Int64
}

// StartPostgres starts a PostgreSQL server that ends with the test, and returns the URL of its first database. The
// program initdb must be on the PATH or below /usr/lib/postgresql; without it the test fails.
func StartPostgres(tb testing.TB) string {
	tb.Helper()
	return NewPostgres(tb).URL()
}

// NewPostgres is StartPostgres for tests that need more than one database, or want to disturb the server.
func NewPostgres(tb testing.TB) *Postgres {
	tb.Helper()
	bin, err := postgresBinaries()
	if err != nil {
		tb.Fatal(err)
	}
	credential, err := postgresUser()
	if err != nil {
		tb.Fatal(err)
	}
	// Not tb.TempDir: its parents are closed to the user that the server runs as.
	dir, err := os.MkdirTemp("", "postgres-*")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Errorf("remove the server's directory: %v", err)
		}
	})
	if credential != nil {
		if err := os.Chown(dir, int(credential.Uid), int(credential.Gid)); err != nil {
			tb.Fatal(err)
		}
	}
	port, err := freePort()
	if err != nil {
		tb.Fatal(err)
	}
	command := func(name string, args ...string) *exec.Cmd {
		c := exec.Command(filepath.Join(bin, name), args...)
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Pdeathsig: syscall.SIGKILL}
		return c
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "--pgdata", data, "--username", "dispatcher", "--auth", "trust", "--encoding", "UTF8",
		"--locale", "C", "--no-sync").CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, out)
	}
	p := &Postgres{url: &url.URL{
		Scheme: "postgres", User: url.User("dispatcher"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		Path: "/postgres", RawQuery: "sslmode=disable",
	}}
	p.run(tb, filepath.Join(dir, "log"), command("postgres", "-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port), "-k", dir,
		"-c", "max_connections=400", "-c", "shared_buffers=64MB"))
	return p
}

// run starts the server, ends it with the test, and returns when it answers.
func (p *Postgres) run(tb testing.TB, logPath string, server *exec.Cmd) {
	tb.Helper()
	log, err := os.Create(logPath)
	if err != nil {
		tb.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	err = server.Start()
	if err = errors.Join(err, log.Close()); err != nil {
		tb.Fatalf("start postgres: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	tb.Cleanup(func() {
		// SIGINT: sessions are cut off, the server ends in order.
		if err := server.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			tb.Errorf("stop postgres: %v", err)
		}
		select {
		case <-ended:
		case <-time.After(postgresStart):
			if err := server.Process.Kill(); err != nil {
				tb.Errorf("kill postgres: %v", err)
			}
			<-ended
		}
	})
	if err := p.wait(ended); err != nil {
		text, rerr := os.ReadFile(logPath)
		tb.Fatalf("postgres does not answer: %v\n%s", errors.Join(err, rerr), text)
	}
}

// URL is that of the server's first database.
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

// Database makes an empty database and returns its URL.
func (p *Postgres) Database(tb testing.TB) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", p.databases.Add(1))
	if err := p.Exec(tb.Context(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("create database: %v", err)
	}
	u := *p.url
	u.Path = "/" + name
	return u.String()
}

// wait returns when the server answers, or has ended.
func (p *Postgres) wait(ended chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), postgresStart)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := p.Exec(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case exit := <-ended:
			ended <- exit
			return fmt.Errorf("it has ended: %w", exit)
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// postgresBinaries finds the directory that has the server's programs.
func postgresBinaries() (string, error) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	packaged, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, dir := range append(dirs, packaged...) {
		// The real place: a link's own directory has no share directory beside it.
		initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
		if err != nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(initdb), "postgres")); err == nil {
			return filepath.Dir(initdb), nil
		}
	}
	return "", errors.New("this test needs PostgreSQL: initdb and postgres are neither on the PATH nor below /usr/lib/postgresql")
}

// postgresUser is whom the server runs as: PostgreSQL refuses root. Nil means as ourselves.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
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
	return nil, errors.New("PostgreSQL refuses root, and there is no user postgres or nobody to run it as")
}

// freePort returns a port of the loopback that nobody listens on. It lies below those that the system gives to whoever asks for
// any, so that nobody is given it before the server listens.
func freePort() (int, error) {
	const first, count, tries = 31_000, 1_700, 200
	var err error
	for range tries {
		port := first + rand.IntN(count)
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return port, l.Close()
		}
	}
	return 0, err
}
