package store

import (
	"net/url"
	"strings"
)

// Masked stands for a value that must not be shown.
const Masked = "***"

// MaskURL returns a URL as it may stand in errors, logs and pages: without user and password, without
// fragment, and with every value of its query replaced. What cannot be parsed is not shown at all.
func MaskURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable url)"
	}
	m := *u
	m.User = nil
	m.Fragment, m.RawFragment = "", ""
	if m.Opaque != "" {
		m.Opaque = Masked
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
			parts[i] = name + "=" + Masked
		case part != "":
			parts[i] = Masked
		}
	}
	return strings.Join(parts, "&")
}

// IsSensitiveHeader says whether a header's value is a credential or derived from one. The name is in any
// case.
func IsSensitiveHeader(name string) bool {
	name = strings.ToLower(name)
	for _, word := range [...]string{
		"token", "secret", "key", "sign", "authorization", "cookie", "password", "credential",
	} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
