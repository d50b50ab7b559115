package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Bytes in SQL, in Redis and in PostgreSQL's log.

// A place holds the stores of a dispatcher, for questions beside it.
type place struct {
	args     []string
	postgres string            // URL; empty: SQLite
	redis    *testserver.Redis // nil: the embedded index
	dir      string            // on the disk that fills
}

func newPlace(r *run) place {
	dir := r.TempDir()
	p := place{dir: dir, args: []string{"--data-dir", dir}}
	if r.system.name == "postgres" {
		p.dir = os.TempDir()
		p.postgres, p.redis = testserver.NewPostgres(r).Database(r), testserver.NewRedis(r)
		p.args = append(p.args, "--database-url", p.postgres, "--redis-url", p.redis.URL)
	}
	return p
}

// query asks PostgreSQL for one row of numbers.
func (p place) query(r *run, sql string, into ...any) {
	conn, err := pgx.Connect(r.Context(), p.postgres)
	r.check("PostgreSQL", err)
	r.check("PostgreSQL", errors.Join(conn.QueryRow(r.Context(), sql).Scan(into...), conn.Close(r.Context())))
}

// analyze brings PostgreSQL's statistics up to date, as autovacuum would in time.
func (p place) analyze(r *run) {
	if p.postgres == "" {
		return
	}
	conn, err := pgx.Connect(r.Context(), p.postgres)
	r.check("PostgreSQL", err)
	_, err = conn.Exec(r.Context(), "VACUUM (ANALYZE)")
	r.check("vacuum", errors.Join(err, conn.Close(r.Context())))
}

// weighSQL adds the bytes that the database takes: of PostgreSQL by table, with its indexes. SQLite has one
// file and, since its last process was killed, a log beside it.
func (p place) weighSQL(r *run, rows int) {
	if p.postgres == "" {
		for _, name := range []string{"dispatcher.db", "dispatcher.db-wal"} {
			info, err := os.Stat(p.dir + "/" + name)
			if err == nil {
				r.figures["sql"] += float64(info.Size()) / float64(rows)
			}
		}
		return
	}
	for _, table := range []string{"callbacks", "payloads", "attempts", "idempotency"} {
		var size, n float64
		sql := fmt.Sprintf(`SELECT pg_total_relation_size('%[1]s'), (SELECT count(*) FROM %[1]s)`, table)
		p.query(r, sql, &size, &n)
		r.figures[table] = size / max(n, 1)
		r.figures["sql"] += size / float64(rows)
	}
}

// A logPosition is how much PostgreSQL has logged and committed.
type logPosition struct{ bytes, commits, syncs, pages float64 }

func (p place) logPosition(r *run) (l logPosition) {
	if p.postgres != "" {
		p.query(r, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
			(SELECT sum(xact_commit) FROM pg_stat_database), wal_sync, wal_fpi FROM pg_stat_wal`,
			&l.bytes, &l.commits, &l.syncs, &l.pages)
	}
	return l
}

// put adds what was logged between two positions: bytes for one of n callbacks, the others for a thousand.
func (l logPosition) put(f figures, to logPosition, n int) {
	each := float64(n)
	f["log"], f["commits"] = (to.bytes-l.bytes)/each, (to.commits-l.commits)*1000/each
	f["syncs"], f["pages"] = (to.syncs-l.syncs)*1000/each, (to.pages-l.pages)*1000/each
}

func redisClient(server *testserver.Redis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: server.Address(), DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// redisNumber reads a number of a section of INFO.
func (r *run) redisNumber(server *testserver.Redis, section, name string) float64 {
	client := redisClient(server)
	text, err := client.Info(r.Context(), section).Result()
	r.check("INFO", errors.Join(err, client.Close()))
	n, err := numberIn(text, name)
	r.check("INFO", err)
	return n
}

// numberIn finds a number in INFO: a line of its own, or the calls of a command.
func numberIn(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			value, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(value), "calls="), ",")
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("INFO has no %s", name)
}
