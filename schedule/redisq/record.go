package redisq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// dueDigits is how many digits of base 36 a record's due time has, and maxDue the latest that they hold: the year
	// 5188. Later ones are taken for it.
	dueDigits = 9
	maxDue    = 36*36*36*36*36*36*36*36*36 - 1
	// maxTime is the latest of all other times: what a sorted set's score and Lua's numbers hold exactly.
	maxTime = 1<<53 - 1
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

// encodeRecord writes an item as the scripts expect it in their arguments. They add the diverts, and put their own
// clock where the due time is zero.
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
	if it.Due, err = strconv.ParseInt(due, 36, 64); err != nil {
		return refuse()
	}
	if it.Lane, err = strconv.ParseInt(digits, 36, 64); err != nil {
		return refuse()
	}
	if count, found := strings.CutPrefix(rest, "!"); found {
		count, _, _ = strings.Cut(count, ":")
		rest = rest[1+len(count):]
		if count == "" || count[0] == '0' || len(count) > maxDivertDigits ||
			strings.Trim(count, "0123456789") != "" {
			return refuse()
		}
		if diverts, err = strconv.Atoi(count); err != nil {
			return refuse()
		}
	}
	if rest != "" {
		it.Lock = rest[1:]
		if rest[0] != ':' || !isWord(it.Lock, maxLock) {
			return refuse()
		}
	}
	return it, diverts, nil
}

// moment writes a time that is not a record's: nothing is before zero or after maxTime.
func moment(ms int64) string {
	return strconv.FormatInt(min(max(ms, 0), maxTime), 10)
}
