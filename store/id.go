package store

import "strings"

// crockford are the digits of ids, of which the first ten are the time (https://github.com/ulid/spec).
const (
	crockford  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	timeLength = 10
)

// The prefixes that stand before ULIDs wherever a caller or a receiver sees them. The text of an API key
// begins with KeyPrefix too.
const (
	CallbackPrefix = "cb_"
	EventPrefix    = "ev_"
	EndpointPrefix = "ep_"
	KeyPrefix      = "key_"
	RedrivePrefix  = "rd_"
	SchedulePrefix = "sc_"
)

// BareID takes the prefix from an id as callers write it, and says whether the rest is a ULID as this program
// writes them: 26 characters of Crockford's base 32, in upper case.
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

// IDTime is when an id without its prefix was made, in Unix milliseconds: of a callback, when it was accepted
// (docs/adr/0002-partitions-by-day.md). It is zero if the id is none.
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
