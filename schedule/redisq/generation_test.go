package redisq_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// What another build has written is never read as if it were this one's.
func TestOtherLayouts(t *testing.T) {
	needsServer(t)
	ix := open(t, testserver.SharedRedis(t), 1)
	ctx := context.Background()
	reset(t, ix, 7)
	n := 0
	fill(t, ix, &n, 10, 1, 1)
	if generation, err := ix.Generation(ctx, 0); generation != 7 || err != nil {
		t.Fatalf("generation %d, %v, want 7", generation, err)
	}
	for _, older := range []string{"7", "7.1", "7.2", "7.3"} {
		do(t, ix, "hset", ix.Key(0, "META"), "generation", older)
		if generation, err := ix.Generation(ctx, 0); !errors.Is(err, schedule.ErrOlder) {
			t.Errorf("%q is generation %d, %v, want ErrOlder", older, generation, err)
		}
		if _, err := ix.Stats(ctx, 0); !errors.Is(err, schedule.ErrLost) {
			t.Errorf("with %q: %v, want ErrLost", older, err)
		}
	}
	do(t, ix, "hset", ix.Key(0, "META"), "generation", "7.5")
	if _, err := ix.Generation(ctx, 0); !errors.Is(err, schedule.ErrNewer) || !strings.Contains(err.Error(), "upgrade this process") {
		t.Errorf("a newer layout: %v, want an error that says what to do", err)
	}
	if _, err := ix.Stats(ctx, 0); !errors.Is(err, schedule.ErrLost) {
		t.Errorf("a newer layout: %v, want ErrLost", err)
	}
	for _, bad := range []string{"", "x", "7.", "7.x", "7.0", "-7.4", "7.4.4", ".2"} {
		do(t, ix, "hset", ix.Key(0, "META"), "generation", bad)
		if generation, err := ix.Generation(ctx, 0); err == nil {
			t.Errorf("%q is generation %d", bad, generation)
		}
	}
	reset(t, ix, 8)
	if got := do(t, ix, "hget", ix.Key(0, "META"), "generation"); got != "8.4" {
		t.Errorf("the generation is written %q", got)
	}
}

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

// A build that does not keep since when lanes are held may share the index: what it holds is held since a
// time that is not known, and what it holds for longer is held since it was first. An audit forgets holds
// that are over.
func TestHoldsOfAnotherBuild(t *testing.T) {
	needsServer(t)
	ix := openNew(t)
	ensure(t, ix, schedule.Item{ID: id(1), Lane: 1}, schedule.Item{ID: id(2), Lane: 1})
	token := 0
	leases := claim(t, ix, &token, 2).Leases
	hold := func(l schedule.Lease, d time.Duration) {
		t.Helper()
		s := schedule.Settlement{
			Item: l.Item, Token: l.Token, Outcome: schedule.Divert, Signal: schedule.Answered,
			HoldUntil: now(t, ix) + d.Milliseconds(),
		}
		got, err := ix.Settle(context.Background(), []schedule.Settlement{s})
		if err != nil || got[0] != schedule.Applied {
			t.Fatalf("settle: %v, %v", got, err)
		}
	}
	state := func() schedule.LaneState { return laneState(t, ix) }
	hold(leases[0], time.Minute)
	first := state()
	if first.HeldSince == 0 || first.HeldUntil <= first.HeldSince {
		t.Fatalf("held: %+v", first)
	}
	// The other build lengthens the hold, and writes the record of the lane alone.
	record, _ := do(t, ix, "HGET", ix.Key(0, "LANES"), "11").(string)
	do(t, ix, "HSET", ix.Key(0, "HOLDS"), "11", "1 2")
	if got := state(); got.HeldSince != 0 || got.HeldUntil != first.HeldUntil || record == "" {
		t.Errorf("held by another build, record %q: %+v", record, got)
	}
	do(t, ix, "DEL", ix.Key(0, "HOLDS"))
	if got := state(); got.HeldSince != 0 || got.HeldUntil != first.HeldUntil {
		t.Errorf("held by a build that keeps no holds: %+v", got)
	}
	hold(leases[1], 2*time.Minute)
	if got := state(); got.HeldSince < first.HeldSince || got.HeldUntil <= first.HeldUntil {
		t.Errorf("held for longer by this build: %+v", got)
	}
	audit(t, ix, 0)
	if got := state(); got.HeldSince == 0 {
		t.Errorf("an audit forgot a hold that lasts: %+v", got)
	}
	pass(t, ix, 3*time.Minute)
	audit(t, ix, 0)
	if left := do(t, ix, "HLEN", ix.Key(0, "HOLDS")); left != int64(0) {
		t.Errorf("%v holds are kept that are over", left)
	}
}

func laneState(t *testing.T, ix *redisq.Index) schedule.LaneState {
	t.Helper()
	states, err := ix.LaneStates(context.Background(), []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	return states[0]
}
