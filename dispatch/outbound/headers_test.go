package outbound

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestCheckHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, value string
		ok          bool
	}{
		{"X-Shop", "7", true}, {"authorization", "Bearer abc", true}, {"Cookie", "a=b; c=d", true}, {"X-Name", "支付宝", true},
		{"Idempotency-Key", "k1", true}, {"Content-Type", "text/xml", true}, {"X-Empty", "", true}, {"Accept", "*/*", true},
		{"Webhookish", "1", true}, {"!#$%&'*+-.^_`|~", "1", true},
		{"", "1", false}, {"X A", "1", false}, {"X:", "1", false}, {"X\r\nY", "1", false}, {"X\x00", "1", false}, {"名", "1", false},
		{"X-A", "a\r\nX: 1", false}, {"X-A", "a\nb", false}, {"X-A", "a\x00b", false}, {"X-A", "a\x1b[31m", false},
		{"X-A", "a\tb", false}, {"X-A", "\xff\xfe", false}, {"X-A", "\x7f", false},
		{"Host", "x", false}, {"hOsT", "x", false}, {"Connection", "close", false}, {"Keep-Alive", "5", false}, {"TE", "x", false},
		{"te", "x", false}, {"Trailer", "x", false}, {"Transfer-Encoding", "chunked", false}, {"Upgrade", "h2c", false},
		{"Proxy-Authorization", "x", false}, {"proxy-connection", "x", false}, {"Expect", "100-continue", false},
		{"Content-Length", "1", false}, {"Content-Encoding", "gzip", false}, {"webhook-id", "x", false},
		{"Webhook-Signature", "x", false}, {"WEBHOOK-OTHER", "x", false}, {"traceparent", "x", false}, {"tracestate", "x", false},
		{"User-Agent", "x", false},
	} {
		wrong := CheckHeaders([]store.Header{{Name: "X-First", Value: "1"}, {Name: c.name, Value: c.value}})
		if (len(wrong) == 0) != c.ok {
			t.Errorf("%q: %q: %v, want ok %v", c.name, c.value, wrong, c.ok)
		}
		for _, w := range wrong {
			if w.Message == "" || !strings.HasPrefix(w.Field, "headers") || strings.ContainsAny(w.Field+w.Message, "\r\n\x00\x1b") {
				t.Errorf("%q: bad field error %q", c.name, w)
			}
		}
	}
}

func TestCheckHeadersLimitsTheSum(t *testing.T) {
	t.Parallel()
	half := store.Header{Name: "X-Half", Value: strings.Repeat("a", MaxHeaderBytes/2-len("X-Half")-4)}
	if wrong := CheckHeaders([]store.Header{half, half}); wrong != nil {
		t.Errorf("exactly 16 KiB: %v", wrong)
	}
	half.Value += "a"
	if wrong := CheckHeaders([]store.Header{half, half}); len(wrong) != 1 || wrong[0].Field != "headers" {
		t.Errorf("over 16 KiB: %v", wrong)
	}
}

func TestCheckMethod(t *testing.T) {
	t.Parallel()
	for method, ok := range map[string]bool{
		"GET": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "HEAD": true, "PURGE": true,
		"": false, "G ET": false, "GET\r\n": false, "CONNECT": false, "TRACE": false, strings.Repeat("A", 33): false,
	} {
		if err := CheckMethod(method); (err == nil) != ok {
			t.Errorf("CheckMethod(%q) = %v", method, err)
		}
	}
}

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
		if got := MaskURL(raw); got != want {
			t.Errorf("MaskURL(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestIsCredentialHeader(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Authorization": true, "AUTHORIZATION": true, "proxy-authorization": true, "Cookie": true,
		"cOOKIE": true, "X-Auth-Token": true, "PRIVATE-TOKEN": true, "Tokens": true, "X-Client-Secret": true,
		"X-Password": true, "X-Credentials": true, "X-Api-Key": true, "Ocp-Apim-ApiKey": true,
		"API_KEY": true, "X-Api-Key-2": true,

		"": false, "Authorization-Info": false, "X-Authorization": false, "Cookie2": false, "X-Cookie": false,
		"Set-Cookie": false, "Idempotency-Key": false, "X-Key": false, "X-Api": false, "X-Api.Key": false,
		"X-Signature": false, "Content-Type": false, "X-Shop": false, "X-Passw0rd": false,
	} {
		if got := IsCredentialHeader(name); got != want {
			t.Errorf("IsCredentialHeader(%q) = %v", name, got)
		}
		if want && !IsSensitiveHeader(name) {
			t.Errorf("%q is a credential and would be shown", name)
		}
	}
}
