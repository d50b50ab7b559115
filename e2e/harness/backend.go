package harness

import (
	"bytes"
	"context"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	_ "modernc.org/sqlite" // The driver "sqlite".

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Backend is a database, an index, and their addresses. Two launches on the same Backend are a restart.
type Backend struct {
	Name     string
	Postgres string // URL; empty: SQLite in dataDir
	Redis    string // URL; empty: the embedded index
	// Direct and RedisBehind are the URLs for the tests, if a proxy stands between the program and the
	// server.
	Direct, RedisBehind string
	// Server is the Redis server at Redis; tests kill, stop and restart it. It is nil with the embedded
	// index.
	Server  *testserver.Redis
	Prefix  string
	DataDir string

	accounts *accounts
}

// Args are the settings that all processes on the backend share.
func (b Backend) Args() []string {
	args := []string{"--data-dir", b.DataDir, "--egress-allow", "127.0.0.0/8", "--log-format", "json"}
	if b.Postgres != "" {
		args = append(args, "--database-url", b.Postgres)
	}
	if b.Redis != "" {
		args = append(args, "--redis-url", b.Redis, "--redis-prefix", b.Prefix)
	}
	return args
}

// Combination says whether a backend has PostgreSQL and Redis, or SQLite and the embedded index.
type Combination struct{ Postgres, Redis bool }

func (c Combination) String() string {
	name := "sqlite"
	if c.Postgres {
		name = "postgres"
	}
	if c.Redis {
		return name + "+redis"
	}
	return name + "+embedded"
}

// The combinations of database and index.
var (
	SQLiteEmbedded = Combination{}
	SQLiteRedis    = Combination{Redis: true}
	PostgresOnly   = Combination{Postgres: true}
	PostgresRedis  = Combination{Postgres: true, Redis: true}
	AllFour        = []Combination{SQLiteEmbedded, SQLiteRedis, PostgresOnly, PostgresRedis}
	BothEnds       = []Combination{SQLiteEmbedded, PostgresRedis}
)

// NewBackend creates an empty backend of the combination: a new database on the shared PostgreSQL or a new
// SQLite file, and its own Redis server, which a test may empty.
func NewBackend(tb testing.TB, c Combination) Backend {
	tb.Helper()
	b := Backend{Name: c.String(), DataDir: tb.TempDir(), Prefix: "e2e", accounts: new(accounts)}
	if c.Postgres {
		b.Postgres = testserver.SharedPostgres(tb).Database(tb)
	}
	if c.Redis {
		b.Server = testserver.NewRedis(tb)
		b.Redis = b.Server.URL
	}
	return b
}

// OnEach runs a trial on each combination, in order.
func OnEach(t *testing.T, combinations []Combination, run func(*Trial)) {
	t.Helper()
	for _, c := range combinations {
		t.Run(c.String(), func(t *testing.T) {
			tr := NewTrial(t, t.Name())
			tr.UseBackend(NewBackend(t, c))
			run(tr)
		})
	}
}

// Database opens a connection to the backend's SQL, separate from the program's, so that the test can read
// it.
func (b Backend) Database(tb testing.TB) *sql.DB {
	tb.Helper()
	driver, name := "pgx", b.Postgres
	if b.Direct != "" {
		name = b.Direct
	}
	if b.Postgres == "" {
		driver, name = "sqlite", "file:"+filepath.Join(b.DataDir, "dispatcher.db")+
			"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, name)
	Check(tb, err)
	db.SetMaxOpenConns(2)
	tb.Cleanup(func() { db.Close() })
	return db
}

// CountOpen returns the number of callbacks that are not terminal, and the id of one of them.
func CountOpen(ctx context.Context, db *sql.DB) (n int, example string, err error) {
	err = db.QueryRowContext(ctx,
		`SELECT count(*), coalesce(min(id), '') FROM callbacks WHERE state = 'scheduled'`).Scan(&n, &example)
	return n, example, err
}

// connect opens the backend's Redis (single, Sentinel or Cluster), without the proxy.
func (b Backend) connect() redis.UniversalClient {
	url := b.Redis
	if b.RedisBehind != "" {
		url = b.RedisBehind
	}
	scheme, rest, _ := strings.Cut(url, "://")
	authority, path, _ := strings.Cut(rest, "/")
	o := &redis.UniversalOptions{
		Addrs: strings.Split(authority, ","), IsClusterMode: scheme == "redis+cluster",
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if scheme == "redis+sentinel" {
		o.MasterName, _, _ = strings.Cut(path, "/")
	}
	return redis.NewUniversalClient(o)
}

// RedisClient opens the backend's single Redis, to read it or to break it.
func (b Backend) RedisClient(tb testing.TB) *redis.Client {
	c := b.connect().(*redis.Client)
	tb.Cleanup(func() { c.Close() })
	return c
}

// EachRedis runs f on the backend's Redis, or on each master of its Cluster, one at a time.
func (b Backend) EachRedis(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	c := b.connect()
	defer c.Close()
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return f(ctx, c.(*redis.Client))
	}
	var mu sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx, master)
	})
}

