package harness

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

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

// Moment turns SQL's Unix milliseconds into a time; zero is none.
func Moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// ReadRows reads every callback with the hash of its body.
func ReadRows(ctx context.Context, db *sql.DB) ([]judge.Row, error) {
	found, err := db.QueryContext(ctx, `SELECT c.id, c.ref, c.lock_key, c.state, c.reason,
		c.due_at, c.finished_at, c.policy, p.body
		FROM callbacks c LEFT JOIN payloads p ON p.id = c.payload_id`)
	if err != nil {
		return nil, fmt.Errorf("read callbacks: %w", err)
	}
	defer found.Close()
	var rows []judge.Row
	policies := map[string][]time.Duration{}
	for found.Next() {
		var r judge.Row
		var due, finished int64
		var policy string
		var body []byte
		if err := found.Scan(&r.ID, &r.Ref, &r.LockKey, &r.State, &r.Reason, &due, &finished, &policy,
			&body); err != nil {
			return nil, fmt.Errorf("read a callback: %w", err)
		}
		r.ID, r.DueAt, r.FinishedAt = "cb_"+r.ID, Moment(due), Moment(finished)
		if body != nil {
			r.Hash = sha256.Sum256(body)
		}
		tiers, known := policies[policy]
		if !known {
			var p struct {
				Tiers []time.Duration `json:"tiers"`
			}
			if err := json.Unmarshal([]byte(policy), &p); err != nil {
				return nil, fmt.Errorf("policy of %s: %w", r.ID, err)
			}
			tiers = p.Tiers
			policies[policy] = tiers
		}
		r.Tiers = tiers
		rows = append(rows, r)
	}
	return rows, found.Err()
}

// ReadAttempts reads every attempt.
func ReadAttempts(ctx context.Context, db *sql.DB) ([]judge.Attempt, error) {
	found, err := db.QueryContext(ctx,
		`SELECT callback_id, number, outcome, class, "trigger", status, charged, stale,
			started_at, ended_at, due_at, next_due_at FROM attempts`)
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	defer found.Close()
	var attempts []judge.Attempt
	for found.Next() {
		var a judge.Attempt
		var charged, stale int
		var started, ended, due, next int64
		if err := found.Scan(&a.ID, &a.Number, &a.Outcome, &a.Class, &a.Trigger, &a.Status, &charged, &stale,
			&started, &ended, &due, &next); err != nil {
			return nil, fmt.Errorf("read an attempt: %w", err)
		}
		a.ID, a.Charged, a.Stale = "cb_"+a.ID, charged != 0, stale != 0
		a.Started, a.Ended, a.Due, a.NextDue = Moment(started), Moment(ended), Moment(due), Moment(next)
		attempts = append(attempts, a)
	}
	return attempts, found.Err()
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
