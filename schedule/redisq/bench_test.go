package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// BenchmarkIndex measures one caller on a server of its own: ensure by the thousand, claim and settle by 64, beside so
// many pending items in so many lanes. The medians are of whole calls. What a pending item takes of the server's memory is measured
// beside it. DISPATCHER_BENCH_PENDING and DISPATCHER_BENCH_LANES are lists of other numbers, as make bench-scale gives.
func BenchmarkIndex(b *testing.B) {
	for _, pending := range queuetest.BenchSizes(b, "DISPATCHER_BENCH_PENDING", 1_000, 1_000_000) {
		for _, lanes := range queuetest.BenchSizes(b, "DISPATCHER_BENCH_LANES", 1, 1_000) {
			b.Run(fmt.Sprintf("pending=%d/lanes=%d", pending, lanes), func(b *testing.B) { bench(b, pending, lanes) })
		}
	}
}

func bench(b *testing.B, pending, lanes int) {
	url := testserver.StartRedis(b)
	ix := open(b, url, 1)
	reset(b, ix, 1)
	limit(b, ix, lanes)
	now := time.Now().UnixMilli() - 2000 // the due times of a thousand items are a second apart
	n := 0
	empty := usedMemory(b, url)
	fill(b, ix, &n, pending, lanes, now+3600_000)
	perItem := float64(usedMemory(b, url)-empty) / float64(pending)
	cycles(b, ix, &n, lanes, now)
	b.ReportMetric(perItem, "B/pending")
}

// BenchmarkKept is the same in a thousand lanes, beside ten thousand that have something ready and keep it back.
func BenchmarkKept(b *testing.B) {
	const lanes, kept = 1000, 10_000
	for _, how := range append([]string{"none"}, queuetest.Keeps()...) {
		b.Run(how, func(b *testing.B) {
			ix := open(b, testserver.StartRedis(b), 1)
			reset(b, ix, 1)
			limit(b, ix, lanes)
			if how != "none" {
				queuetest.Keep(b, harness(b, ix), how, lanes+1, kept)
			}
			n := 0
			cycles(b, ix, &n, lanes, time.Now().UnixMilli()-2000+ix.Offset())
		})
	}
}

// limit gives the first lanes a limit that is never reached.
func limit(b *testing.B, ix *redisq.Index, lanes int) {
	b.Helper()
	for first := 0; first < lanes; first += schedule.MaxBatch {
		var limits []schedule.LaneSetting
		for lane := first; lane < min(first+schedule.MaxBatch, lanes); lane++ {
			limits = append(limits, schedule.LaneSetting{Lane: int64(lane + 1), Limit: 1000, Version: 1})
		}
		if err := ix.SetLanes(context.Background(), limits); err != nil {
			b.Fatal(err)
		}
	}
}

// cycles ensures, claims and settles, and reports how long calls took.
func cycles(b *testing.B, ix *redisq.Index, n *int, lanes int, now int64) {
	b.Helper()
	ctx := context.Background()
	var ensures, claims, settles []time.Duration
	timed := func(into *[]time.Duration, call func() error) {
		began := time.Now()
		if err := call(); err != nil {
			b.Fatal(err)
		}
		*into = append(*into, time.Since(began))
	}
	token := 0
	b.ResetTimer()
	for b.Loop() {
		items := itemsOf(n, 960, lanes, now)
		timed(&ensures, func() error { _, err := ix.Ensure(ctx, items); return err })
		// What is due is promoted first, so that the claims that follow are measured by themselves.
		claim(b, ix, &token, 0)
		for left := len(items); left > 0; {
			var claimed schedule.Claimed
			timed(&claims, func() error { claimed = claim(b, ix, &token, 64); return nil })
			if len(claimed.Leases) == 0 {
				b.Fatal("nothing was claimed")
			}
			left -= len(claimed.Leases)
			done := make([]schedule.Settlement, len(claimed.Leases))
			for i, l := range claimed.Leases {
				done[i] = schedule.Settlement{Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: schedule.Answered}
			}
			timed(&settles, func() error { _, err := ix.Settle(ctx, done); return err })
		}
	}
	b.ReportMetric(0, "ns/op")
	report(b, "ensure-960", ensures, 960)
	report(b, "claim-64", claims, 64)
	report(b, "settle-64", settles, 64)
}

// usedMemory is what the server says that it has allocated.
func usedMemory(b *testing.B, url string) (bytes int64) {
	b.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(options)
	text, err := client.Info(context.Background(), "memory").Result()
	if err = errors.Join(err, client.Close()); err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, found := strings.CutPrefix(line, "used_memory:"); found {
			if bytes, err = strconv.ParseInt(strings.TrimSpace(value), 10, 64); err != nil {
				b.Fatal(err)
			}
			return bytes
		}
	}
	b.Fatal("INFO names no used_memory")
	return 0
}

func report(b *testing.B, name string, times []time.Duration, n int) {
	slices.Sort(times)
	median, p99 := times[len(times)/2], times[len(times)*99/100]
	b.ReportMetric(float64(median.Microseconds()), name+"-p50-us")
	b.ReportMetric(float64(p99.Microseconds()), name+"-p99-us")
	b.ReportMetric(float64(median.Nanoseconds())/1000/float64(n), name+"-us/item")
}

// itemsOf returns new items, spread over the lanes.
func itemsOf(n *int, count, lanes int, due int64) []schedule.Item {
	items := make([]schedule.Item, count)
	for i := range items {
		*n++
		items[i] = schedule.Item{ID: id(*n), Lane: int64(*n%lanes + 1), Due: due + int64(*n%1000)}
	}
	return items
}

// fill ensures so many items that are due in an hour.
func fill(tb testing.TB, ix *redisq.Index, n *int, count, lanes int, due int64) {
	tb.Helper()
	for left := count; left > 0; left -= schedule.MaxBatch {
		if _, err := ix.Ensure(context.Background(), itemsOf(n, min(left, schedule.MaxBatch), lanes, due)); err != nil {
			tb.Fatalf("ensure: %v", err)
		}
	}
}

func claim(tb testing.TB, ix *redisq.Index, token *int, most int) schedule.Claimed {
	tb.Helper()
	*token++
	claimed, err := ix.Claim(context.Background(), 0, schedule.ClaimRequest{
		Owner: "owner", Token: fmt.Sprintf("token-%d", *token), Max: most, MaxUncertain: most, MaxTimingOut: most,
		Lease: 30 * time.Second, LaneLimit: 1000,
	})
	if err != nil {
		tb.Fatalf("claim: %v", err)
	}
	return claimed
}

// id returns the n-th id of a test.
func id(n int) string { return fmt.Sprintf("01K%023d", n) }

// reset empties every shard under the generation and opens it.
func reset(tb testing.TB, ix *redisq.Index, generation int64) {
	tb.Helper()
	ctx := context.Background()
	ix.SetGeneration(generation)
	for shard := range ix.Shards() {
		if err := ix.Reset(ctx, shard, generation); err != nil {
			tb.Fatalf("reset: %v", err)
		}
		if err := ix.Open(ctx, shard); err != nil {
			tb.Fatalf("open shard: %v", err)
		}
	}
}
