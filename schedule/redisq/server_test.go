package redisq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// do sends a command of the test's own.
func do(t testing.TB, ix *redisq.Index, args ...any) any {
	t.Helper()
	v, err := ix.Client().Do(context.Background(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatalf("%v: %v", args, err)
	}
	return v
}

func settleAll(t testing.TB, ix *redisq.Index, leases []schedule.Lease, won bool) []schedule.Settled {
	t.Helper()
	done := make([]schedule.Settlement, len(leases))
	for i, l := range leases {
		done[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered, Won: won}
	}
	replies, err := ix.Settle(context.Background(), done)
	if err != nil {
		t.Fatalf("settle: %v", err)
	}
	return replies
}

// The ids are members of one sorted set, scored by their due milliseconds, under a name that says so; nothing expires.
func TestWhatOperatorsSee(t *testing.T) {
	needsServer(t)
	ix := openAs(t, redisq.Options{URL: testserver.StartRedis(t)})
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	due := time.Now().Add(time.Hour).UnixMilli()
	fill(t, ix, &n, 10, 3, due)
	score, err := ix.Client().ZScore(ctx, "dispatcher:{dispatcher:0}:delay", id(4)).Result()
	if err != nil || int64(score) != due+4 {
		t.Errorf("score of %s: %v, %v; want %d", id(4), score, err, due+4)
	}
	// Fill every structure, and look at all keys.
	fill(t, ix, &n, 20, 3, 1)
	leases := claim(t, ix, &token, 5).Leases
	for _, l := range leases[:2] {
		if _, err := ix.Acquire(ctx, []schedule.LockRequest{{Lock: "k", ID: l.ID, Lane: l.Lane, Token: l.Token, Until: due}}); err != nil {
			t.Fatal(err)
		}
	}
	keys, err := ix.Client().Keys(ctx, "*").Result()
	if err != nil || len(keys) < 12 {
		t.Fatalf("keys %v, %v", keys, err)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "dispatcher:{dispatcher:0}:") {
			t.Errorf("%s does not carry the shard's tag", key)
		}
		if ttl := do(t, ix, "ttl", key); ttl != int64(-1) {
			t.Errorf("%s expires in %v", key, ttl)
		}
	}
}

func TestMemoryBudget(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.StartRedis(t), 1)
	reset(t, ix, 1)
	used := func() int64 {
		info, err := ix.Client().Info(context.Background(), "memory").Result()
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(info, "used_memory:")
		n, err := strconv.ParseInt(strings.TrimSpace(strings.SplitN(rest, "\n", 2)[0]), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	n := 0
	before := used()
	const items = 100_000
	fill(t, ix, &n, items, 1000, time.Now().Add(time.Hour).UnixMilli())
	per := float64(used()-before) / items
	sizes := make(map[string]float64)
	for _, name := range []string{"DELAY", "RECORDS"} {
		size := do(t, ix, "memory", "usage", ix.Key(0, name), "samples", 0).(int64)
		sizes[name] = float64(size) / items
	}
	t.Logf("a delayed item costs %.0f bytes all in: %.0f in the delay set, %.0f in its record", per, sizes["DELAY"], sizes["RECORDS"])
	if per > 250 {
		t.Errorf("a delayed item costs %.0f bytes; the budget is 250", per)
	}
}

func TestFlushedScriptsAreSentAgain(t *testing.T) {
	needsServer(t)
	for name, url := range map[string]string{
		"server": testserver.StartRedis(t), "cluster": testserver.NewCluster(t, testserver.ClusterOptions{}).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			ix := open(t, url, 0)
			reset(t, ix, 1)
			n, token := 0, 0
			for range 3 {
				flush := func(ctx context.Context, c *redis.Client) error { return c.ScriptFlush(ctx).Err() }
				if cluster, ok := ix.Client().(*redis.ClusterClient); ok {
					if err := cluster.ForEachMaster(context.Background(), flush); err != nil {
						t.Fatal(err)
					}
				} else if err := flush(context.Background(), ix.Client().(*redis.Client)); err != nil {
					t.Fatal(err)
				}
				fill(t, ix, &n, 100, 100, 1)
				if got := claim(t, ix, &token, 256).Leases; len(got) == 0 {
					t.Fatal("nothing was claimed")
				} else {
					settleAll(t, ix, got, false)
				}
			}
		})
	}
}

