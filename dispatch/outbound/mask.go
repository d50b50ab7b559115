package outbound

import (
	"net/url"
	"strings"
)

// masked stands for a value that must not be shown.
const masked = "***"

// MaskURL returns a URL as it may stand in errors, logs and pages: without user and password, without fragment, and
// with every value of its query replaced. What cannot be parsed is not shown at all.
func MaskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable url)"
	}
	return maskParsed(u)
}

func maskParsed(u *url.URL) string {
	m := *u
	m.User = nil
	m.Fragment, m.RawFragment = "", ""
	if m.Opaque != "" {
		m.Opaque = masked
	}
	if m.RawQuery != "" {
		m.RawQuery = maskQuery(m.RawQuery)
	}
	return m.String()
}

// maskQuery keeps the names and their order. A part without "=" is masked whole: it may be the value itself.
func maskQuery(query string) string {
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, _, ok := strings.Cut(part, "=")
		switch {
		case ok:
			parts[i] = name + "=" + masked
		case part != "":
			parts[i] = masked
		}
	}
	return strings.Join(parts, "&")
}

// isSensitive says whether a header's value is a credential or derived from one. The name is in any case.
func isSensitive(name string) bool {
	name = strings.ToLower(name)
	for _, word := range [...]string{"token", "secret", "key", "sign", "authorization", "cookie", "password", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// minScrubbed is the shortest value that is looked for in what a receiver echoes. Shorter ones are met by chance.
const minScrubbed = 8

// scrub replaces, in text that came from a receiver, the credentials that were sent to it: some receivers echo the
// request in their answer.
func scrub(text string, values []string) string {
	for _, v := range values {
		if len(v) >= minScrubbed && strings.Contains(text, v) {
			text = strings.ReplaceAll(text, v, masked)
		}
	}
	return text
}

// queryValues returns the values of a query as they stand in the URL and decoded.
func queryValues(query string) []string {
	if query == "" {
		return nil
	}
	var values []string
	for part := range strings.SplitSeq(query, "&") {
		_, value, ok := strings.Cut(part, "=")
		if !ok {
			value = part
		}
		values = append(values, value)
		if plain, err := url.QueryUnescape(value); err == nil && plain != value {
			values = append(values, plain)
		}
	}
	return values
}
