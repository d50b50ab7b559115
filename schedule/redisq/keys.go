package redisq

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// keyNames has the suffixes of the keys, by the names in the scripts. lua/include/begin.lua explains the
// steady clock: wall time until the first jump of the server's clock.
//
// A running process of an older build may share the shard. So the keys and fields keep their names unless
// layout grows.
var keyNames = map[string]string{
	// HASH: generation, seq, clock, skew, armed, virtual, limit, closed, lanes, place, counters
	"META":  "meta",
	"DELAY": "delay", // ZSET: the delay set, id → due in Unix milliseconds
	// ZSET of score 0: lane, kind, due, id. The kind is f (fresh) or r (retry), or d or e if the item is
	// forced.
	"READY":   "ready",
	"RECORDS": "records", // HASH: id → due, kind, lane, diverts, lock
	// ZSET: lane → virtual time, of lanes with ready items and room for them
	"UNPROVEN":   "runnable:unproven",
	"ANSWERING":  "runnable:answering", // likewise
	"TIMING_OUT": "runnable:timingout", // likewise
	"BLOCKED":    "blocked",            // ZSET: paused lane with ready items → end of its pause
	// ZSET: lane with ready items that its hold, breaker or rate stops → until when, on the steady clock
	"HELD":       "held",
	"BREAKERS":   "breakers",   // ZSET: lane whose breaker is open → when it opened, on the steady clock
	"HOLDS":      "holds",      // HASH: lane with a hold → its begin and end, on the steady clock
	"LANES":      "lanes",      // HASH: lane → its record, see lanes.lua
	"LEASES":     "leases",     // ZSET: id → end of its lease, on the steady clock
	"CLAIMS":     "claims",     // HASH: id of a leased item → health, lane, token, remembered movement
	"OWNERS":     "owners",     // HASH: owner → token and ids of its last claim
	"SEEN":       "seen",       // ZSET: owner → time of its last claim, on the steady clock
	"LOCKS":      "locks",      // HASH: lock → until (steady clock), id and token of each holder
	"WAITERS":    "waiters",    // ZSET of score 0: lock, place, id, lane
	"WAITING":    "waiting",    // HASH: id → its entry in waiters; lock → the waiter it is kept for
	"QUARANTINE": "quarantine", // HASH: id → its unreadable record
}

// A shardKeys makes the names of one shard's keys. The hash tag contains the prefix, so that several indexes
// on one Cluster use different slots.
type shardKeys string

func keysOf(prefix string, shard int) shardKeys {
	return shardKeys(fmt.Sprintf("%s:{%s:%d}:", prefix, prefix, shard))
}

// named returns the key that the scripts call name.
func (k shardKeys) named(name string) string { return string(k) + keyNames[name] }

// checkPrefix refuses prefixes that would break a key's hash tag or the channel's name.
func checkPrefix(prefix string) error {
	if len(prefix) > 64 || strings.ContainsFunc(prefix, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune("_-.:", r)
	}) {
		return fmt.Errorf("prefix %q: at most 64 letters, digits and any of _ - . : are allowed", prefix)
	}
	return nil
}

// shardOfLane and shardOfLock return the shard of a lane or a lock. They must never change: SQL stores the
// number of shards, but not which lane is in which shard.
func shardOfLane(lane int64, shards int) int {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(lane))
	return hashed(b[:], shards)
}

func shardOfLock(lock string, shards int) int {
	return hashed([]byte(lock), shards)
}

// hashed returns the shard of a lane's number or a lock's name, by its FNV-1a hash.
func hashed(b []byte, shards int) int {
	if shards == 1 {
		return 0
	}
	h := fnv.New64a()
	h.Write(b)
	// The low bits of FNV depend on few bits of a short input, so the high bits are folded in.
	sum := h.Sum64()
	return int((sum ^ sum>>32) % uint64(shards))
}

const base36 = "0123456789abcdefghijklmnopqrstuvwxyz"

// encodeLane writes a lane so that the texts sort as the numbers do, and so that its end is known without a
// separator: the number of digits in base 36, then 1 to 13 digits.
func encodeLane(lane int64) string {
	s := strconv.FormatUint(uint64(lane), 36)
	return base36[len(s):len(s)+1] + s
}

// decodeLane reads a lane at the start of s and returns the rest.
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
	// dueDigits is the number of base 36 digits of a record's due time. maxDue is the latest time that they
	// hold, in the year 5188. Later times are reduced to it.
	dueDigits = 9
	maxDue    = 36*36*36*36*36*36*36*36*36 - 1
	// maxDivertDigits is the most digits of the count of diverts. The cause follows them.
	maxDivertDigits = 9
)

// The kinds of items in records. They sort forced items before others.
const (
	kindFresh       = 'f'
	kindRetry       = 'r'
	kindForcedFresh = 'd'
	kindForcedRetry = 'e'
)

// kindOf returns the kind of an item in its record.
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

// encodeRecord writes an item as the scripts expect it in arguments. The scripts add the diverts, and replace
// a zero due time by their clock.
func encodeRecord(it schedule.Item) string {
	b := make([]byte, 0, 48)
	var digits [dueDigits]byte
	due := strconv.AppendInt(digits[:0], min(max(it.Due, 0), maxDue), 36)
	b = append(b, "000000000"[len(due):]...)
	b = append(b, due...)
	b = append(b, kindOf(it))
	b = strconv.AppendInt(b, it.Lane, 36)
	return string(appendLock(b, it.Lock))
}

func appendLock(record []byte, lock string) []byte {
	if lock == "" {
		return record
	}
	return append(append(record, ':'), lock...)
}

// encodeWanted writes the record of a settlement: the item's and, for a divert, one divert with its cause,
// which the script adds to those of the item.
func encodeWanted(s *schedule.Settlement) string {
	if s.Outcome != schedule.Divert {
		return encodeRecord(s.Item)
	}
	unlocked := s.Item
	unlocked.Lock = ""
	b := append([]byte(encodeRecord(unlocked)), "!1"...)
	if s.Cause != 0 {
		b = append(b, byte(s.Cause))
	}
	return string(appendLock(b, s.Lock))
}

// decodeRecord reads a record that a script wrote. It refuses exactly what the scripts' decode refuses.
func decodeRecord(id, record string) (it schedule.Item, diverts int, cause schedule.DivertCause, err error) {
	refuse := func() (schedule.Item, int, schedule.DivertCause, error) {
		return schedule.Item{}, 0, 0, fmt.Errorf("record %q of %s cannot be read", record, id)
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
		if n := len(count); n > 0 && 'a' <= count[n-1] && count[n-1] <= 'z' {
			count, cause = count[:n-1], schedule.DivertCause(count[n-1])
		}
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
	return it, diverts, cause, nil
}

// encodeTime writes a time outside of records, limited to 0 to schedule.MaxTime.
func encodeTime(ms int64) string {
	return strconv.FormatInt(min(max(ms, 0), schedule.MaxTime), 10)
}