func TestEmptiedServerIsLost(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.StartRedis(t), 1)
	ctx := context.Background()
	if _, err := ix.Stats(ctx, 0); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("before any generation: %v, want ErrLost", err)
	}
	reset(t, ix, 7)
	n, token := 0, 0
	fill(t, ix, &n, 10, 1, 1)
	leases := claim(t, ix, &token, 2).Leases
	do(t, ix, "flushall")
	if _, err := ix.Settle(ctx, []schedule.Settlement{{Item: leases[0].Item, Token: leases[0].Token, Outcome: schedule.Ack, Won: true}}); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("settle: %v, want ErrLost", err)
	}
	if _, err := ix.Ensure(ctx, itemsOf(&n, 1, 1, 1)); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("ensure: %v, want ErrLost", err)
	}
	if keys := do(t, ix, "dbsize"); keys != int64(0) {
		t.Errorf("refused operations left %v keys", keys)
	}
	if generation, err := ix.Generation(ctx, 0); generation != 0 || err != nil {
		t.Errorf("generation: %d, %v", generation, err)
	}
	reset(t, ix, 8)
	fill(t, ix, &n, 1, 1, 1)
}

// Under maxmemory what drains goes on and what adds is refused whole.
func TestFullServer(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		drainsWhileFull(t, open(t, start(t, "--maxmemory-policy", "noeviction"), 1))
	})
}

func drainsWhileFull(t *testing.T, ix *redisq.Index) {
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	fill(t, ix, &n, 2000, 4, 1)
	for range 8 {
		settleAll(t, ix, claim(t, ix, &token, 64).Leases, false)
	}
	held := claim(t, ix, &token, 60).Leases
	before, err := ix.Stats(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	do(t, ix, "config", "set", "maxmemory", "1mb")
	items := itemsOf(&n, 500, 4, 1)
	if _, err := ix.Ensure(ctx, items); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("ensure on a full server: %v, want OOM", err)
	}
	if after, err := ix.Stats(ctx, 0); err != nil || after.Delayed != before.Delayed || after.Ready != before.Ready {
		t.Fatalf("a refused ensure changed %+v to %+v, %v", before, after, err)
	}
	if positions, err := ix.Lookup(ctx, []schedule.Ref{items[0].Ref()}); err != nil || positions[0].Place != schedule.Absent {
		t.Fatalf("a refused item is %v, %v", positions, err)
	}
	l := held[0]
	if kept, err := ix.Extend(ctx, []schedule.Extension{{Ref: l.Ref(), Token: l.Token, Until: l.Until + 60_000}}); err != nil || !kept[0] {
		t.Fatalf("extend on a full server: %v, %v", kept, err)
	}
	again := schedule.Settlement{Item: held[1].Item, Token: held[1].Token, Outcome: schedule.Reschedule}
	again.Due = time.Now().Add(time.Hour).UnixMilli()
	if replies, err := ix.Settle(ctx, []schedule.Settlement{again}); err != nil || replies[0] != schedule.Applied {
		t.Fatalf("reschedule on a full server: %v, %v", replies, err)
	}
	request := schedule.LockRequest{Lock: "k", ID: l.ID, Lane: l.Lane, Token: l.Token, Until: l.Until}
	if replies, err := ix.Acquire(ctx, []schedule.LockRequest{request}); err != nil || !replies[0].Acquired {
		t.Fatalf("acquire on a full server: %v, %v", replies, err)
	}
	for _, reply := range settleAll(t, ix, held[2:], false) {
		if reply != schedule.Applied {
			t.Fatalf("settle on a full server: %d", reply)
		}
	}
	pass(t, ix, 5*time.Minute)
	if c := claim(t, ix, &token, 64); c.Reaped != 1 || len(c.Leases) == 0 {
		t.Fatalf("claim on a full server: %d reaped, %d leased", c.Reaped, len(c.Leases))
	}
	do(t, ix, "config", "set", "maxmemory", "0")
	if _, err := ix.Ensure(ctx, items); err != nil {
		t.Fatalf("ensure once there is room: %v", err)
	}
}

