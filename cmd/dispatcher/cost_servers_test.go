//go:build !race

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/apptest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cmdtest"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// costServers are the shared PostgreSQL and Redis. A proxy in front of PostgreSQL counts; Redis has its own
// counters. Nil counts nothing.
type costServers struct {
	admin *pgx.Conn
	redis *redis.Client
	sql   *testserver.Wire
	// statements counts the statements on the wire.
	statements atomic.Int64
}

func startCostServers(t *testing.T) *costServers {
	t.Helper()
	postgres, redisURL := testserver.SharedPostgres(t), testserver.SharedRedis(t)
	admin, err := pgx.Connect(t.Context(), postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := testserver.Client(apptest.MustURL(t, redisURL).Host, "")
	t.Cleanup(func() {
		if err := errors.Join(admin.Close(context.WithoutCancel(t.Context())), client.Close()); err != nil {
			t.Error(err)
		}
	})
	s := &costServers{admin: admin, redis: client}
	s.sql = testserver.NewWire(t, apptest.MustURL(t, postgres.URL()).Host, s.countStatements)
	return s
}

// settings returns the settings of a dispatcher with its own database and index, both counted.
func (s *costServers) settings(t *testing.T, args ...string) *config.Settings {
	t.Helper()
	database := apptest.MustURL(t, apptest.Migrated(t))
	database.Host = s.sql.Address
	return apptest.Settings(t, slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t), args,
		[]string{"--database-url=" + database.String()})...)
}

// The counted kinds. Statements are those that PostgreSQL executes or parses, with BEGIN and COMMIT. Commands
// include those of scripts.
const (
	allocations = iota
	bytesAllocated
	statements
	sqlBytes
	walBytes
	redisCommands
	redisBytes
	kinds
)

var kindNames = [kinds]string{
	"allocations", "bytes allocated", "statements for 1,000", "bytes to and from PostgreSQL", "bytes of WAL",
	"commands of Redis", "bytes to and from Redis",
}

// tolerances is how much each kind may grow, as a fraction; zero: not measured.
type tolerances [kinds]float64

// totals returns the counters since the start of the servers.
func (s *costServers) totals(t *testing.T) (now [kinds]float64) {
	t.Helper()
	if s == nil {
		return now
	}
	row := s.admin.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::float8`)
	if err := row.Scan(&now[walBytes]); err != nil {
		t.Fatal(err)
	}
	info, err := s.redis.InfoMap(t.Context(), "stats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]int{
		"total_commands_processed": redisCommands, "total_net_input_bytes": redisBytes,
		"total_net_output_bytes": redisBytes,
	} {
		value, err := strconv.ParseFloat(info["Stats"][name], 64)
		if err != nil {
			t.Fatal(err)
		}
		now[kind] += value
	}
	now[statements] = 1000 * float64(s.statements.Load())
	now[sqlBytes] = float64(s.sql.Sent.Load() + s.sql.Received.Load())
	return now
}

// measure returns the cost of run per callback, for n callbacks.
func (s *costServers) measure(
	t *testing.T, name string, n int, limits tolerances, run func(),
) (list []figure) {
	t.Helper()
	var memory, memoryNow runtime.MemStats
	before := s.totals(t)
	runtime.ReadMemStats(&memory)
	run()
	runtime.ReadMemStats(&memoryNow)
	now := s.totals(t)
	now[allocations] = float64(memoryNow.Mallocs - memory.Mallocs)
	now[bytesAllocated] = float64(memoryNow.TotalAlloc - memory.TotalAlloc)
	for kind, tolerance := range limits {
		if tolerance > 0 {
			list = append(list, figure{name + ": " + kindNames[kind], (now[kind] - before[kind]) / float64(n),
				tolerance})
		}
	}
	return list
}

// countStatements reads the messages of a client. Each has a type, except the first one, and a length.
func (s *costServers) countStatements(connection io.Reader) {
	messages, head := bufio.NewReader(connection), make([]byte, 5)
	for first := true; ; first = false {
		part := head
		if first {
			part = head[1:]
		}
		if _, err := io.ReadFull(messages, part); err != nil {
			return
		}
		// Q is a simple query, P a parse, E an execute.
		if !first && strings.IndexByte("QPE", head[0]) >= 0 {
			s.statements.Add(1)
		}
		if _, err := messages.Discard(int(binary.BigEndian.Uint32(head[1:])) - 4); err != nil {
			return
		}
	}
}
