package store

import (
	"net/url"
	"slices"
	"strings"
)

// A Header is an HTTP header. Lists of headers keep the order in which the caller gave them.
type Header struct {
	Name string `json:"name"`
	// Value may be sealed: an encrypted credential. A sealed value begins with a control character, which a
	// header that can be sent never has.
	Value string `json:"value"`
}

// sealMark begins a sealed value.
const sealMark = "\x1e"

// SealedHeader returns a header with a sealed value. The text comes from SealedText.
func SealedHeader(name, text string) Header { return Header{Name: name, Value: sealMark + text} }

// Sealed returns the text of a sealed value, as SealedText wrote it. It is empty for a value in clear.
func (h *Header) Sealed() string {
	if text, ok := strings.CutPrefix(h.Value, sealMark); ok {
		return text
	}
	return ""
}

// IsCredentialHeader reports whether the name is that of a header with a credential: Authorization,
// Proxy-Authorization, Cookie, or a name that contains token, secret, password, credential, api-key, apikey
// or api_key. Upper and lower case are equal.
func IsCredentialHeader(name string) bool {
	for _, whole := range [...]string{"authorization", "proxy-authorization", "cookie"} {
		if strings.EqualFold(name, whole) {
			return true
		}
	}
	for _, word := range [...]string{"token", "secret", "password", "credential", "api-key", "apikey",
		"api_key"} {
		for i := 0; i+len(word) <= len(name); i++ { // no copy in lower case, because every accept runs this
			if strings.EqualFold(name[i:i+len(word)], word) {
				return true
			}
		}
	}
	return false
}

// WithoutCredentials returns the headers that are not credentials. Without credentials it returns the same
// slice.
func WithoutCredentials(headers []Header) []Header {
	if !HasCredentials(headers) {
		return headers
	}
	var kept []Header
	for _, h := range headers {
		if !IsCredentialHeader(h.Name) {
			kept = append(kept, h)
		}
	}
	return kept
}

// HasCredentials reports whether a header is a credential (IsCredentialHeader).
func HasCredentials(headers []Header) bool {
	return slices.ContainsFunc(headers, func(h Header) bool { return IsCredentialHeader(h.Name) })
}

// SealedText returns the stored form of a value that the master key keyID encrypted.
func SealedText(keyID, ciphertext string) string { return keyID + ":" + ciphertext }

// CutSealed splits a text from SealedText. A text without a colon gives ok = false.
func CutSealed(text string) (keyID, ciphertext string, ok bool) { return strings.Cut(text, ":") }

// SealedKey returns the id of the master key that sealed the headers, empty if no header is sealed. All
// sealed headers of one list have the same key.
func SealedKey(headers []Header) string {
	for i := range headers {
		if keyID, _, ok := CutSealed(headers[i].Sealed()); ok {
			return keyID
		}
	}
	return ""
}

// Masked replaces a secret value in texts for people.
const Masked = "***"

// MaskURL returns a URL for errors, logs and pages: without user, password and fragment, and with the values
// of its query masked. For a URL that cannot be parsed it returns a constant text.
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

// maskQuery keeps the names and their order. It masks a whole part without "=", which may be a secret itself.
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

// IsSensitiveHeader reports whether a header must be masked for display, by its name: it may have a
// credential, or a value derived from one, such as a signature. It covers all IsCredentialHeader names. Upper
// and lower case are equal.
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

// A Secret is a signing secret of a project or of one of its endpoints, encrypted.
type Secret struct {
	ID      string
	Project string
	// Owner is the endpoint's bare id. Empty: the project.
	Owner string
	// Use is the kind of signer that uses the secret, such as "hmac" (package dispatch/outbound). Empty: the
	// project's root secret, from which the secrets of lanes are derived.
	Use string
	// Label is the name by which receivers know the secret, such as a certificate's serial number. Empty: its
	// id.
	Label string
	// Hosts lists further hosts for which the secret may sign, as NamesHost reads them. Its endpoint's own
	// host is always allowed. Hosts has no meaning for a root secret and for a secret that signs only for its
	// own lane.
	Hosts []string
	// KeyID is the id of the master key that encrypted the secret.
	KeyID      string
	Ciphertext []byte
	CreatedAt  int64
	// RetiredAt is when a replaced secret stops signing. Until then both sign. Zero: the current secret.
	RetiredAt int64
}

// A SealedTable is a table with columns that a master key encrypts.
type SealedTable string

// The tables with sealed columns.
const (
	// SealedSecrets is the table of secrets. Schedules have credentials in their template, alerts in their
	// sink, the others in headers.
	SealedSecrets   SealedTable = "secrets"
	SealedProjects  SealedTable = "projects"
	SealedEndpoints SealedTable = "endpoints"
	SealedSchedules SealedTable = "schedules"
	SealedAlerts    SealedTable = "alerts"
	SealedPolls     SealedTable = "polls"
	SealedCallbacks SealedTable = "callbacks"
)

// SealedTables returns all sealed tables, those with few rows first.
func SealedTables() []SealedTable {
	return []SealedTable{
		SealedSecrets, SealedProjects, SealedEndpoints, SealedSchedules, SealedAlerts, SealedPolls,
		SealedCallbacks,
	}
}

// A SealedRow is a row with a sealed column. KeyID is the id of the master key that encrypted it.
type SealedRow struct {
	Table   SealedTable
	ID      string
	Project string
	KeyID   string
	// Secret is set for SealedSecrets only, else nil.
	Secret *Secret
	// Headers are the headers of the callback, the endpoint, the project's defaults or the poll's result
	// callback. Some of them are sealed.
	Headers []Header
	// Template is the sealed template of a schedule, or the sealed sink of an alert.
	Template string
}

// A SealedPage is the result of one step of a re-encryption.
type SealedPage struct {
	// Done is the number of rows with the new key. Failed rows could not be changed and are unchanged.
	Done, Failed int
	// Last is the id of the last row of the step, empty without rows.
	Last string
}
