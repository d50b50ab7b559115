package redisq_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// horizon moves every shard's watermark to so long from now.
func horizon(t testing.TB, ix *redisq.Index, d time.Duration, token string) schedule.Watermark {
	t.Helper()
	var last schedule.Watermark
	for shard := range ix.Shards() {
		before, err := ix.Watermark(context.Background(), shard)
		if err != nil {
			t.Fatal(err)
		}
		last, err = ix.MoveWatermark(context.Background(), shard, schedule.Advance{Horizon: d, After: before.Loader, Token: token})
		if err != nil || last.Loader != token {
			t.Fatalf("move the watermark: %+v, %v", last, err)
		}
	}
	return last
}

// memoryOf is what all keys of the index take, by the server's own count.
func memoryOf(t testing.TB, ix *redisq.Index, shard int) int64 {
	t.Helper()
	ctx, sum := context.Background(), int64(0)
	keys, err := ix.Client().Keys(ctx, strings.TrimSuffix(ix.Key(shard, "META"), "meta")+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		n, err := ix.Client().MemoryUsage(ctx, key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}

// What is due beyond the watermark costs the server nothing: it is told of each, and keeps none.
func TestNothingIsKeptBeyondTheWatermark(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		const many = 50_000
		ix := open(t, start(t), 1)
		reset(t, ix, 1)
		horizon(t, ix, 10*time.Minute, "loader")
		n := 0
		fill(t, ix, &n, 1000, 10, time.Now().Add(5*time.Minute).UnixMilli())
		before := memoryOf(t, ix, 0)
		fill(t, ix, &n, many, 1000, time.Now().Add(10*time.Hour).UnixMilli())
		after := memoryOf(t, ix, 0)
		s, err := ix.Stats(context.Background(), 0)
		if err != nil || s.Delayed != 1000 {
			t.Errorf("%d are delayed, %v; want the thousand that is due within the horizon", s.Delayed, err)
		}
		if after-before > many/50 {
			t.Errorf("%d items beyond the watermark take %d bytes", many, after-before)
		}
		t.Logf("1000 items within the horizon take %d bytes; %d beyond it take %d more", before, many, after-before)
	})
}

// The fields of the watermark are gone once everything is loaded again: the scripts then have nothing to compare.
func TestNoWatermarkIsNoField(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		ix := open(t, start(t), 1)
		reset(t, ix, 1)
		fields := func() int {
			t.Helper()
			n := 0
			for _, field := range []string{"watermark", "loaded"} {
				has, err := ix.Client().HExists(context.Background(), ix.Key(0, "META"), field).Result()
				if err != nil {
					t.Fatal(err)
				}
				if has {
					n++
				}
			}
			return n
		}
		if n := fields(); n != 0 {
			t.Errorf("a new shard has %d fields", n)
		}
		horizon(t, ix, time.Hour, "one")
		horizon(t, ix, 0, "two")
		if n := fields(); n != 2 {
			t.Errorf("a shard that is being loaded has %d fields, want 2", n)
		}
		if _, err := ix.Loaded(context.Background(), 0, "two", schedule.Forever); err != nil {
			t.Fatal(err)
		}
		if n := fields(); n != 0 {
			t.Errorf("a shard that has everything has %d fields", n)
		}
	})
}

// A program that knows of no watermark writes beyond it: what it wrote is as good as any other item.
func TestAnOlderProgramWritesBeyondTheWatermark(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		ix := open(t, start(t), 1)
		reset(t, ix, 1)
		n, token := 0, 0
		fill(t, ix, &n, 1, 1, time.Now().Add(time.Hour).UnixMilli()) // before there is a watermark, as its scripts do after
		horizon(t, ix, 10*time.Minute, "loader")
		audit(t, ix, 0)
		if s, err := ix.Stats(context.Background(), 0); err != nil || s.Delayed != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		pass(t, ix, time.Hour+time.Second)
		if c := claim(t, ix, &token, 10); len(c.Leases) != 1 {
			t.Errorf("%d were claimed when it was due, want 1", len(c.Leases))
		}
	})
}

