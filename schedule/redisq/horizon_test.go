package redisq_test

import (
	"context"
	"fmt"
	"testing"
	"time"

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

// What is due beyond the watermark costs the server nothing: it is told of each, and keeps none.
func TestNothingIsKeptBeyondTheWatermark(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	horizon(t, ix, 10*time.Minute, "loader")
	n := 0
	fill(t, ix, &n, 100, 10, time.Now().Add(5*time.Minute).UnixMilli())
	members := func() (text string) {
		for _, name := range []string{"DELAY", "READY", "RECORDS", "LANES", "BLOCKED", "META"} {
			key := ix.Key(0, name)
			text += fmt.Sprint(name, do(t, ix, "eval", `local t = redis.call('TYPE', KEYS[1]).ok
				return redis.call(t == 'hash' and 'HLEN' or 'ZCARD', KEYS[1])`, 1, key), " ")
		}
		return text
	}
	before := members()
	fill(t, ix, &n, 2000, 1000, time.Now().Add(10*time.Hour).UnixMilli())
	if after := members(); after != before {
		t.Errorf("with items beyond the watermark the keys have %s members, before %s", after, before)
	}
}

// The fields of the watermark are gone once everything is loaded again: the scripts then have nothing to
// compare.
func TestNoWatermarkIsNoField(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	expect := func(want int, when string) {
		t.Helper()
		got := 0
		for _, value := range do(t, ix, "hmget", ix.Key(0, "META"), "watermark", "loaded").([]any) {
			if value != nil {
				got++
			}
		}
		if got != want {
			t.Errorf("%s it has %d fields, want %d", when, got, want)
		}
	}
	expect(0, "when the shard is new")
	horizon(t, ix, time.Hour, "one")
	horizon(t, ix, 0, "two")
	expect(2, "while the shard is loaded")
	if _, err := ix.Loaded(context.Background(), 0, "two", schedule.Forever); err != nil {
		t.Fatal(err)
	}
	expect(0, "when the shard has everything")
}

// A watermark that cannot be read leaves nothing out. An item that has lost its place, or whose record cannot
// be read, is not given one beyond the watermark.
func TestDamageAroundTheWatermark(t *testing.T) {
	needsServer(t)
	ctx := context.Background()
	ix := openNew(t)
	n := 0
	items := itemsOf(&n, 3, 1, time.Now().Add(time.Hour).UnixMilli())
	ensure(t, ix, items...)
	horizon(t, ix, 10*time.Minute, "loader")
	do(t, ix, "zrem", ix.Key(0, "DELAY"), items[0].ID, items[1].ID)
	do(t, ix, "hset", ix.Key(0, "RECORDS"), items[1].ID, "nonsense")
	ensure(t, ix, items...)
	if left := do(t, ix, "hlen", ix.Key(0, "RECORDS")); left != int64(1) {
		t.Errorf("%d records are left; want that of the item which had its place", left)
	}
	audit(t, ix, 0)

	do(t, ix, "hset", ix.Key(0, "META"), "watermark", "nonsense")
	if w, err := ix.Watermark(ctx, 0); err != nil || w.At != schedule.Forever {
		t.Errorf("a watermark that cannot be read: %+v, %v", w, err)
	}
	ensure(t, ix, items[0])
	if p := ensure(t, ix, items[0])[0]; p.Place != schedule.Delayed {
		t.Errorf("with a watermark that cannot be read an item is %+v", p)
	}
}
