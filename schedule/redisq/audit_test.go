package redisq_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// audit runs a whole audit of shard 0 and expects so many repairs; -1: any number.
func audit(t testing.TB, ix *redisq.Index, want int) int {
	t.Helper()
	repaired := 0
	for cursor := ""; ; {
		page, err := ix.Audit(context.Background(), 0, cursor)
		if err != nil {
			t.Fatalf("audit: %v", err)
		}
		repaired += page.Repaired
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if want >= 0 && repaired != want {
		t.Fatalf("the audit repaired %d, want %d", repaired, want)
	}
	return repaired
}

// After any one structure was damaged at random an audit restores what the promises need: each item in one place, each
// lane's count right, everything claimable once.
func TestAuditMendsDamage(t *testing.T) {
	eachServer(t, func(t *testing.T, start starter) { mendsAllDamage(t, start(t)) })
}

func mendsAllDamage(t *testing.T, url string) {
	for _, name := range []string{
		"DELAY", "READY", "RECORDS", "UNPROVEN", "ANSWERING", "TIMING_OUT", "BLOCKED", "HELD", "BREAKERS", "LANES", "LEASES", "CLAIMS", "OWNERS", "SEEN", "LOCKS", "WAITERS", "WAITING",
	} {
		for _, how := range []string{"drop", "halve", "scramble", "stray"} {
			t.Run(name+"/"+how, func(t *testing.T) { mendsDamage(t, open(t, url, 1), name, how) })
		}
	}
}

func mendsDamage(t *testing.T, ix *redisq.Index, name, how string) {
	reset(t, ix, 1)
	ctx := context.Background()
	n, token := 0, 0
	fill(t, ix, &n, 60, 5, 1)
	leases := claim(t, ix, &token, 12).Leases
	fill(t, ix, &n, 300, 5, time.Now().Add(10*time.Minute).UnixMilli())
	for _, l := range leases[:3] {
		if _, err := ix.Acquire(ctx, []schedule.LockRequest{{Lock: "k", ID: l.ID, Lane: l.Lane, Token: l.Token, Until: l.Until}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.SetLanes(ctx, []schedule.LaneSetting{{Lane: 2, PausedUntil: time.Now().Add(time.Minute).UnixMilli(), Version: 1}}); err != nil {
		t.Fatal(err)
	}
	damage(t, ix, name, how)

	// What SQL knows comes back by the sweep; then the audit may mend, and a second one finds nothing.
	audit(t, ix, -1)
	n = 0
	fill(t, ix, &n, 360, 5, time.Now().UnixMilli())
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
	s, err := ix.Stats(ctx, 0)
	if err != nil || s.Delayed+s.Ready+s.Leased != int64(len(places)) || len(places) < 360 {
		t.Fatalf("after the audit %d items: %+v, %v", len(places), s, err)
	}
	// All of them can be claimed, each once, though some leases have to end first.
	pass(t, ix, time.Hour)
	claimed := make(map[string]bool)
	until(t, "all items to be claimed", func() bool {
		pass(t, ix, time.Second)
		c := claim(t, ix, &token, 256)
		for _, l := range c.Leases {
			if claimed[l.ID] {
				t.Fatalf("%s was claimed twice", l.ID)
			}
			claimed[l.ID] = true
		}
		settleAll(t, ix, c.Leases, false)
		return len(claimed) >= len(places)
	})
	audit(t, ix, 0)
}

// damage spoils one of the shard's structures.
func damage(t *testing.T, ix *redisq.Index, name, how string) {
	t.Helper()
	ctx := context.Background()
	key, c := ix.Key(0, name), ix.Client()
	kind, err := c.Type(ctx, key).Result()
	if err != nil {
		t.Fatal(err)
	}
	hash := kind == "hash"
	if how == "drop" {
		do(t, ix, "del", key)
		return
	}
	if how == "stray" {
		if hash {
			do(t, ix, "hset", key, id(9999), "000000001f1")
		} else if kind == "zset" {
			do(t, ix, "zadd", key, 5, id(9999))
			do(t, ix, "zadd", key, 0, "11f000000001"+id(9998))
		}
		return
	}
	var members []string
	if hash {
		members, err = c.HKeys(ctx, key).Result()
	} else if kind == "zset" {
		members, err = c.ZRange(ctx, key, 0, -1).Result()
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, member := range members {
		if i%2 == 0 {
			continue
		}
		switch {
		case how == "halve" && hash:
			do(t, ix, "hdel", key, member)
		case how == "halve":
			do(t, ix, "zrem", key, member)
		case hash:
			do(t, ix, "hset", key, member, fmt.Sprintf("%x", rand.Uint64()))
		default:
			do(t, ix, "zadd", key, fmt.Sprint(rand.Int64N(1<<53)), member)
		}
	}
}
