package redisq_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// TestAuditRepairsDamage damages one structure at random. An audit must restore the promises: each item is in
// one place, each lane's count is right, and every item can be claimed once. TestEachKeyAloneIsLostUnderLoad
// removes whole structures.
func TestAuditRepairsDamage(t *testing.T) {
	eachServer(t, func(t *testing.T, url string) {
		for name := range lostKeys {
			if name == "META" || name == "QUARANTINE" {
				continue // an audit does not read them
			}
			for _, how := range []string{"halve", "scramble", "stray"} {
				t.Run(name+"/"+how, func(t *testing.T) {
					t.Parallel()
					repairsDamage(t, open(t, url, 1), name, how)
				})
			}
		}
	})
}

// repairsDamage plays one case of TestAuditRepairsDamage.
func repairsDamage(t *testing.T, ix *redisq.Index, name, how string) {
	s := queuetest.NewTranscript(t, harness(t, ix))
	s.Play(full)
	damage(t, ix, name, how)
	// The sweep brings back the items of SQL. The first audit may repair, the second must find nothing. All
	// items can be claimed, after some leases have ended.
	s.Play("audit\n" + swept + "audit\n")
	const want = "audit\n  0 repaired\npass 2m\ndrain 96\n  all that a scan met, once\naudit\n  0 repaired\n"
	if got := s.Play(want); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// swept are the items of SQL. Half of the shard's are due.
const swept = `ensure a1..a12,lane=# b1..b12,lane=# c1..c12,lane=# d1..d12,lane=# e1..e12,lane=#
ensure f1..f12,lane=#,due=1m g1..g12,lane=#,due=1m h1..h12,lane=#,due=1m
`

// full gives every structure of the shard at least two members. Lanes 4 and 5 have an open breaker. Each
// other lane leases four of its five items, and has room for the fifth after they are settled.
var full = `adopt x1..x19,lane=4,token=t,until=1m y1..y19,lane=5,token=t,until=1m
settle x1..x19,ack,unanswered y1..y19,ack,unanswered
pass 10s
adopt x20,lane=4,token=t,until=1m y20,lane=5,token=t,until=1m
settle x20,ack,unanswered y20,ack,unanswered
claim owner=other token=other max=1 lease=1m
` + swept + `claim max=40
acquire a1,lock=k0 b1,lock=k1 c1,lock=k0 d1,lock=k1 a2,lock=k0 b2,lock=k1
` + each("settle $3,ack $6,ack $9,ack $12,ack $7,ack,answered $10,ack,answered $8,ack,timedout "+
	"$11,ack,timedout\n") +
	`set 3,pauseduntil=1m,version=1 6,pauseduntil=1m,version=1 7,every=20ms,version=1
`

// each repeats a line for the leased items of each lane.
func each(line string) (lines string) {
	for _, name := range []string{"a", "b", "c", "d"} {
		lines += strings.ReplaceAll(line, "$", name)
	}
	return lines
}

// damage damages one of the shard's structures, which must have at least two members.
func damage(t *testing.T, ix *redisq.Index, name, how string) {
	t.Helper()
	key, c := ix.Key(0, name), ix.Client()
	hash := c.Type(t.Context(), key).Val() == "hash"
	list, add, remove := c.ZRange(t.Context(), key, 0, -1), "zadd", "zrem"
	if hash {
		list, add, remove = c.HKeys(t.Context(), key), "hset", "hdel"
	}
	members, err := list.Result()
	if err != nil || len(members) < 2 {
		t.Fatalf("there is nothing to damage: %s has the members %q, %v", key, members, err)
	}
	spoil := []any{remove, key}
	switch {
	case how == "stray" && hash:
		spoil = []any{add, key, id(9999), "000000001f1"}
	case how == "stray":
		spoil = []any{add, key, 5, id(9999), 0, "11f000000001" + id(9998)}
	case how == "scramble":
		spoil[0] = add
	}
	for i := 1; i < len(members) && how != "stray"; i += 2 {
		switch {
		case how == "halve":
			spoil = append(spoil, members[i])
		case hash:
			spoil = append(spoil, members[i], fmt.Sprintf("%x", rand.Uint64()))
		default:
			spoil = append(spoil, rand.Int64N(1<<53), members[i])
		}
	}
	do(t, ix, spoil...)
}
