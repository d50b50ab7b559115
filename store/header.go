package store

import "strings"

// A Header is one HTTP header, in the order in which it was given.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// Sealed is the encrypted value of a credential, as SealedText writes it; Value is empty then.
	Sealed string `json:"sealed,omitempty"`
}

// IsCredentialHeader says whether a header carries a credential by its name, in any case: Authorization,
// Proxy-Authorization, Cookie, and names with token, secret, password, credential or api-key in them ("apikey" and
// "api_key" too).
func IsCredentialHeader(name string) bool {
	name = strings.ToLower(name)
	switch name {
	case "authorization", "proxy-authorization", "cookie":
		return true
	}
	for _, word := range [...]string{"token", "secret", "password", "credential", "api-key", "apikey", "api_key"} {
		if strings.Contains(name, word) {
			return true
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

// SealedKey returns the id of the master key that sealed the headers; empty: none of them is sealed. All sealed headers
// of one list have the same.
func SealedKey(headers []Header) string {
	for i := range headers {
		if keyID, _, ok := CutSealed(headers[i].Sealed); ok {
			return keyID
		}
	}
	return ""
}
