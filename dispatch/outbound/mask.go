package outbound

import (
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// minHidden is how long what a caller gave must be to be looked for in what a receiver echoes. What is
// shorter is met by chance.
const minHidden = 8

// hide adds a value that must not be shown.
func hide(values []string, value string) []string {
	if len(value) < minHidden {
		return values
	}
	return append(values, value)
}

// hiddenQuery returns what of the request's query must not be shown where the receiver echoes it: its values,
// as they stand in the URL and decoded, and what has no name. The answer to a poll is what its caller has
// asked for, and says of which order it is: of a poll only what is a credential by its name is hidden.
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
