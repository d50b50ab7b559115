package redisq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// dueDigits is how many hexadecimal digits a record's due time has, and maxDue the latest that they hold: the year
	// 2527. Later ones are taken for it.
	dueDigits = 11
	maxDue    = 1<<(4*dueDigits) - 1
	// maxTime is the latest of all other times: what a sorted set's score and Lua's numbers hold exactly.
	maxTime = 1<<53 - 1
)

// encodeRecord writes an item as the scripts expect it in their arguments. They add the diverts, and put their own
// clock where the due time is zero.
func encodeRecord(it schedule.Item) string {
	b := make([]byte, 0, 48)
	b = fmt.Appendf(b, "%0*x", dueDigits, min(max(it.Due, 0), maxDue))
	if it.Retry {
		b = append(b, 'r')
	} else {
		b = append(b, 'f')
	}
	b = append(b, encodeLane(it.Lane)...)
	if it.Lock != "" {
		b = append(b, ':')
		b = append(b, it.Lock...)
	}
	return string(b)
}

// decodeRecord reads what the scripts keep. They have checked it themselves, so that an error means that script and
// program do not fit each other.
func decodeRecord(id, record string) (it schedule.Item, diverts int, err error) {
	refuse := func() (schedule.Item, int, error) {
		return schedule.Item{}, 0, fmt.Errorf("record %q of %s cannot be read", record, id)
	}
	if len(record) < dueDigits+1 {
		return refuse()
	}
	due, err := strconv.ParseInt(record[:dueDigits], 16, 64)
	kind := record[dueDigits]
	if err != nil || kind != 'f' && kind != 'r' {
		return refuse()
	}
	lane, rest, ok := decodeLane(record[dueDigits+1:])
	if !ok {
		return refuse()
	}
	if count, found := strings.CutPrefix(rest, "!"); found {
		count, lock, _ := strings.Cut(count, ":")
		if diverts, err = strconv.Atoi(count); err != nil {
			return refuse()
		}
		return schedule.Item{ID: id, Lane: lane, Due: due, Lock: lock, Retry: kind == 'r'}, diverts, nil
	}
	lock, found := strings.CutPrefix(rest, ":")
	if !found && rest != "" {
		return refuse()
	}
	return schedule.Item{ID: id, Lane: lane, Due: due, Lock: lock, Retry: kind == 'r'}, 0, nil
}

// moment writes a time that is not a record's: nothing is before zero or after maxTime.
func moment(ms int64) string {
	return strconv.FormatInt(min(max(ms, 0), maxTime), 10)
}
