package outbound

import (
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// minHidden is the minimum length of a value that is masked in responses, in bytes. Shorter values occur by
// chance.
const minHidden = 8

// hide appends a value to mask, unless it is too short.
func hide(values []string, value string) []string {
	if len(value) < minHidden {
		return values
	}
	return append(values, value)
}

// hiddenQuery returns the values of a query that are masked in the response: as they are in the URL and
// decoded. A part without "=" counts as a value.
//
// The response to a poll repeats the order that the query names, and the sender needs it. So a poll masks
// only values whose name is that of a credential.
func (r *Request) hiddenQuery(query string) []string {
	if query == "" {
		return nil
	}
	var values []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			value = part
		} else if r.Poll && !store.IsSensitiveHeader(name) {
			continue
		}
		values = hide(values, value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			values = hide(values, plain)
		}
	}
	return values
}
