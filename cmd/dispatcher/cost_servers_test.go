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

// costServers are the shared PostgreSQL and Redis, with what counts in front of PostgreSQL; Redis counts by
// itself. Nil: nothing is counted there.
type costServers struct {
	admin *pgx.Conn
	redis *redis.Client
	sql   *testserver.Wire
	// statements counts those that were said on the wire.
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

// settings are those of a dispatcher on a database and an index of its own, both counted.
func (s *costServers) settings(t *testing.T, args ...string) *config.Settings {
	t.Helper()
	database := apptest.MustURL(t, apptest.Migrated(t))
	database.Host = s.sql.Address
	return apptest.Settings(t, slices.Concat(cmdtest.BothKeys(), apptest.OwnIndex(t), args,
		[]string{"--database-url=" + database.String()})...)
}

// What is counted. Statements are those that PostgreSQL executes or parses, BEGIN and COMMIT among them;
// commands are those of scripts, too.
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

// tolerances say by how much each kind may grow, as a part; zero: it is not measured.
type tolerances [kinds]float64

// spent is what was asked of the servers since they began.
func (s *costServers) spent(t *testing.T) (now [kinds]float64) {
	t.Helper()
	if s == nil {
		return now
	}
	err := s.admin.QueryRow(t.Context(), `SELECT (pg_current_wal_insert_lsn() - '0/0')::float8`).Scan(
		&now[walBytes])
	if err != nil {
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
	now[statements], now[sqlBytes] = 1000*float64(s.statements.Load()),
		float64(s.sql.Sent.Load()+s.sql.Received.Load())
	return now
}

// measure says what it costs to run something for n callbacks.
func (s *costServers) measure(t *testing.T, name string, n int, may tolerances, run func()) (list []figure) {
	t.Helper()
	var memory, memoryNow runtime.MemStats
	before := s.spent(t)
	runtime.ReadMemStats(&memory)
	run()
	runtime.ReadMemStats(&memoryNow)
	now := s.spent(t)
	now[allocations], now[bytesAllocated] = float64(memoryNow.Mallocs-memory.Mallocs),
		float64(memoryNow.TotalAlloc-memory.TotalAlloc)
	for kind, tolerance := range may {
		if tolerance > 0 {
			list = append(list, figure{name + ": " + kindNames[kind], (now[kind] - before[kind]) / float64(n),
				tolerance})
		}
	}
	return list
}

// countStatements reads what a client says: messages with a kind, but for the first one, and a length.
func (s *costServers) countStatements(connection io.Reader) {
	said, head := bufio.NewReader(connection), make([]byte, 5)
	for first := true; ; first = false {
		part := head
		if first {
			part = head[1:]
		}
		if _, err := io.ReadFull(said, part); err != nil {
			return
		}
		// Q is a statement as text, P one that is parsed, E one that is executed.
		if !first && strings.IndexByte("QPE", head[0]) >= 0 {
			s.statements.Add(1)
		}
		if _, err := said.Discard(int(binary.BigEndian.Uint32(head[1:])) - 4); err != nil {
			return
		}
	}
}
