package harness

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

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
	b := Backend{Name: c.String(), DataDir: tb.TempDir(), Prefix: "e2e"}
	if c.Postgres {
		b.Postgres = testserver.SharedPostgres(tb).Database(tb)
	}
	if c.Redis {
		b.Server = testserver.NewRedis(tb)
		b.Redis = b.Server.URL
	}
	return b
}

// OnEach runs a test on each of the combinations, one after another.
func OnEach(t *testing.T, combinations []Combination, test func(*testing.T, Backend)) {
	t.Helper()
	for _, c := range combinations {
		t.Run(c.String(), func(t *testing.T) { test(t, NewBackend(t, c)) })
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
		driver, name = "sqlite", "file:"+filepath.Join(b.DataDir, "dispatcher.db")+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		tb.Fatal(err)
	}
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
