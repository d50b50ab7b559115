package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// The ids are members of one sorted set, scored by their due milliseconds, under a name that says so; nothing
// expires.
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
		acquire(t, ix, l, due)
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

// Calls spread over shards answer each element in its place, and refuse nothing half.
func TestCallsSpanShards(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedCluster(t).URL(), 0)
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

// What a delayed item costs is what its members of the two keys take.
func TestMemoryBudget(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n := 0
	const items = 20_000
	fill(t, ix, &n, items, 1000, time.Now().Add(time.Hour).UnixMilli())
	var all int64
	for _, name := range []string{"DELAY", "RECORDS"} {
		all += do(t, ix, "memory", "usage", ix.Key(0, name), "samples", 0).(int64)
	}
	if per := all / items; per > 250 {
		t.Errorf("a delayed item costs %d bytes; the budget is 250", per)
	}
}

// Every node of a Cluster forgets its scripts; e2e/faults does it to a server alone.
func TestFlushedScriptsAreSentAgain(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedCluster(t).URL(), 0)
	reset(t, ix, 1)
	n, token := 0, 0
	for range 3 {
		err := ix.Client().(*redis.ClusterClient).ForEachMaster(t.Context(), func(ctx context.Context, c *redis.Client) error {
			return c.ScriptFlush(ctx).Err()
		})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, ix, &n, 100, 100, 1)
		leases := claim(t, ix, &token, 256).Leases
		if len(leases) == 0 {
			t.Fatal("nothing was claimed")
		}
		settleAll(t, ix, leases)
	}
}

// Under maxmemory what drains goes on, and what adds is refused whole.
func TestFullServer(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) { drainsWhileFull(t, open(t, url, 1)) }, "--maxmemory-policy", "noeviction")
}

func drainsWhileFull(t *testing.T, ix *redisq.Index) {
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	fill(t, ix, &n, 2000, 4, 1)
	for range 8 {
		settleAll(t, ix, claim(t, ix, &token, 64).Leases)
	}
	held := claim(t, ix, &token, 60).Leases
	mark := horizon(t, ix, 24*time.Hour, "loader")
	before := stats(t, ix)
	do(t, ix, "config", "set", "maxmemory", "1mb")
	items := itemsOf(&n, 500, 4, 1)
	if _, err := ix.Ensure(ctx, items); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Fatalf("ensure on a full server: %v, want OOM", err)
	}
	if after := stats(t, ix); after.Delayed != before.Delayed || after.Ready != before.Ready {
		t.Fatalf("a refused ensure changed %+v to %+v", before, after)
	}
	// It takes no items, so its watermark does not say that it has them.
	if _, err := ix.Loaded(ctx, 0, "loader", mark.At); err == nil || errors.Is(err, schedule.ErrLost) {
		t.Fatalf("loaded on a full server: %v", err)
	}
	if _, err := ix.MoveWatermark(ctx, 0, schedule.Advance{Horizon: time.Hour, After: "loader", Token: "next"}); err == nil {
		t.Fatal("a full server's watermark was moved")
	}
	if got, err := ix.Watermark(ctx, 0); err != nil || got.At != mark.At || got.Loader != "loader" {
		t.Fatalf("a full server's watermark: %+v, %v; want %+v", got, err, mark)
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
	settleAll(t, ix, held[2:])
	pass(t, ix, 5*time.Minute)
	if c := claim(t, ix, &token, 64); c.Reaped != 1 || len(c.Leases) == 0 {
		t.Fatalf("claim on a full server: %d reaped, %d leased", c.Reaped, len(c.Leases))
	}
	do(t, ix, "config", "set", "maxmemory", "0")
	ensure(t, ix, items...)
}

func TestMetrics(t *testing.T) {
	needsServer(t)
	registry, raw := prometheus.NewRegistry(), testserver.SharedRedis(t)
	ix := openAs(t, redisq.Options{URL: raw, Registerer: registry, Prefix: "metrics1"})
	openAs(t, redisq.Options{URL: raw, Registerer: registry, Prefix: "metrics2"})
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

// Where the server's clock goes back a little the index's stands still, also over a reset, and the sequence
// never goes back; where it goes back further it is followed.
func TestClockStandsStillOrFollows(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n, token := 0, 0
	first := claim(t, ix, &token, 0)
	ix.Advance(-4 * time.Second)
	fill(t, ix, &n, 1, 1, first.Now-1)
	second := claim(t, ix, &token, 1)
	if second.Now != first.Now || second.Seq <= first.Seq || len(second.Leases) != 1 {
		t.Errorf("after a small step back the clock went from %d to %d, the sequence from %d to %d, and %d were leased",
			first.Now, second.Now, first.Seq, second.Seq, len(second.Leases))
	}
	reset(t, ix, 2)
	if third := claim(t, ix, &token, 0); third.Now < second.Now || third.Seq <= second.Seq {
		t.Errorf("over a reset the clock went from %d to %d, the sequence from %d to %d", second.Now, third.Now, second.Seq, third.Seq)
	}
	ix.Advance(-time.Hour)
	fourth := claim(t, ix, &token, 0)
	if back := second.Now - fourth.Now; back < 3590_000 || back > 3604_000 {
		t.Errorf("after an hour's step back the clock went back by %d ms", back)
	}
	// From here on it goes as the server's does.
	ix.Advance(7 * time.Second)
	if fifth := claim(t, ix, &token, 0); fifth.Now < fourth.Now+7000 || fifth.Now > fourth.Now+17_000 {
		t.Errorf("7 s later it is %d ms later", fifth.Now-fourth.Now)
	}
}

// A jump moves no data: the ends of leases are kept by a clock that does not jump.
func TestJumpMovesNoData(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n, token := 0, 0
	fill(t, ix, &n, 60, 60, 1)
	claim(t, ix, &token, 60)
	ends := do(t, ix, "zrange", ix.Key(0, "LEASES"), 0, -1, "withscores").([]any)
	for _, d := range []time.Duration{-time.Hour, time.Hour} {
		ix.Advance(d)
		claim(t, ix, &token, 0)
		after := do(t, ix, "zrange", ix.Key(0, "LEASES"), 0, -1, "withscores").([]any)
		if len(ends) == 0 || !reflect.DeepEqual(after, ends) {
			t.Errorf("a jump of %s took the leases from %v to %v", d, ends, after)
		}
	}
}