// FlushAll empties a Redis.
func FlushAll(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }

// Flush empties the trial's Redis. It does nothing with the embedded index.
func (tr *Trial) Flush() {
	tr.Helper()
	if tr.Backend.Redis != "" {
		tr.Check(tr.Backend.EachRedis(tr.Context(), FlushAll))
	}
}

// EachKey runs f on each key of the index, on each Redis. name is the last part of the key.
func (b Backend) EachKey(ctx context.Context, f func(c *redis.Client, key, name string) error) error {
	return b.EachRedis(ctx, func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, b.Prefix+":{*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			if err := f(c, key, key[strings.LastIndexByte(key, ':')+1:]); err != nil {
				return fmt.Errorf("read %s: %w", key, err)
			}
		}
		return nil
	})
}

// ReadIndex lists the entries of all callbacks in Redis.
func (b Backend) ReadIndex(ctx context.Context) (items []judge.Item, err error) {
	places := map[string]string{"delay": "delayed", "ready": "ready", "leases": "leased"}
	err = b.EachKey(ctx, func(c *redis.Client, key, name string) error {
		if places[name] == "" {
			return nil
		}
		members, err := c.ZRange(ctx, key, 0, -1).Result()
		for _, m := range members {
			if len(m) < 26 {
				return fmt.Errorf("entry %q ends in no id", m)
			}
			items = append(items, judge.Item{ID: "cb_" + m[len(m)-26:], Place: places[name]})
		}
		return err
	})
	return items, err
}

// embeddedIndex derives the contents of the embedded index: the open rows of SQL, corrected by the
// differences that the process reports.
func embeddedIndex(ctx context.Context, c *Client, rows []judge.Row) ([]judge.Item, error) {
	drift, err := c.VerifyIndex(ctx, client.VerifyRequest{})
	if err != nil {
		return nil, err
	}
	var items []judge.Item
	for i := range rows {
		if !rows[i].Terminal() && !slices.Contains(drift.MissingIDs, rows[i].ID) {
			items = append(items, judge.Item{ID: rows[i].ID, Place: "indexed"})
		}
	}
	for _, id := range drift.ExtraIDs {
		items = append(items, judge.Item{ID: id, Place: "indexed"})
	}
	return items, nil
}

// WorkDir holds the binary while the tests run.
var WorkDir string

// Main runs the tests of a package, and then the functions in after, in order:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// With -short it runs no test.
func Main(m *testing.M, after ...func() error) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("no test runs: the black box needs the binary, servers and minutes")
		return
	}
	parallelSet := false
	flag.Visit(func(f *flag.Flag) { parallelSet = parallelSet || f.Name == "test.parallel" })
	if !parallelSet {
		// Tests mostly wait for timers and leases, so more of them run in parallel than there are cores.
		if err := flag.Set("test.parallel", "16"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(run(m, after))
}

func run(m *testing.M, after []func() error) int {
	dir, err := os.MkdirTemp("", "dispatcher-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	WorkDir = dir
	code := testserver.Run(m)
	for _, f := range after {
		if err := f(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// build builds the binary once.
var build = sync.OnceValues(func() (string, error) { return Build(filepath.Join(WorkDir, "dispatcher")) })

// Build builds the binary from this checkout, with failpoints and the given flags of go build, and writes it
// to the file name.
func Build(name string, flags ...string) (string, error) {
	args := append([]string{"build"}, flags...)
	args = append(args, "-pgo=off", "-tags", "nomsgpack failpoints", "-o", name,
		"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher")
	cmd := exec.Command("go", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return name, nil
}

// Binary returns the path of the built binary.
func Binary(tb testing.TB) string {
	tb.Helper()
	name, err := build()
	Check(tb, err)
	return name
}

// Finished is the result of a command that ran to its end.
type Finished struct {
	Code           int
	Stdout, Stderr string
}

// Command runs the binary to its end, in an empty directory, without the test keys. It fails the test after
// limit.
func Command(tb testing.TB, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	return RunProgram(tb, Binary(tb), limit, env, args...)
}

// RunProgram is Command for another binary.
func RunProgram(tb testing.TB, program string, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := Prepared(tb, exec.CommandContext(ctx, program, args...), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		tb.Fatalf("%s %s: still running after %s\n%s%s", filepath.Base(cmd.Path),
			strings.Join(args, " "), limit, stdout.String(), stderr.String())
	}
	if err != nil && cmd.ProcessState == nil {
		tb.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return Finished{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// Prepared sets the command's directory to an empty one, and its environment to that of the test without all
// DISPATCHER_ variables, plus env. The command dies with the test process, even if that process is killed
// before its cleanup.
func Prepared(tb testing.TB, cmd *exec.Cmd, env ...string) *exec.Cmd {
	tb.Helper()
	cmd.Dir, cmd.Env = tb.TempDir(), slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "DISPATCHER_")
	})
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Lines returns the lines of a file, trimmed. It leaves out empty lines and comments, which begin with #.
func Lines(tb testing.TB, file string) (lines []string) {
	tb.Helper()
	text, err := os.ReadFile(file)
	Check(tb, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}
