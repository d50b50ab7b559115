package redisq_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/memq"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// prefixes makes the prefix of every index of this test binary another one.
var prefixes atomic.Int64

// open opens an index with a prefix of its own.
func open(t testing.TB, url string, shards int) *redisq.Index {
	t.Helper()
	return openAs(t, redisq.Options{URL: url, Shards: shards, Prefix: fmt.Sprintf("test%d", prefixes.Add(1))})
}

func openAs(t testing.TB, o redisq.Options) *redisq.Index {
	t.Helper()
	o.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	ix, err := redisq.Open(context.Background(), o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := ix.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return ix
}

// testWriter sends a logger's lines to the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(line []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(line)))
	return len(line), nil
}

// clockOf returns what reads the clock of the server that has shard 0, as the index sees it.
func clockOf(t testing.TB, ix *redisq.Index) func() int64 {
	return func() int64 {
		now, err := ix.Clock(context.Background())
		if err != nil {
			t.Fatalf("time: %v", err)
		}
		return now
	}
}

// pass lets d pass as it does for an index in use: never long between two calls to a shard.
func pass(t testing.TB, ix *redisq.Index, d time.Duration) {
	t.Helper()
	const usual = 8 * time.Second
	for ; d > 0; d -= usual {
		ix.Advance(min(d, usual))
		for shard := range ix.Shards() {
			if _, err := ix.Stats(context.Background(), shard); err != nil {
				t.Fatalf("stats: %v", err)
			}
		}
	}
}

func harness(t testing.TB, ix *redisq.Index) queuetest.Harness {
	return queuetest.Harness{Index: ix, Now: clockOf(t, ix), Advance: ix.Advance}
}

// needsServer leaves a test out of short runs, which need nothing but Go.
func needsServer(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a redis-server")
	}
}

// A starter starts a server with further arguments, and returns its URL.
type starter func(t testing.TB, args ...string) string

// eachServer runs a test on redis-server, and on every other server of the kind that PATH has, such as valkey-server.
func eachServer(t *testing.T, run func(t *testing.T, start starter)) {
	t.Helper()
	needsServer(t)
	t.Run("redis-server", func(t *testing.T) { run(t, testserver.StartRedis) })
	for _, program := range testserver.OtherServers() {
		t.Run(program, func(t *testing.T) {
			run(t, func(t testing.TB, args ...string) string { return testserver.NewRedisOf(t, program, args...).URL })
		})
	}
}

func TestIndex(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		url := start(t)
		queuetest.Run(t, func(t *testing.T) queuetest.Harness { return harness(t, open(t, url, 1)) })
	})
}

func TestIndexOnACluster(t *testing.T) {
	needsServer(t)
	url := testserver.NewCluster(t, testserver.ClusterOptions{}).URL()
	queuetest.Run(t, func(t *testing.T) queuetest.Harness {
		h := harness(t, open(t, url, 0))
		h.Index = firstShard{h.Index.(*redisq.Index), make(chan int, 1)}
		return h
	})
}

// A firstShard passes on the hints of shard 0 alone. The suite looks at no other, and waits for a hint that comes once:
// it must not meet the burst for all shards that follows a subscription instead.
type firstShard struct {
	*redisq.Index
	hints chan int
}

func (f firstShard) Hints() <-chan int { return f.hints }

func (f firstShard) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- f.Index.Run(ctx) }()
	for {
		select {
		case shard := <-f.Index.Hints():
			if shard != 0 {
				continue
			}
			select {
			case f.hints <- 0:
			default:
			}
		case err := <-done:
			return err
		}
	}
}

// until polls a condition.
func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

// memory returns the index in process as the oracle: its clock moves by Advance alone.
func memory(*testing.T) queuetest.Harness {
	var clock atomic.Int64
	return queuetest.Harness{
		Index:   memq.New(memq.Options{Now: func() time.Time { return time.UnixMilli(clock.Load()) }}),
		Now:     clock.Load,
		Advance: func(d time.Duration) { clock.Add(d.Milliseconds()) },
	}
}

func TestAgainstTheIndexInProcess(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		url := start(t)
		queuetest.Compare(t, func(t *testing.T) queuetest.Harness { return harness(t, open(t, url, 1)) }, memory)
	})
}

func TestEndpointsFailAndComeBack(t *testing.T) {
	needsServer(t)
	queuetest.Recovery(t, harness(t, open(t, testserver.StartRedis(t), 1)), 300)
}