// A watermark that cannot be read leaves nothing out. An item that has lost its place, or whose record cannot be read, is not
// given one beyond the watermark.
func TestDamageAroundTheWatermark(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		ctx := context.Background()
		ix := open(t, start(t), 1)
		reset(t, ix, 1)
		n := 0
		due := time.Now().Add(time.Hour).UnixMilli()
		items := itemsOf(&n, 3, 1, due)
		if _, err := ix.Ensure(ctx, items); err != nil {
			t.Fatal(err)
		}
		horizon(t, ix, 10*time.Minute, "loader")
		do(t, ix, "zrem", ix.Key(0, "DELAY"), items[0].ID)
		do(t, ix, "zrem", ix.Key(0, "DELAY"), items[1].ID)
		do(t, ix, "hset", ix.Key(0, "RECORDS"), items[1].ID, "nonsense")
		if _, err := ix.Ensure(ctx, items); err != nil {
			t.Fatal(err)
		}
		if left, err := ix.Client().HLen(ctx, ix.Key(0, "RECORDS")).Result(); err != nil || left != 1 {
			t.Errorf("%d records are left, %v; want that of the item which had its place", left, err)
		}
		audit(t, ix, 0)

		do(t, ix, "hset", ix.Key(0, "META"), "watermark", "nonsense")
		if w, err := ix.Watermark(ctx, 0); err != nil || w.At != schedule.Forever {
			t.Errorf("a watermark that cannot be read: %+v, %v", w, err)
		}
		if _, err := ix.Ensure(ctx, items[:1]); err != nil {
			t.Fatal(err)
		}
		if p, err := ix.Lookup(ctx, []schedule.Ref{items[0].Ref()}); err != nil || p[0].Place != schedule.Delayed {
			t.Errorf("with a watermark that cannot be read an item is %+v, %v", p, err)
		}
	})
}

// A full server takes no items; so its watermark does not say that it has them.
func TestWatermarkOfAFullServer(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) {
		ctx := context.Background()
		ix := open(t, start(t, "--maxmemory-policy", "noeviction"), 1)
		reset(t, ix, 1)
		horizon(t, ix, 10*time.Minute, "one")
		w := horizon(t, ix, time.Hour, "two")
		do(t, ix, "config", "set", "maxmemory", strconv.Itoa(1<<20/2))
		for what, call := range map[string]func() error{
			"loaded": func() error { _, err := ix.Loaded(ctx, 0, "two", w.At); return err },
			"move": func() error {
				_, err := ix.MoveWatermark(ctx, 0, schedule.Advance{Horizon: time.Hour, After: "two", Token: "three"})
				return err
			},
		} {
			if err := call(); err == nil || errors.Is(err, schedule.ErrLost) {
				t.Errorf("%s on a full server: %v", what, err)
			}
		}
		if got, err := ix.Watermark(ctx, 0); err != nil || got.At != w.At || got.Loaded != w.Loaded || got.Loader != "two" {
			t.Errorf("a full server's watermark: %+v, %v; want %+v", got, err, w)
		}
	})
}

// BenchmarkEnsureBeyond measures what it costs to tell a server of 500 items that it leaves out, beside the same that it takes in.
func BenchmarkEnsureBeyond(b *testing.B) {
	for _, beyond := range []bool{false, true} {
		b.Run("beyond="+strconv.FormatBool(beyond), func(b *testing.B) {
			ix := open(b, testserver.StartRedis(b), 1)
			reset(b, ix, 1)
			if beyond {
				horizon(b, ix, 10*time.Minute, "loader")
			}
			n, due := 0, time.Now().Add(10*time.Hour).UnixMilli()
			var ensures []time.Duration
			b.ResetTimer()
			for b.Loop() {
				items := itemsOf(&n, 500, 1000, due)
				began := time.Now()
				if _, err := ix.Ensure(context.Background(), items); err != nil {
					b.Fatal(err)
				}
				ensures = append(ensures, time.Since(began))
			}
			b.ReportMetric(0, "ns/op")
			report(b, "ensure-500", ensures, 500)
		})
	}
}
