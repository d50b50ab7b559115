package outbound

import (
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestMaskURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://shop.example/notify":                    "https://shop.example/notify",
		"https://shop.example/n?token=abc&x=1&flag":      "https://shop.example/n?token=***&x=***&***",
		"https://user:secret@shop.example/n?a=b=c#frag":  "https://shop.example/n?a=***",
		"/relative?token=abc":                            "/relative?token=***",
		"https://shop.example/n?":                        "https://shop.example/n?",
		"https://shop.example/%0d%0a?x=%0d":              "https://shop.example/%0d%0a?x=***",
		"mailto:secret@shop.example":                     "mailto:***",
		"https://shop.example/\x00?token=abc":            "(unreadable url)",
		"https://user:secret@shop.example:port/?token=1": "(unreadable url)",
	} {
		if got := store.MaskURL(raw); got != want {
			t.Errorf("MaskURL(%q) = %q, want %q", raw, got, want)
		}
	}
}

// What is sealed as a credential is hidden as one.
func TestCredentialsAreSensitive(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "X-Auth-Token", "X-Client-Secret", "X-Password", "X-Credentials",
		"X-Api-Key", "ApiKey", "API_KEY",
	} {
		if !store.IsCredentialHeader(name) || !store.IsSensitiveHeader(name) {
			t.Errorf("%q is a credential and would be shown", name)
		}
	}
}
