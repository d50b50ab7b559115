package redisq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// After any one structure was damaged at random an audit restores what the promises need: each item in one
// place, each lane's count right, everything claimable once. That a structure is gone altogether is
// TestEachKeyAloneIsLostUnderLoad.
func TestAuditRepairsDamage(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		for _, name := range []string{
			"DELAY", "READY", "RECORDS", "UNPROVEN", "ANSWERING", "TIMING_OUT", "BLOCKED", "HELD", "BREAKERS", "LANES", "LEASES",
			"CLAIMS", "OWNERS", "SEEN", "LOCKS", "WAITERS", "WAITING",
		} {
			for _, how := range []string{"halve", "scramble", "stray"} {
				t.Run(name+"/"+how, func(t *testing.T) {
					t.Parallel()
					repairsDamage(t, open(t, url, 1), name, how)
				})
			}
		}
	})
}

func repairsDamage(t *testing.T, ix *redisq.Index, name, how string) {
	reset(t, ix, 1)
	ctx := context.Background()
	queuetest.Keep(t, harness(t, ix), "open", 4, 2)
	n, token := 0, 0
	fillAll(t, ix, &n, &token)
	damage(t, ix, name, how)

	// What SQL knows comes back by the sweep; then the audit may repair, and a second one finds nothing.
	audit(t, ix, -1)
	n = 0
	fill(t, ix, &n, 360, damagedLanes, time.Now().UnixMilli())
	audit(t, ix, -1)
	audit(t, ix, 0)
	places := make(map[string]int)
	for cursor := ""; ; {
		page, err := ix.Scan(ctx, 0, cursor, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Found {
			places[f.ID]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if s := stats(t, ix); s.Delayed+s.Ready+s.Leased != int64(len(places)) || len(places) < 360 {
		t.Fatalf("after the audit %d items: %+v", len(places), s)
	}
	// All of them can be claimed, though some leases have to end first.
	pass(t, ix, 2*time.Minute)
	claimAll(t, ix, &token, len(places))
	audit(t, ix, 0)
}

// damagedLanes is how many lanes fillAll spreads its items over.
const damagedLanes = 12

// fillAll gives every structure of the shard at least two members. Lanes 4 and 5 have an open breaker already.
func fillAll(t *testing.T, ix *redisq.Index, n, token *int) {
	t.Helper()
	ctx := context.Background()
	request := schedule.ClaimRequest{Owner: "other", Token: "other", Max: 1, Lease: time.Minute, LaneLimit: 1000}
	if _, err := ix.Claim(ctx, 0, request); err != nil {
		t.Fatalf("claim: %v", err)
	}
	fill(t, ix, n, 60, damagedLanes, 1)
	// Each of the ten other lanes gives four of its five items, and has room for the fifth once these are settled.
	leases := claim(t, ix, token, 40).Leases
	if len(leases) != 40 {
		t.Fatalf("leased %d, want 40", len(leases))
	}
	fill(t, ix, n, 300, damagedLanes, time.Now().Add(time.Minute).UnixMilli())
	var locks []schedule.Lease
	for i, l := range leases[:6] {
		l.Lock = fmt.Sprint("k", i%2)
		locks = append(locks, l)
	}
	if _, err := ix.Acquire(ctx, locks); err != nil {
		t.Fatalf("acquire: %v", err)
	}
	signals := []schedule.Signal{schedule.NoSignal, schedule.Answered, schedule.TimedOut}
	var done []schedule.Settlement
	for _, l := range leases[8:] {
		done = append(done, schedule.Settlement{
			Item: l.Item, Token: l.Token, Outcome: schedule.Ack, Signal: signals[l.Lane%3],
		})
	}
	if _, err := ix.Settle(ctx, done); err != nil {
		t.Fatalf("settle: %v", err)
	}
	until := time.Now().Add(time.Minute).UnixMilli()
	if err := ix.SetLanes(ctx, []schedule.LaneSetting{
		{Lane: 3, PausedUntil: until, Version: 1}, {Lane: 6, PausedUntil: until, Version: 1},
		{Lane: 7, Every: 20 * time.Millisecond, Version: 1},
	}); err != nil {
		t.Fatal(err)
	}
}

// damage spoils one of the shard's structures, which must have two members or more.
func damage(t *testing.T, ix *redisq.Index, name, how string) {
	t.Helper()
	ctx := context.Background()
	key, c := ix.Key(0, name), ix.Client()
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	hash := kind == "hash"
	if !hash && kind != "zset" {
		t.Fatalf("there is nothing to damage: %s is of the type %s", key, kind)
	}
	if how == "stray" {
		if hash {
			do(t, ix, "hset", key, id(9999), "000000001f1")
		} else {
			do(t, ix, "zadd", key, 5, id(9999))
			do(t, ix, "zadd", key, 0, "11f000000001"+id(9998))
		}
		return
	}
	var members []string
	if hash {
		members, err = c.HKeys(ctx, key).Result()
	} else {
		members, err = c.ZRange(ctx, key, 0, -1).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	var half, scrambled []any
	for i := 1; i < len(members); i += 2 {
		half = append(half, members[i])
		if hash {
			scrambled = append(scrambled, members[i], fmt.Sprintf("%x", rand.Uint64()))
		} else {
			scrambled = append(scrambled, rand.Int64N(1<<53), members[i])
		}
	}
	if half == nil {
		t.Fatalf("there is nothing to damage: %s has %d members, want two", key, len(members))
	}
	words := map[bool]map[string]string{
		true: {"halve": "hdel", "scramble": "hset"}, false: {"halve": "zrem", "scramble": "zadd"},
	}
	if how == "scramble" {
		half = scrambled
	}
	do(t, ix, append([]any{words[hash][how], key}, half...)...)
}
