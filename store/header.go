package store

import "strings"

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
	for _, word := range [...]string{"token", "secret", "password", "credential", "api-key", "apikey", "api_key"} {
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
	for i := range headers {
		if !IsCredentialHeader(headers[i].Name) {
			continue
		}
		kept := append([]Header(nil), headers[:i]...)
		for _, h := range headers[i+1:] {
			if !IsCredentialHeader(h.Name) {
				kept = append(kept, h)
			}
		}
		return kept
	}
	return headers
}

// HasCredentials says whether one of the headers is a credential.
func HasCredentials(headers []Header) bool { return len(WithoutCredentials(headers)) < len(headers) }

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
