package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// Bytes in SQL, in Redis and in PostgreSQL's log.

// A place holds the stores of a dispatcher, for questions beside it.
type place struct {
	args  []string
	conn  *pgx.Conn         // nil: SQLite
	redis *testserver.Redis // nil: the embedded index
	dir   string            // on the disk that fills
}

func newPlace(r *run) place {
	if r.system.name == "sqlite" {
		dir := r.TempDir()
		return place{dir: dir, args: []string{"--data-dir", dir}}
	}
	url, redis := testserver.NewPostgres(r).Database(r), testserver.NewRedis(r)
	conn, err := pgx.Connect(r.Context(), url)
	r.check("PostgreSQL", err)
	r.Cleanup(func() { conn.Close(r.Context()) })
	args := []string{"--data-dir", r.TempDir(), "--database-url", url, "--redis-url", redis.URL}
	return place{args, conn, redis, os.TempDir()}
}

// weighSQL adds the bytes that the database takes: of PostgreSQL by table, with its indexes. SQLite has one
// file and, since its last process was killed, a log beside it.
func (p place) weighSQL(r *run, rows int) {
	if p.conn == nil {
		for _, name := range []string{"dispatcher.db", "dispatcher.db-wal"} {
			info, err := os.Stat(p.dir + "/" + name)
			if err == nil {
				r.figures["sql"] += float64(info.Size()) / float64(rows)
			}
		}
		return
	}
	// Statistics are brought up to date, as autovacuum would in time.
	_, err := p.conn.Exec(r.Context(), "VACUUM (ANALYZE)")
	r.check("vacuum", err)
	for _, table := range []string{"callbacks", "requests", "attempts", "idempotency"} {
		var size, n float64
		err := p.conn.QueryRow(r.Context(), fmt.Sprintf(
			`SELECT pg_total_relation_size('%[1]s'), (SELECT count(*) FROM %[1]s)`, table)).Scan(&size, &n)
		r.check("PostgreSQL", err)
		r.figures[table] = size / max(n, 1)
		r.figures["sql"] += size / float64(rows)
	}
	// A callback is a row of two tables; its payload, a column of the second, goes before the rest.
	var payload float64
	const query = `SELECT avg(pg_column_size(body)) FROM requests`
	r.check("PostgreSQL", p.conn.QueryRow(r.Context(), query).Scan(&payload))
	r.figures["payloads"] = payload
	r.figures["callbacks"] += r.figures["requests"] - payload
}

// logged is how much PostgreSQL has logged, in bytes, and how often it has synced that.
func (p place) logged(r *run) (bytes, syncs float64) {
	if p.conn != nil {
		r.check("PostgreSQL", p.conn.QueryRow(r.Context(), `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
			(SELECT wal_sync FROM pg_stat_wal)`).Scan(&bytes, &syncs))
	}
	return bytes, syncs
}

// redisNumber reads a number of a section of INFO: a value, or the calls of a command.
func (r *run) redisNumber(server *testserver.Redis, section, name string) float64 {
	client := testserver.Client(server.Address(), "")
	sections, err := client.InfoMap(r.Context(), section).Result()
	r.check("INFO", errors.Join(err, client.Close()))
	for _, values := range sections {
		if value, found := values[name]; found {
			value, _, _ = strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseFloat(value, 64)
			r.check("INFO", err)
			return n
		}
	}
	r.Fatalf("INFO has no %s: %v", name, sections)
	return 0
}
