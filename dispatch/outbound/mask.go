package outbound

import (
	"net/url"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// masked stands for a value that must not be shown.
const masked = store.Masked

// MaskURL is store.MaskURL.
func MaskURL(raw string) string { return store.MaskURL(raw) }

// IsSensitiveHeader is store.IsSensitiveHeader.
func IsSensitiveHeader(name string) bool { return store.IsSensitiveHeader(name) }

// minHidden is how long what a caller gave must be to be looked for in what a receiver echoes. What is shorter is met by chance.
const minHidden = 8

// hide adds a value that must not be shown.
func hide(values []string, value string) []string {
	if len(value) < minHidden {
		return values
	}
	return append(values, value)
}

// scrub replaces, in text that came from a receiver, the credentials that were sent to it: some receivers echo the
// request in their answer. Where they do so in JSON, a credential may have escapes.
func scrub(text string, values []string) string {
	escaped := len(values) > 0 && strings.IndexByte(text, '\\') >= 0
	for _, v := range values {
		if strings.Contains(text, v) {
			text = strings.ReplaceAll(text, v, masked)
		}
		if escaped {
			text = scrubEscaped(text, v)
		}
	}
	return text
}

// scrubEscaped replaces a value as encoders of JSON write it: with the escapes that are needed, with those for HTML as Go has them, and
// with an escaped slash as PHP has it.
func scrubEscaped(text, value string) string {
	needed := string(quoteJSON(nil, value))
	needed = needed[1 : len(needed)-1]
	forHTML := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(needed)
	slashed := strings.ReplaceAll(needed, "/", `\/`)
	for _, v := range [...]string{needed, forHTML, slashed} {
		if v != value {
			text = strings.ReplaceAll(text, v, masked)
		}
	}
	return text
}

// queryValues returns the values of a query as they stand in the URL and decoded.
func queryValues(query string) []string { return valuesOf(query, func(string) bool { return true }) }

// hiddenQuery returns what of the request's query must not be shown where the receiver echoes it. The answer to a poll is what its caller has
// asked for, and says of which order it is: of a poll only what is a credential by its name is hidden.
func (r *Request) hiddenQuery(query string) []string {
	if r.Poll {
		return valuesOf(query, IsSensitiveHeader)
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
