package store

import (
	"net/url"
	"slices"
	"strings"
)

// A Header is one HTTP header, in the order in which it was given.
type Header struct {
	Name string `json:"name"`
	// Value may be sealed: an encrypted credential, which begins with a control character. No header that can
	// be sent does.
	Value string `json:"value"`
}

// sealMark begins a sealed value.
const sealMark = "\x1e"

// SealedHeader returns a header whose value is sealed: text is what SealedText wrote.
func SealedHeader(name, text string) Header { return Header{Name: name, Value: sealMark + text} }

// Sealed returns the text of a sealed value; empty: the value is in clear.
func (h *Header) Sealed() string {
	if text, ok := strings.CutPrefix(h.Value, sealMark); ok {
		return text
	}
	return ""
}

// IsCredentialHeader says whether a header carries a credential by its name, in any case: Authorization,
// Proxy-Authorization, Cookie, and names with token, secret, password, credential or api-key in them
// ("apikey" and "api_key" too).
func IsCredentialHeader(name string) bool {
	for _, whole := range [...]string{"authorization", "proxy-authorization", "cookie"} {
		if strings.EqualFold(name, whole) {
			return true
		}
	}
	for _, word := range [...]string{"token", "secret", "password", "credential", "api-key", "apikey",
		"api_key"} {
		for i := 0; i+len(word) <= len(name); i++ { // without a copy in lower case: every accept asks this
			if strings.EqualFold(name[i:i+len(word)], word) {
				return true
			}
		}
	}
	return false
}

// WithoutCredentials returns the headers that are no credentials; the very slice if all are.
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

// HasCredentials says whether one of the headers is a credential.
func HasCredentials(headers []Header) bool {
	return slices.ContainsFunc(headers, func(h Header) bool { return IsCredentialHeader(h.Name) })
}

// SealedText writes a value that the master key of that id has encrypted.
func SealedText(keyID, ciphertext string) string { return keyID + ":" + ciphertext }

// CutSealed reads what SealedText wrote; ok is false for any other text.
func CutSealed(text string) (keyID, ciphertext string, ok bool) { return strings.Cut(text, ":") }

// SealedKey returns the id of the master key that sealed the headers; empty: none of them is sealed. All
// sealed headers of one list have the same.
func SealedKey(headers []Header) string {
	for i := range headers {
		if keyID, _, ok := CutSealed(headers[i].Sealed()); ok {
			return keyID
		}
	}
	return ""
}

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

// A Secret is a signing secret of a project or of one of its endpoints, encrypted.
type Secret struct {
	ID      string
	Project string
	// Owner is the endpoint's bare id; empty: the project itself.
	Owner string
	// Use says what kind of signer it is for ("hmac" and so on: package outbound names them); empty: the
	// project's root secret, from which those of lanes are derived.
	Use string
	// Label is what receivers know it by, such as a certificate's serial number; empty: its id.
	Label string
	// Hosts are where it may be used beside its endpoint's own host, as NamesHost reads them; empty: nowhere
	// else. For secrets that are derived from or that only sign for their own lane it is empty and has no
	// meaning.
	Hosts []string
	// KeyID is the master key that it is encrypted with.
	KeyID      string
	Ciphertext []byte
	CreatedAt  int64
	// RetiredAt is when it stops signing beside its successor; zero: it is the present one.
	RetiredAt int64
}

// A SealedTable is a table with columns that a master key has encrypted.
type SealedTable string

// The tables with sealed columns.
const (
	// SealedSecrets has secrets, the others have what callers gave as credentials.
	SealedSecrets   SealedTable = "secrets"
	SealedProjects  SealedTable = "projects"
	SealedEndpoints SealedTable = "endpoints"
	SealedSchedules SealedTable = "schedules"
	SealedPolls     SealedTable = "polls"
	SealedCallbacks SealedTable = "callbacks"
)

// SealedTables lists them, the shortest tables first.
func SealedTables() []SealedTable {
	return []SealedTable{
		SealedSecrets, SealedProjects, SealedEndpoints, SealedSchedules, SealedPolls, SealedCallbacks,
	}
}

// A SealedRow is a row of one of them. KeyID is the master key that has encrypted what it has.
type SealedRow struct {
	Table   SealedTable
	ID      string
	Project string
	KeyID   string
	// Secret is the row of SealedSecrets; else it is nil.
	Secret *Secret
	// Headers are those of the row's callback, endpoint, project's defaults or poll's result; some are
	// sealed.
	Headers []Header
	// Template is a schedule's, sealed.
	Template string
}

// A SealedPage says what a step of a re-encryption did.
type SealedPage struct {
	// Done rows have the new key, Failed ones could not be changed and are as they were.
	Done, Failed int
	// Last is the id of the last row that was looked at; empty: there was none.
	Last string
}