func TestServersThatAreRefused(t *testing.T) {
	needsServer(t)
	ctx := context.Background()
	raw := testserver.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	_, err := redisq.Open(ctx, redisq.Options{URL: raw})
	if err == nil || !strings.Contains(err.Error(), "allkeys-lru") || strings.Contains(err.Error(), "\n") {
		t.Errorf("an evicting server: %v", err)
	}
	node := testserver.NewCluster(t, testserver.ClusterOptions{}).Nodes[0]
	if _, err := redisq.Open(ctx, redisq.Options{URL: node.URL}); err == nil || !strings.Contains(err.Error(), "redis+cluster") {
		t.Errorf("a Cluster's node as a single server: %v", err)
	}
	raw = testserver.StartRedis(t, "--requirepass", "s3cret")
	host := strings.TrimPrefix(raw, "redis://")
	if _, err := redisq.Open(ctx, redisq.Options{URL: raw}); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("no password: %v", err)
	}
	if _, err := redisq.Open(ctx, redisq.Options{URL: "redis://:wr0ng@" + host}); err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := redisq.Open(ctx, redisq.Options{URL: "redis+cluster://:s3cret@" + host}); err == nil {
		t.Error("a single server was taken for a Cluster")
	}
	ix := openAs(t, redisq.Options{URL: "redis://default:s3cret@" + host})
	if err := ix.Ping(ctx); err != nil {
		t.Error(err)
	}
	// A server that does not tell is warned of, and used.
	do(t, ix, "acl", "setuser", "quiet", "on", ">pw", "~*", "&*", "+@all", "-info", "-config")
	var log bytes.Buffer
	quiet, err := redisq.Open(ctx, redisq.Options{
		URL: "redis://quiet:" + url.QueryEscape("pw") + "@" + host, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := quiet.Close(); err != nil || !strings.Contains(log.String(), "noeviction") {
		t.Errorf("%v; logged: %s", err, log.String())
	}
}

func TestMetrics(t *testing.T) {
	needsServer(t)
	registry := prometheus.NewRegistry()
	raw := testserver.StartRedis(t)
	ix := openAs(t, redisq.Options{URL: raw, Registerer: registry})
	openAs(t, redisq.Options{URL: raw, Registerer: registry, Prefix: "second"})
	reset(t, ix, 1)
	ix.SetGeneration(2)
	if _, err := ix.Stats(context.Background(), 0); !errors.Is(err, schedule.ErrLost) {
		t.Fatal(err)
	}
	want := "# HELP dispatcher_index_errors_total Calls to the index on Redis that failed, by operation.\n" +
		"# TYPE dispatcher_index_errors_total counter\ndispatcher_index_errors_total{op=\"stats\"} 1\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "dispatcher_index_errors_total"); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(registry, "dispatcher_index_call_seconds"); err != nil || n != 3 {
		t.Errorf("%d operations were measured, %v; want reset, open and stats", n, err)
	}
}

// Calls spread over shards answer each element in its place, and refuse nothing half.
func TestCallsSpanShards(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.NewCluster(t, testserver.ClusterOptions{}).URL(), 0)
	reset(t, ix, 1)
	ctx := context.Background()
	n := 0
	items := itemsOf(&n, 1000, 500, time.Now().Add(time.Hour).UnixMilli())
	items[10] = items[3] // a repetition finds what the first one put
	positions, err := ix.Ensure(ctx, items)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range positions {
		if want := (schedule.Position{}); i != 10 && p != want || i == 10 && (p.Place != schedule.Delayed || p.Due != items[3].Due) {
			t.Errorf("element %d was %+v", i, p)
		}
	}
	if positions, err = ix.Ensure(ctx, items); err != nil {
		t.Fatal(err)
	}
	for i, p := range positions {
		if p.Place != schedule.Delayed || p.Due != items[i].Due {
			t.Errorf("element %d is %+v, want delayed to %d", i, p, items[i].Due)
		}
	}
	used := 0
	for shard := range ix.Shards() {
		s, err := ix.Stats(ctx, shard)
		if err != nil {
			t.Fatal(err)
		}
		if s.Delayed > 0 {
			used++
		}
	}
	if used != 16 {
		t.Errorf("1000 items of 500 lanes are in %d of 16 shards", used)
	}
	// One shard that is lost fails the call; the others' answers stand.
	if err := ix.Reset(ctx, 5, 99); err != nil {
		t.Fatal(err)
	}
	refs := make([]schedule.Ref, len(items))
	for i := range items {
		refs[i] = items[i].Ref()
	}
	positions, err = ix.Cancel(ctx, refs)
	if !errors.Is(err, schedule.ErrLost) || !strings.Contains(fmt.Sprint(err), "shard 5") {
		t.Fatalf("cancel with a lost shard: %v", err)
	}
	answered := 0
	for _, p := range positions {
		if p.Place == schedule.Delayed {
			answered++
		}
	}
	if answered < 900 || answered == 1000 {
		t.Errorf("%d of 1000 were answered beside a lost shard", answered)
	}
}

func TestBehindSentinel(t *testing.T) {
	needsServer(t)
	set := testserver.NewSentinel(t, testserver.SentinelOptions{})
	server, sentinel := set.Servers[0].URL, set.Sentinels[0]
	ix := openAs(t, redisq.Options{URL: "redis+sentinel://" + sentinel + "/payments/3"})
	reset(t, ix, 1)
	n, token := 0, 0
	fill(t, ix, &n, 3, 1, 1)
	if got := claim(t, ix, &token, 3).Leases; len(got) != 3 {
		t.Errorf("claimed %d of 3", len(got))
	}
	direct := openAs(t, redisq.Options{URL: server + "/3"})
	if generation, err := direct.Generation(context.Background(), 0); generation != 1 || err != nil {
		t.Errorf("the server itself has generation %d in database 3, %v", generation, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := redisq.Open(ctx, redisq.Options{URL: "redis+sentinel://" + sentinel + "/unknown"}); err == nil {
		t.Error("a master that Sentinel does not know was found")
	}
}
