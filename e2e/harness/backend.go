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

// A backend is a database and an index, and where they are. The same backend given to two launches is a
// restart.
type Backend struct {
	Name     string
	Postgres string // URL; empty: SQLite in dataDir
	Redis    string // URL; empty: the embedded index
	// Direct and redisBehind are the URLs that tests use themselves, where a proxy stands in front of the
	// program's.
	Direct, RedisBehind string
	// Server is the Redis of redis, to be killed, stopped and started again; nil with the embedded index.
	Server  *testserver.Redis
	Prefix  string
	DataDir string

	accounts *accounts
}

// Args are the settings that are common to all processes on the backend.
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

// A combination says which of the four a backend is.
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

// NewBackend makes an empty backend of the combination: a database on the shared PostgreSQL or a file of its
// own, and a Redis of its own, so that a test may empty it.
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

// OnEach runs a trial on each of the combinations, one after another.
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

// Database opens the backend's SQL beside the program, to read it.
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

// CountOpen is how many callbacks are not terminal, and one of them.
func CountOpen(ctx context.Context, db *sql.DB) (n int, example string, err error) {
	err = db.QueryRowContext(ctx,
		`SELECT count(*), coalesce(min(id), '') FROM callbacks WHERE state = 'scheduled'`).Scan(&n, &example)
	return n, example, err
}

// connect opens the backend's Redis, whatever its form. No proxy is in front of it.
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

// RedisClient opens the backend's one Redis, to look into it or to break it.
func (b Backend) RedisClient(tb testing.TB) *redis.Client {
	c := b.connect().(*redis.Client)
	tb.Cleanup(func() { c.Close() })
	return c
}

// EachRedis runs f on the backend's Redis, or on each master of its Cluster, one after another.
func (b Backend) EachRedis(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	c := b.connect()
	defer c.Close()
	cluster, ok := c.(*redis.ClusterClient)
	if !ok {
		return f(ctx, c.(*redis.Client))
	}
	var mu sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx, one)
	})
}

// FlushAll empties a Redis.
func FlushAll(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() }

// Flush empties the trial's Redis, if it has one.
func (tr *Trial) Flush() {
	tr.Helper()
	if tr.Backend.Redis != "" {
		tr.Check(tr.Backend.EachRedis(tr.Context(), FlushAll))
	}
}

// EachKey runs f on each key of the index, with the last part of its name, on each Redis.
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

// ReadIndex lists what Redis holds of each callback.
func (b Backend) ReadIndex(ctx context.Context) (items []judge.Item, err error) {
	places := map[string]string{"delay": "delayed", "ready": "ready", "leases": "leased"}
	err = b.EachKey(ctx, func(c *redis.Client, key, name string) error {
		if places[name] == "" {
			return nil
		}
		members, err := c.ZRange(ctx, key, 0, -1).Result()
		for _, m := range members {
			if len(m) < 26 {
				return fmt.Errorf("it holds %q, which ends in no id", m)
			}
			items = append(items, judge.Item{ID: "cb_" + m[len(m)-26:], Place: places[name]})
		}
		return err
	})
	return items, err
}

// embeddedIndex asks the process for what differs between SQL and its index, and makes of it what the index
// holds.
func embeddedIndex(ctx context.Context, c *Client, rows []judge.Row) ([]judge.Item, error) {
	drift, err := c.VerifyIndex(ctx, client.VerifyRequest{})
	if err != nil {
		return nil, err
	}
	var items []judge.Item
	for i := range rows {
		if !rows[i].Terminal() && !slices.Contains(drift.MissingIDs, rows[i].ID) {
			items = append(items, judge.Item{ID: rows[i].ID, Place: "held"})
		}
	}
	for _, id := range drift.ExtraIDs {
		items = append(items, judge.Item{ID: id, Place: "held"})
	}
	return items, nil
}

// WorkDir holds the binary for as long as the tests run.
var WorkDir string

// Main runs the tests of a package and then, in the order given, what follows them:
//
//	func TestMain(m *testing.M) { harness.Main(m) }
//
// With -short it runs none.
func Main(m *testing.M, after ...func() error) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("no test runs: the black box needs the binary, servers and minutes")
		return
	}
	parallelSet := false
	flag.Visit(func(f *flag.Flag) { parallelSet = parallelSet || f.Name == "test.parallel" })
	if !parallelSet {
		// Tests wait for timers and leases most of the time: more of them than cores is right.
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

// build makes the binary once.
var build = sync.OnceValues(func() (string, error) { return Build(filepath.Join(WorkDir, "dispatcher")) })

// Build makes a binary of this checkout of that name, with failpoints and further flags of go build.
func Build(name string, flags ...string) (string, error) {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-pgo=off", "-tags", "nomsgpack failpoints",
		"-o", name},
		flags, []string{"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher"})...)
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

// A Finished command is one that ran to its end.
type Finished struct {
	Code           int
	Stdout, Stderr string
}

// Command runs the binary with arguments to its end, in an empty directory, without our keys.
func Command(tb testing.TB, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	return RunProgram(tb, Binary(tb), limit, env, args...)
}

// RunProgram is Command with a binary of the caller's choice.
func RunProgram(tb testing.TB, program string, limit time.Duration, env []string, args ...string) Finished {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := Prepared(tb, exec.CommandContext(ctx, program, args...), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		tb.Fatalf("%s %s: still running after %s\n%s%s", filepath.Base(cmd.Path), strings.Join(args, " "),
			limit,
			stdout.String(), stderr.String())
	}
	if err != nil && cmd.ProcessState == nil {
		tb.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return Finished{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// Prepared has a command run in an empty directory, with our environment without any setting of a dispatcher
// and with these beside it, and die with the test process, even where that is killed before it can clean up.
func Prepared(tb testing.TB, cmd *exec.Cmd, env ...string) *exec.Cmd {
	tb.Helper()
	cmd.Dir, cmd.Env = tb.TempDir(), slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "DISPATCHER_")
	})
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Lines are those of a file, without the spaces around them, but for those that are empty or comments, which
// begin with #.
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
