package store

import "strings"

// crockford are the digits of Crockford's base 32. The first timeLength digits of an id are its time
// (https://github.com/ulid/spec).
const (
	crockford  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	timeLength = 10
)

// The prefixes of ULIDs in texts for callers and receivers. The text of an API key also begins with
// KeyPrefix.
const (
	CallbackPrefix = "cb_"
	EventPrefix    = "ev_"
	EndpointPrefix = "ep_"
	KeyPrefix      = "key_"
	RedrivePrefix  = "rd_"
	SchedulePrefix = "sc_"
	AlertPrefix    = "al_"
)

// BareID removes the prefix from an id. It reports whether the rest is a ULID as this program writes it: 26
// upper-case digits of Crockford's base 32.
func BareID(prefix, s string) (string, bool) {
	id, ok := strings.CutPrefix(s, prefix)
	if !ok || len(id) != 26 || id[0] > '7' {
		return "", false
	}
	for i := range len(id) {
		if strings.IndexByte(crockford, id[i]) < 0 {
			return "", false
		}
	}
	return id, true
}

// FirstID returns the lowest bare id of a time in Unix milliseconds, which must not be negative.
func FirstID(at int64) string {
	id := []byte("00000000000000000000000000")
	for i := range timeLength {
		id[timeLength-1-i] = crockford[at&31]
		at >>= 5
	}
	return string(id)
}

// IDTime returns the creation time of a bare id in Unix milliseconds. For a callback this is the time at
// which it was accepted (docs/adr/0002-partitions-by-day.md). For a text that is not an id it returns zero.
func IDTime(id string) int64 {
	if _, ok := BareID("", id); !ok {
		return 0
	}
	var at int64
	for i := range timeLength {
		at = at<<5 | int64(strings.IndexByte(crockford, id[i]))
	}
	return at
}
