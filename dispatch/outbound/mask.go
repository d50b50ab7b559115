package outbound

import (
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// minHidden is how long what a caller gave must be to be looked for in what a receiver echoes. What is shorter is met by chance.
const minHidden = 8

// hide adds a value that must not be shown.
func hide(values []string, value string) []string {
	if len(value) < minHidden {
		return values
	}
	return append(values, value)
}

// queryValues returns the values of a query as they stand in the URL and decoded.
func queryValues(query string) []string { return valuesOf(query, func(string) bool { return true }) }

// hiddenQuery returns what of the request's query must not be shown where the receiver echoes it. The answer to a poll is what its caller has
// asked for, and says of which order it is: of a poll only what is a credential by its name is hidden.
func (r *Request) hiddenQuery(query string) []string {
	if r.Poll {
		return valuesOf(query, store.IsSensitiveHeader)
	}
	return queryValues(query)
}

// valuesOf returns the values of a query whose names are of a kind; one without a name is of any.
func valuesOf(query string, kind func(name string) bool) []string {
	if query == "" {
		return nil
	}
	var values []string
	for part := range strings.SplitSeq(query, "&") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			value = part
		} else if !kind(name) {
			continue
		}
		values = hide(values, value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			values = hide(values, plain)
		}
	}
	return values
}
