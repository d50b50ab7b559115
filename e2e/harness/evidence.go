package harness

import (
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // The driver "pgx".
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	_ "modernc.org/sqlite" // The driver "sqlite".

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness/judge"
)

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

// EachRedis runs f on the backend's Redis, or on each master of its Cluster, one after another.
func (b Backend) EachRedis(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	scheme, rest, _ := strings.Cut(b.redisDirect(), "://")
	none := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	authority, path, _ := strings.Cut(rest, "/")
	switch scheme {
	case "redis+cluster":
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(authority, ",")})
		defer c.Close()
		var mu sync.Mutex
		return c.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			return f(ctx, one)
		})
	case "redis+sentinel":
		master, _, _ := strings.Cut(path, "/")
		c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: master,
			SentinelAddrs: strings.Split(authority, ",")})
		defer c.Close()
		return f(ctx, c)
	default:
		options, err := redis.ParseURL(b.redisDirect())
		if err != nil {
			return err
		}
		options.MaintNotificationsConfig = none
		c := redis.NewClient(options)
		defer c.Close()
		return f(ctx, c)
	}
}

// redisDirect is the URL of Redis that no proxy is in front of.
func (b Backend) redisDirect() string {
	if b.RedisBehind != "" {
		return b.RedisBehind
	}
	return b.Redis
}

// ReadIndex lists what Redis holds of each callback.
func (b Backend) ReadIndex(ctx context.Context) ([]judge.Item, error) {
	var items []judge.Item
	places := map[string]string{"delay": "delayed", "ready": "ready", "leases": "leased"}
	err := b.EachRedis(ctx, func(ctx context.Context, c *redis.Client) error {
		keys, err := c.Keys(ctx, b.Prefix+":{*").Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			place, wanted := places[key[strings.LastIndexByte(key, ':')+1:]]
			if !wanted {
				continue
			}
			members, err := c.ZRange(ctx, key, 0, -1).Result()
			if err != nil {
				return fmt.Errorf("read %s: %w", key, err)
			}
			for _, m := range members {
				if len(m) < 26 {
					return fmt.Errorf("%s holds %q, which ends in no id", key, m)
				}
				items = append(items, judge.Item{ID: "cb_" + m[len(m)-26:], Place: place})
			}
		}
		return nil
	})
	return items, err
}

// embeddedIndex asks the process for what differs between SQL and its index, and makes of it what the index
// holds.
func embeddedIndex(ctx context.Context, c *Client, rows []judge.Row) ([]judge.Item, error) {
	var drift struct {
		MissingIDs []string `json:"missing_ids"`
		ExtraIDs   []string `json:"extra_ids"`
	}
	if err := c.Call(ctx, http.MethodPost, "/v1/index/verify", nil, http.StatusOK, &drift); err != nil {
		return nil, err
	}
	missing := map[string]bool{}
	for _, id := range drift.MissingIDs {
		missing[id] = true
	}
	var items []judge.Item
	for i := range rows {
		if !rows[i].Terminal() && !missing[rows[i].ID] {
			items = append(items, judge.Item{ID: rows[i].ID, Place: "held"})
		}
	}
	for _, id := range drift.ExtraIDs {
		items = append(items, judge.Item{ID: id, Place: "held"})
	}
	return items, nil
}
