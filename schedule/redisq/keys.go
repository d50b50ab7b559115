package redisq

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// keyNames has, for each name that scripts use for a key, how the key ends. The steady clock is that of
// lua/include/begin.lua: wall time until the server's clock jumps for the first time.
var keyNames = map[string]string{
	// HASH: generation, seq, clock, skew, armed, virtual, limit, closed, lanes, place, counters
	"META":  "meta",
	"DELAY": "delay", // ZSET: the delay set, id → due in Unix milliseconds
	// ZSET of score 0: lane, kind, due, id: kind f or r, or d or e if it is forced
	"READY":   "ready",
	"RECORDS": "records", // HASH: id → due, kind, lane, diverts, lock
	// ZSET: lane → virtual time, of lanes with something ready and room for it
	"UNPROVEN":   "runnable:unproven",
	"ANSWERING":  "runnable:answering", // likewise
	"TIMING_OUT": "runnable:timingout", // likewise
	"BLOCKED":    "blocked",            // ZSET: lane with something ready → end of its pause
	// ZSET: lane with something ready → end of its hold, on the steady clock
	"HELD":       "held",
	"BREAKERS":   "breakers",   // ZSET: lane whose breaker is open → since when, on the steady clock
	"HOLDS":      "holds",      // HASH: lane with a hold → since and until when, on the steady clock
	"LANES":      "lanes",      // HASH: lane → what is known of it
	"LEASES":     "leases",     // ZSET: id → end of its lease, on the steady clock
	"CLAIMS":     "claims",     // HASH: id → health, lane, token, remembered movement; of leased ones only
	"OWNERS":     "owners",     // HASH: owner → token and ids of its last claim
	"SEEN":       "seen",       // ZSET: owner → time of its last claim, on the steady clock
	"LOCKS":      "locks",      // HASH: lock → until (on the steady clock), id, token; of its heirs, too
	"WAITERS":    "waiters",    // ZSET of score 0: lock, place, id, lane
	"WAITING":    "waiting",    // HASH: id → its entry in waiters; lock → for whom it is kept
	"QUARANTINE": "quarantine", // HASH: id → what could not be read
}

// A shardKeys makes the names of one shard's keys. The hash tag holds the prefix too, so that several indexes
// on one Cluster do not meet in the same slots.
type shardKeys string

func keysOf(prefix string, shard int) shardKeys {
	return shardKeys(fmt.Sprintf("%s:{%s:%d}:", prefix, prefix, shard))
}

// named returns the key of that name.
func (k shardKeys) named(name string) string { return string(k) + keyNames[name] }

// checkPrefix refuses what would break a key's hash tag or a channel's name.
func checkPrefix(prefix string) error {
	if len(prefix) > 64 || strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("_-.:", r)
	}) {
		return fmt.Errorf("prefix %q: at most 64 letters, digits and any of _ - . : are allowed", prefix)
	}
	return nil
}

// shardOfLane and shardOfLock say where things are. They must never change: SQL knows the number of shards,
// but not which lane is in which.
func shardOfLane(lane int64, shards int) int {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(lane))
	return hashed(b[:], shards)
}

func shardOfLock(lock string, shards int) int {
	return hashed([]byte(lock), shards)
}

func hashed(b []byte, shards int) int {
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

// encodeLane writes a lane so that the bytes sort as the numbers do and the end is known without a separator:
// how many digits of base 36, 1 to 13, then those.
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

const (
	// dueDigits is how many digits of base 36 a record's due time has, and maxDue the latest that they hold:
	// the year
	// 5188. Later ones are taken for it.
	dueDigits = 9
	maxDue    = 36*36*36*36*36*36*36*36*36 - 1
	// maxDivertDigits is how many digits the count of diverts has at most.
	maxDivertDigits = 9
)

// The kinds of items in records; the last two are the first two where they are forced.
const (
	kindFresh       = 'f'
	kindRetry       = 'r'
	kindForcedFresh = 'd'
	kindForcedRetry = 'e'
)

func kindOf(it schedule.Item) byte {
	switch {
	case it.Forced && it.Retry:
		return kindForcedRetry
	case it.Forced:
		return kindForcedFresh
	case it.Retry:
		return kindRetry
	}
	return kindFresh
}

// encodeRecord writes an item as the scripts expect it in their arguments. They add the diverts, and put
// their own clock where the due time is zero.
func encodeRecord(it schedule.Item) string {
	b := make([]byte, 0, 48)
	var digits [dueDigits]byte
	due := strconv.AppendInt(digits[:0], min(max(it.Due, 0), maxDue), 36)
	b = append(b, "000000000"[len(due):]...)
	b = append(b, due...)
	b = append(b, kindOf(it))
	b = strconv.AppendInt(b, it.Lane, 36)
	if it.Lock != "" {
		b = append(b, ':')
		b = append(b, it.Lock...)
	}
	return string(b)
}

// decodeRecord reads what the scripts keep, and refuses exactly what their decode refuses.
func decodeRecord(id, record string) (it schedule.Item, diverts int, err error) {
	refuse := func() (schedule.Item, int, error) {
		return schedule.Item{}, 0, fmt.Errorf("record %q of %s cannot be read", record, id)
	}
	if len(record) <= dueDigits+1 {
		return refuse()
	}
	due, kind, rest := record[:dueDigits], record[dueDigits], strings.TrimLeft(record[dueDigits+1:], base36)
	digits := record[dueDigits+1 : len(record)-len(rest)]
	it = schedule.Item{
		ID:     id,
		Retry:  kind == kindRetry || kind == kindForcedRetry,
		Forced: kind == kindForcedFresh || kind == kindForcedRetry,
	}
	if strings.Trim(due, base36) != "" || strings.IndexByte("frde", kind) < 0 ||
		digits == "" || digits[0] == '0' {
		return refuse()
	}
	it.Due, err = strconv.ParseInt(due, 36, 64)
	if err != nil {
		return refuse()
	}
	it.Lane, err = strconv.ParseInt(digits, 36, 64)
	if err != nil {
		return refuse()
	}
	if count, found := strings.CutPrefix(rest, "!"); found {
		count, _, _ = strings.Cut(count, ":")
		rest = rest[1+len(count):]
		if count == "" || count[0] == '0' || len(count) > maxDivertDigits ||
			strings.Trim(count, "0123456789") != "" {
			return refuse()
		}
		diverts, err = strconv.Atoi(count)
		if err != nil {
			return refuse()
		}
	}
	if rest != "" {
		it.Lock = rest[1:]
		if rest[0] != ':' || !schedule.IsWord(it.Lock, schedule.MaxLock) {
			return refuse()
		}
	}
	return it, diverts, nil
}

// moment writes a time that is not a record's: nothing is before zero or after schedule.MaxTime.
func moment(ms int64) string {
	return strconv.FormatInt(min(max(ms, 0), schedule.MaxTime), 10)
}
