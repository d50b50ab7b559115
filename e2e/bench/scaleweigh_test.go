package bench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// What things weigh: bytes in SQL, in Redis, and in PostgreSQL's log.

// sqlTables are those that grow with callbacks. What is counted beside each: attempts are several for a callback, keys not one
// for each.
var sqlTables = []string{"callbacks", "payloads", "attempts", "idempotency"}

// weigh adds the bytes that the database takes: for PostgreSQL by table, with its indexes.
func (x *scaled) weigh(t *testing.T, p place) {
	t.Helper()
	if p.file != "" {
		info, err := os.Stat(p.file)
		if err != nil {
			t.Fatal(err)
		}
		x.figures[sqlPerCallback] = float64(info.Size()) / float64(x.rows)
		return
	}
	p.ask(t, func(ctx context.Context, db *sql.DB) error {
		for _, table := range sqlTables {
			var size, heap, n float64
			err := db.QueryRowContext(ctx, `SELECT pg_total_relation_size('`+table+`'), pg_table_size('`+table+`'), (SELECT count(*) FROM `+table+`)`).
				Scan(&size, &heap, &n)
			if err != nil {
				return err
			}
			x.figures[sqlPerCallback+":"+table] = size / float64(x.rows)
			x.figures[table+" row"] = size / max(n, 1)
			x.figures[table+" row, its indexes"] = (size - heap) / max(n, 1)
			x.figures[sqlPerCallback] += size / float64(x.rows)
		}
		return nil
	})
}

// ask opens the database for some questions.
func (p place) ask(t *testing.T, questions func(context.Context, *sql.DB) error) {
	t.Helper()
	db, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := errors.Join(questions(ctx, db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// A walPosition is how much PostgreSQL has logged and committed.
type walPosition struct{ bytes, commits, syncs, pages float64 }

// wal reads it; zero on SQLite.
func (x *scaled) wal(t *testing.T, p place) (w walPosition) {
	t.Helper()
	if p.postgres == "" {
		return w
	}
	p.ask(t, func(ctx context.Context, db *sql.DB) error {
		// A session tells what it has done at most once a second, when it is idle.
		return db.QueryRowContext(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
			(SELECT sum(xact_commit) FROM pg_stat_database), (SELECT wal_sync FROM pg_stat_wal), (SELECT wal_fpi FROM pg_stat_wal)`).
			Scan(&w.bytes, &w.commits, &w.syncs, &w.pages)
	})
	return w
}

// The figures of PostgreSQL's log are for one callback that is accepted in a batch and delivered at once.
const (
	walCommits = "commits per 1,000"
	walSyncs   = "WAL syncs per 1,000"
	walPages   = "full pages per 1,000"
)

func (x *scaled) putWAL(from, to walPosition, n int) {
	if to == (walPosition{}) {
		return
	}
	x.figures[walPerCallback] = (to.bytes - from.bytes) / float64(n)
	for name, count := range map[string]float64{walCommits: to.commits - from.commits, walSyncs: to.syncs - from.syncs, walPages: to.pages - from.pages} {
		x.figures[name] = count * 1000 / float64(n)
	}
}

// redisInfo reads a section of INFO.
func redisInfo(ctx context.Context, server *testserver.Redis, section string) (string, error) {
	client := redis.NewClient(&redis.Options{
		Addr: server.Address(), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	text, err := client.Info(ctx, section).Result()
	if err = errors.Join(err, client.Close()); err != nil {
		return "", fmt.Errorf("INFO %s: %w", section, err)
	}
	return text, nil
}

// redisMemory is what a server has allocated.
func redisMemory(ctx context.Context, server *testserver.Redis) (float64, error) {
	text, err := redisInfo(ctx, server, "memory")
	if err != nil {
		return 0, err
	}
	return infoIn(text, "used_memory")
}

// scriptsRun is how many scripts a server has run.
func scriptsRun(ctx context.Context, server *testserver.Redis) (float64, error) {
	text, err := redisInfo(ctx, server, "commandstats")
	if err != nil {
		return 0, err
	}
	return infoIn(text, "cmdstat_evalsha")
}

// infoIn finds a number in INFO: a line of its own, or the calls of a command.
func infoIn(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			value, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(value), "calls="), ",")
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO has no %s", name)
}

// emptyRedis removes what the seeding's own process has left, and remembers what an empty server takes.
func (x *scaled) emptyRedis(t *testing.T, p place) {
	t.Helper()
	if p.redis == nil {
		return
	}
	client := redis.NewClient(&redis.Options{
		Addr: p.redis.Address(), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	if err := errors.Join(client.FlushAll(t.Context()).Err(), client.Close()); err != nil {
		t.Fatalf("empty redis: %v", err)
	}
	empty, err := redisMemory(t.Context(), p.redis)
	if err != nil {
		t.Fatal(err)
	}
	x.redisEmpty = empty
}

// weighRedis adds what an item of the index takes, when nothing but pending items is in it.
func (x *scaled) weighRedis(t *testing.T, p place, d *dispatcher) {
	t.Helper()
	if p.redis == nil {
		return
	}
	used, err := redisMemory(t.Context(), p.redis)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.stats(t.Context())
	if err != nil || s.Index == nil || s.Index.Delayed == 0 {
		t.Fatalf("stats of the index: %+v, %v", s.Index, err)
	}
	x.figures[redisPerPending] = (used - x.redisEmpty) / float64(s.Index.Delayed)
}
