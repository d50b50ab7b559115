//go:build !race

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// costServers are PostgreSQL and Redis, with what counts in front of them. Nil: there are none, and nothing is counted.
type costServers struct {
	postgres *testserver.Postgres
	admin    *pgx.Conn
	redis    *redis.Client
	// sql and index are ways to the servers that are counted; admin and redis are not.
	sql, index *wire
	indexURL   string
	indexes    int
}

func startCostServers(t *testing.T) *costServers {
	t.Helper()
	s := &costServers{postgres: testserver.NewPostgres(t)}
	var err error
	if s.admin, err = pgx.Connect(t.Context(), s.postgres.URL()); err != nil {
		t.Fatal(err)
	}
	redisURL := testserver.StartRedis(t)
	options, err := redis.ParseURL(redisURL)
	if err != nil {
		t.Fatal(err)
	}
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	s.redis = redis.NewClient(options)
	t.Cleanup(func() {
		if err := s.admin.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := s.redis.Close(); err != nil {
			t.Error(err)
		}
	})
	s.sql, s.index = startWire(t, s.postgres.URL(), true), startWire(t, redisURL, false)
	s.indexURL = strings.Replace(redisURL, options.Addr, s.index.addr, 1)
	return s
}

// settings are those of a dispatcher on a database and an index of its own, both counted.
func (s *costServers) settings(t *testing.T, args ...string) *Settings {
	t.Helper()
	u, err := url.Parse(s.postgres.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	u.Host = s.sql.addr
	s.indexes++
	return testSettings(t, append([]string{"--database-url=" + u.String(), "--redis-url=" + s.indexURL, fmt.Sprint("--redis-prefix=costs", s.indexes),
		"--admin-key=admin", "--master-key=" + someKey('m')}, args...)...)
}

// A spent is what was asked of the servers since they began. Statements are those that were executed or parsed, BEGIN and COMMIT among
// them; commands are those of scripts, too; the others are bytes.
type spent struct{ statements, sqlBytes, wal, commands, redisBytes float64 }

func (s *costServers) spent(t *testing.T) (now spent) {
	t.Helper()
	if s == nil {
		return now
	}
	if err := s.admin.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::float8`).Scan(&now.wal); err != nil {
		t.Fatal(err)
	}
	info, err := s.redis.Info(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	commands, _, _ := strings.Cut(rest, "\r")
	if now.commands, err = strconv.ParseFloat(commands, 64); err != nil {
		t.Fatal(err)
	}
	now.statements, now.sqlBytes = float64(s.sql.statements.Load()), float64(s.sql.bytes.Load())
	now.redisBytes = float64(s.index.bytes.Load())
	return now
}

// limits are the tolerances of what is measured. The zero one: it is not.
type limits struct{ allocations, statements, sqlBytes, wal, redis tolerance }

// measure says what it costs to run something for n callbacks.
func (s *costServers) measure(t *testing.T, name string, n int, l limits, run func()) (list []figure) {
	t.Helper()
	var allocated, allocatedNow runtime.MemStats
	before := s.spent(t)
	runtime.ReadMemStats(&allocated)
	run()
	runtime.ReadMemStats(&allocatedNow)
	now := s.spent(t)
	for _, one := range []struct {
		of        string
		now, then float64
		tolerance
	}{
		{"allocations", float64(allocatedNow.Mallocs), float64(allocated.Mallocs), l.allocations},
		{"bytes allocated", float64(allocatedNow.TotalAlloc), float64(allocated.TotalAlloc), l.allocations},
		{"statements for 1,000", 1000 * now.statements, 1000 * before.statements, l.statements},
		{"bytes to and from PostgreSQL", now.sqlBytes, before.sqlBytes, l.sqlBytes},
		{"bytes of WAL", now.wal, before.wal, l.wal},
		{"commands of Redis", now.commands, before.commands, l.redis},
		{"bytes to and from Redis", now.redisBytes, before.redisBytes, l.redis},
	} {
		if one.tolerance != (tolerance{}) {
			list = append(list, figure{name + ": " + one.of, (one.now - one.then) / float64(n), one.tolerance})
		}
	}
	return list
}

// A wire passes on what is said to a server and by it, and counts it. It allocates nothing once a connection is open.
type wire struct {
	addr, server string
	// sql: the server is PostgreSQL, and statements are counted, too.
	sql               bool
	bytes, statements atomic.Int64
}

// startWire starts one to the server of a URL. It ends with the test, and its connections with it.
func startWire(t *testing.T, server string, sql bool) *wire {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: l.Addr().String(), server: u.Host, sql: sql}
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	var passing sync.WaitGroup
	passing.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			passing.Go(func() { w.pass(ctx, c) })
		}
	})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		end()
		passing.Wait()
	})
	return w
}

// pass passes on one connection until either side ends it, or ctx does.
func (w *wire) pass(ctx context.Context, client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp4", w.server)
	if err != nil {
		return // which the client takes for the server's answer
	}
	defer server.Close()
	defer context.AfterFunc(ctx, func() { client.Close() })()
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		_, _ = io.Copy(io.MultiWriter(client, w), server) // either side's end is the end of both
	})
	_, _ = io.Copy(io.MultiWriter(server, w, &talk{wire: w}), client)
	server.Close()
	back.Wait()
}

// Write counts bytes.
func (w *wire) Write(b []byte) (int, error) {
	w.bytes.Add(int64(len(b)))
	return len(b), nil
}

// A talk follows what a client says to PostgreSQL: something without a kind at first, then parts with a kind and a length.
type talk struct {
	*wire
	begun bool
	head  [5]byte
	have  int
	skip  int // bytes that are still to come of the part
}

// Write counts statements.
func (k *talk) Write(b []byte) (int, error) {
	all := len(b)
	for k.sql && len(b) > 0 {
		if k.skip > 0 {
			n := min(k.skip, len(b))
			k.skip, b = k.skip-n, b[n:]
			continue
		}
		if !k.begun && k.have == 0 {
			k.have = 1 // there is no kind
		}
		n := copy(k.head[k.have:], b)
		k.have, b = k.have+n, b[n:]
		if k.have < len(k.head) {
			break
		}
		// Q is a statement as text, P one that is parsed, E one that is executed.
		if k.begun && strings.IndexByte("QPE", k.head[0]) >= 0 {
			k.statements.Add(1)
		}
		k.begun, k.have, k.skip = true, 0, int(binary.BigEndian.Uint32(k.head[1:]))-4
	}
	return all, nil
}
