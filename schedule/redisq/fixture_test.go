package redisq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// needsServer skips the test in short runs, which need only Go. The test runs in parallel with others.
func needsServer(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a redis-server")
	}
	t.Parallel()
}

// eachServer runs a test on redis-server, and on every similar server in PATH, such as valkey-server. It logs
// their versions. Without arguments for the server, tests share one redis-server.
func eachServer(t *testing.T, run func(t *testing.T, url string), args ...string) {
	t.Helper()
	needsServer(t)
	for _, program := range append([]string{"redis-server"}, testserver.OtherServers()...) {
		t.Run(program, func(t *testing.T) {
			var url string
			if program == "redis-server" && len(args) == 0 {
				url = testserver.SharedRedis(t)
			} else {
				url = testserver.NewRedisOf(t, program, args...).URL
			}
			version, err := exec.Command(program, "--version").Output()
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("tested on %s", bytes.TrimSpace(version))
			run(t, url)
		})
	}
}

// prefixes counts the indexes of this test binary, so that each has its own prefix.
var prefixes atomic.Int64

// open opens an index with its own prefix.
func open(t testing.TB, url string, shards int) *redisq.Index {
	t.Helper()
	return openAs(t, redisq.Options{URL: url, Shards: shards, Prefix: fmt.Sprintf("test%d", prefixes.Add(1))})
}

// openNew opens an index with one shard on the shared server, under generation 1.
func openNew(t testing.TB) *redisq.Index {
	t.Helper()
	ix := open(t, testserver.SharedRedis(t), 1)
	reset(t, ix, 1)
	return ix
}

func openAs(t testing.TB, o redisq.Options) *redisq.Index {
	t.Helper()
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
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

// A journal is a log that a test reads.
type journal struct{ testserver.Log }

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// count returns the number of lines that contain all the words.
func (j *journal) count(words ...string) int {
	n := 0
	for line := range strings.Lines(j.String()) {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

// reset empties every shard under the generation and opens it.
func reset(tb testing.TB, ix *redisq.Index, generation int64) {
	tb.Helper()
	ix.SetGeneration(generation)
	for shard := range ix.Shards() {
		err := ix.Reset(context.Background(), shard, generation)
		err = errors.Join(err, ix.Open(context.Background(), shard))
		if err != nil {
			tb.Fatalf("reset shard %d: %v", shard, err)
		}
	}
}

// id returns the n-th id of a test.
func id(n int) string { return fmt.Sprintf("01K%023d", n) }

// itemsOf returns new items, spread over the lanes.
func itemsOf(n *int, count, lanes int, due int64) []schedule.Item {
	items := make([]schedule.Item, count)
	for i := range items {
		*n++
		items[i] = schedule.Item{ID: id(*n), Lane: int64(*n%lanes + 1), Due: due + int64(*n%1000)}
	}
	return items
}

func ensure(tb testing.TB, ix *redisq.Index, items ...schedule.Item) []schedule.Position {
	tb.Helper()
	positions, err := ix.Ensure(context.Background(), items)
	if err != nil {
		tb.Fatalf("ensure: %v", err)
	}
	return positions
}

// wide returns a claim that only the lanes themselves limit.
func wide(token string, most int) schedule.ClaimRequest {
	return schedule.ClaimRequest{
		Owner: "owner", Token: token, Max: most, MaxUncertain: most, MaxTimingOut: most,
		Lease: 20 * time.Second, LaneLimit: 100,
	}
}

// audit runs a whole audit and expects this number of repairs; -1: any number.
func audit(t testing.TB, ix *redisq.Index, want int) {
	t.Helper()
	repaired, err := queuetest.Audit(context.Background(), ix)
	if err != nil {
		t.Fatalf("audit: %v", err)
	}
	if want >= 0 && repaired != want {
		t.Fatalf("the audit repaired %d, want %d", repaired, want)
	}
}

// now returns the clock of the server of shard 0, as the index sees it.
func now(t testing.TB, ix *redisq.Index) int64 {
	t.Helper()
	at, err := ix.Clock(context.Background())
	if err != nil {
		t.Fatalf("clock: %v", err)
	}
	return at
}

// do sends a command to the server.
func do(t testing.TB, ix *redisq.Index, args ...any) any {
	t.Helper()
	v, err := ix.Client().Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}
