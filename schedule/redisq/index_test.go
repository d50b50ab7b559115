package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// TestCallsSpanShards checks that a call over several shards answers each element in its place, and returns
// the other shards' replies if one shard fails.
func TestCallsSpanShards(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedCluster(t).URL(), 0)
	reset(t, ix, 1)
	ctx := context.Background()
	n := 0
	items := itemsOf(&n, 1000, 500, time.Now().Add(time.Hour).UnixMilli())
	items[10] = items[3] // the repetition finds the first one's item
	for again := range 2 {
		for i, p := range ensure(t, ix, items...) {
			want := schedule.Position{Place: schedule.Delayed, Due: items[i].Due}
			if again == 0 && i != 10 {
				want = schedule.Position{}
			}
			if p != want {
				t.Errorf("element %d was %+v, want %+v", i, p, want)
			}
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
	// One lost shard fails the call. The replies of the others stay.
	if err := ix.Reset(ctx, 5, 99); err != nil {
		t.Fatal(err)
	}
	refs := make([]schedule.Ref, len(items))
	for i := range items {
		refs[i] = items[i].Ref()
	}
	positions, err := ix.Cancel(ctx, refs)
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
		t.Errorf("%d of 1000 elements were answered although one shard is lost", answered)
	}
}

// TestMemoryBudget bounds the memory that a delayed item takes in the two keys that have it.
func TestMemoryBudget(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	n := 0
	const items = 20_000
	for range items / schedule.MaxBatch {
		ensure(t, ix, itemsOf(&n, schedule.MaxBatch, 1000, time.Now().Add(time.Hour).UnixMilli())...)
	}
	var all int64
	for _, name := range []string{"DELAY", "RECORDS"} {
		all += do(t, ix, "memory", "usage", ix.Key(0, name), "samples", 0).(int64)
	}
	if per := all / items; per > 250 {
		t.Errorf("a delayed item costs %d bytes; the budget is 250", per)
	}
}

// TestFlushedScriptsAreSentAgain flushes the scripts of every node of a Cluster. e2e/faults does it on a
// single server.
func TestFlushedScriptsAreSentAgain(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedCluster(t).URL(), 0)
	s := queuetest.NewTranscript(t, harness(t, ix))
	for _, name := range []string{"a", "b", "c"} {
		err := ix.Client().(*redis.ClusterClient).ForEachMaster(t.Context(),
			func(ctx context.Context, c *redis.Client) error {
				return c.ScriptFlush(ctx).Err()
			})
		if err != nil {
			t.Fatal(err)
		}
		ensure := "ensure " + name + "1.." + name + "9\n"
		if got := s.Play(ensure + "drain 9\n"); !strings.Contains(got, "all that a scan met, once") {
			t.Fatal(got)
		}
	}
}

func TestMetrics(t *testing.T) {
	needsServer(t)
	registry, raw := prometheus.NewRegistry(), testserver.SharedRedis(t)
	ix := openAs(t, redisq.Options{URL: raw, Registerer: registry, Prefix: "metrics1"})
	reset(t, ix, 1)
	ix.SetGeneration(2)
	if _, err := ix.Stats(context.Background(), 0); !errors.Is(err, schedule.ErrLost) {
		t.Fatal(err)
	}
	got := make(map[string]string)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			calls, failed := m.GetHistogram().GetSampleCount(), m.GetCounter().GetValue()
			if n := float64(calls) + failed; n > 0 {
				got[f.GetName()] += fmt.Sprintf("%s %g, ", m.GetLabel()[0].GetValue(), n)
			}
		}
	}
	want := map[string]string{
		"dispatcher_index_call_duration_seconds": "open 1, reset 1, stats 1, ",
		"dispatcher_index_call_errors_total":     "stats 1, ",
	}
	if !maps.Equal(got, want) {
		t.Errorf("metrics are %v, want %v", got, want)
	}
}

// TestRemoveRemovesOneIndexOnly checks that Remove deletes all keys of a temporary index and no others.
func TestRemoveRemovesOneIndexOnly(t *testing.T) {
	needsServer(t)
	ctx := context.Background()
	url := testserver.StartRedis(t) // not shared, because the test counts keys
	const shards = 3
	kept := openAs(t, redisq.Options{URL: url, Prefix: "lent2"})
	reset(t, kept, 1)
	n := 0
	due := time.Now().Add(time.Hour).UnixMilli()
	ensure(t, kept, itemsOf(&n, 10, 3, due)...)
	do(t, kept, "SET", "lent:foreign", "1")
	before := keysOn(t, kept)

	lent := openAs(t, redisq.Options{URL: url, Prefix: "lent", Shards: shards})
	const uses = "ensure a1..a50,lane=#,due=1h b1..b50,lane=#\nclaim max=5\nacquire *,lock=k\n"
	queuetest.NewTranscript(t, harness(t, lent)).Play(uses)
	if got := keysOn(t, lent); len(got) < len(before)+shards*3 {
		t.Fatalf("the index has hardly any keys: %q", got)
	}
	if err := redisq.Remove(ctx, url, "lent", shards); err != nil {
		t.Fatal(err)
	}
	if got := keysOn(t, kept); !slices.Equal(got, before) {
		t.Errorf("left are %q, not %q", got, before)
	}
	// Removing an absent index is no error. A wrong prefix must never remove everything.
	if err := redisq.Remove(ctx, url, "lent", shards); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for _, prefix := range []string{"", "a{b", "*"} {
		if err := redisq.Remove(ctx, url, prefix, shards); err == nil {
			t.Errorf("the prefix %q is accepted", prefix)
		}
	}
}

func keysOn(t *testing.T, ix *redisq.Index) []string {
	t.Helper()
	keys, err := ix.Client().Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(keys)
	return keys
}

// TestHintsBetweenProcesses checks that hints of one process reach another, and that a broken subscription is
// replaced, with a hint for every shard.
func TestHintsBetweenProcesses(t *testing.T) {
	needsServer(t)
	o := redisq.Options{URL: testserver.StartRedis(t), Shards: 3} // not shared: its subscriptions are cut
	writer, reader := openAs(t, o), openAs(t, o)
	reset(t, writer, 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- reader.Run(ctx) }()
	all := func(what string) {
		t.Helper()
		missing := map[int]bool{0: true, 1: true, 2: true}
		for len(missing) > 0 {
			select {
			case shard := <-reader.Hints():
				delete(missing, shard)
			case <-time.After(time.Minute):
				t.Fatalf("%s: no hint for %v", what, missing)
			}
		}
	}
	all("the first subscription")
	n := 0
	ensure(t, writer, itemsOf(&n, 100, 100, 1)...)
	all("an earlier head")
	for range 2 {
		do(t, writer, "client", "kill", "type", "pubsub")
		all("a subscription that was cut")
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("Run did not return")
	}
}
