package redisq_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// What a lent index leaves behind is removed whole, and what stands beside it stays as it is.
func TestRemoveLeavesNothingOfTheIndexAndAllOfTheRest(t *testing.T) {
	needsServer(t)
	ctx := context.Background()
	url := testserver.StartRedis(t) // whose keys are counted
	const shards = 3
	kept := openAs(t, redisq.Options{URL: url, Prefix: "lent2"})
	reset(t, kept, 1)
	n, token := 0, 0
	due := time.Now().Add(time.Hour).UnixMilli()
	fill(t, kept, &n, 10, 3, due)
	do(t, kept, "SET", "lent:foreign", "1")
	before := keysOn(t, kept)

	lent := openAs(t, redisq.Options{URL: url, Prefix: "lent", Shards: shards})
	reset(t, lent, 1)
	fill(t, lent, &n, 50, 20, due)
	fill(t, lent, &n, 50, 20, 1)
	for _, l := range claim(t, lent, &token, 5).Leases {
		acquire(t, lent, l, due)
	}
	if got := keysOn(t, lent); len(got) < len(before)+shards*3 {
		t.Fatalf("the index has hardly any keys: %q", got)
	}
	if err := redisq.Remove(ctx, url, "lent", shards); err != nil {
		t.Fatal(err)
	}
	if got := keysOn(t, kept); !slices.Equal(got, before) {
		t.Errorf("left are %q, not %q", got, before)
	}
	// Removing what is not there is no mistake; nor may it ever mean everything.
	if err := redisq.Remove(ctx, url, "lent", shards); err != nil {
		t.Errorf("a second time: %v", err)
	}
	for _, prefix := range []string{"", "a{b", "*"} {
		if err := redisq.Remove(ctx, url, prefix, shards); err == nil {
			t.Errorf("the prefix %q is taken", prefix)
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
