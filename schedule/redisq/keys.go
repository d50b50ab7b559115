package redisq

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// keyNames has, for each name that scripts use for a key, how the key ends. The steady clock is that of
// lua/include/begin.lua: wall time until the server's clock jumps for the first time.
var keyNames = map[string]string{
	"META":       "meta",               // HASH: generation, seq, clock, skew, armed, virtual, limit, closed, lanes, place, counters
	"DELAY":      "delay",              // ZSET: the delay set, id → due in Unix milliseconds
	"READY":      "ready",              // ZSET of score 0: lane, kind, due, id: kind f or r, or d or e if it is forced
	"RECORDS":    "records",            // HASH: id → due, kind, lane, diverts, lock
	"UNPROVEN":   "runnable:unproven",  // ZSET: lane → virtual time, of lanes with something ready and room for it
	"ANSWERING":  "runnable:answering", // likewise
	"TIMING_OUT": "runnable:timingout", // likewise
	"BLOCKED":    "blocked",            // ZSET: lane with something ready → end of its pause
	"HELD":       "held",               // ZSET: lane with something ready → end of its hold, on the steady clock
	"BREAKERS":   "breakers",           // ZSET: lane whose breaker is open → since when, on the steady clock
	"HOLDS":      "holds",              // HASH: lane with a hold → since and until when, on the steady clock
	"LANES":      "lanes",              // HASH: lane → what is known of it
	"LEASES":     "leases",             // ZSET: id → end of its lease, on the steady clock
	"CLAIMS":     "claims",             // HASH: id → health, lane, token, remembered movement; of leased ones only
	"OWNERS":     "owners",             // HASH: owner → token and ids of its last claim
	"SEEN":       "seen",               // ZSET: owner → time of its last claim, on the steady clock
	"LOCKS":      "locks",              // HASH: lock → until (on the steady clock), id, token; of its heirs, too
	"WAITERS":    "waiters",            // ZSET of score 0: lock, place, id, lane
	"WAITING":    "waiting",            // HASH: id → its entry in waiters; lock → for whom it is kept
	"QUARANTINE": "quarantine",         // HASH: id → what could not be read
}

// A shardKeys makes the names of one shard's keys. The hash tag holds the prefix too, so that several indexes on one
// Cluster do not meet in the same slots.
type shardKeys string

func keysOf(prefix string, shard int) shardKeys {
	return shardKeys(fmt.Sprintf("%s:{%s:%d}:", prefix, prefix, shard))
}

// named returns the keys of those names in their order.
func (k shardKeys) named(names []string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = string(k) + keyNames[name]
	}
	return keys
}

// checkPrefix refuses what would break a key's hash tag or a channel's name.
func checkPrefix(prefix string) error {
	if len(prefix) > 64 || strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("_-.:", r)
	}) {
		return fmt.Errorf("prefix %q: at most 64 letters, digits and any of _ - . : are allowed", prefix)
	}
	return nil
}

// shardOfLane and shardOfLock say where things are. They must never change: SQL knows the number of shards, but not
// which lane is in which.
func shardOfLane(lane int64, shards int) int {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(lane))
	return spread(b[:], shards)
}

func shardOfLock(lock string, shards int) int {
	return spread([]byte(lock), shards)
}

func spread(b []byte, shards int) int {
	if shards == 1 {
		return 0
	}
	h := fnv.New64a()
	h.Write(b)
	// The low bits of FNV depend on few bits of short inputs; folding brings the high ones in.
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(shards))
}

const base36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// encodeLane writes a lane so that the bytes sort as the numbers do and the end is known without a separator: how many
// digits of base 36, 1 to 13, then those.
func encodeLane(lane int64) string {
	s := strconv.FormatUint(uint64(lane), 36)
	return base36[len(s):len(s)+1] + s
}

// decodeLane reads a lane at the start of s and returns what follows it.
func decodeLane(s string) (lane int64, rest string, ok bool) {
	if s == "" {
		return 0, "", false
	}
	n := strings.IndexByte(base36, s[0])
	if n < 1 || len(s) < n+1 {
		return 0, "", false
	}
	v, err := strconv.ParseInt(s[1:n+1], 36, 64)
	if err != nil || v <= 0 {
		return 0, "", false
	}
	return v, s[n+1:], true
}
