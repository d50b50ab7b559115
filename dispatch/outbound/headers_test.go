package outbound

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestCheckHeaders(t *testing.T) {
	t.Parallel()
	const fine, refused = true, false
	for _, c := range []struct {
		// number is the case of the security list; zero: it has none for this.
		number int
		ok     bool
		// headers are names and values in turn.
		headers []string
	}{
		{0, fine, []string{
			"X-Shop", "7", "authorization", "Bearer abc", "Cookie", "a=b; c=d", "X-Name", "支付宝",
			"Idempotency-Key", "k1", "Content-Type", "text/xml", "X-Empty", "", "Accept", "*/*",
			"Webhookish", "1", "!#$%&'*+-.^_`|~", "1",
		}},
		{30, refused, []string{
			"X-A", "a\r\nX: 1", "X-A", "a\nb", "X-A", "a\x00b", "X-A", "a\x1b[31m", "X-A", "a\tb",
			"X-A", "\xff\xfe", "X-A", "\x7f",
		}},
		{31, refused, []string{"", "1", "X A", "1", "X:", "1", "X\r\nY", "1", "X\x00", "1", "名", "1"}},
		{32, refused, []string{
			"Host", "x", "hOsT", "x", "Connection", "close", "Keep-Alive", "5", "TE", "x", "te", "x",
			"Trailer", "x", "Transfer-Encoding", "chunked", "Upgrade", "h2c", "Proxy-Authorization", "x",
			"proxy-connection", "x", "Expect", "100-continue", "Content-Length", "1",
			"Content-Encoding", "gzip", "webhook-id", "x", "Webhook-Signature", "x", "WEBHOOK-OTHER", "x",
			"traceparent", "x", "tracestate", "x", "User-Agent", "x",
		}},
	} {
		for header := range slices.Chunk(c.headers, 2) {
			t.Run(fmt.Sprintf("case %d: %q: %q", c.number, header[0], header[1]), func(t *testing.T) {
				first := store.Header{Name: "X-First", Value: "1"}
				wrong := CheckHeaders([]store.Header{first, {Name: header[0], Value: header[1]}})
				if (len(wrong) == 0) != c.ok {
					t.Errorf("%v, want ok %v", wrong, c.ok)
				}
				for _, w := range wrong {
					if w.Message == "" || !strings.HasPrefix(w.Field, "headers") ||
						strings.ContainsAny(w.Field+w.Message, "\r\n\x00\x1b") {
						t.Errorf("bad field error %q", w)
					}
				}
			})
		}
	}
	half := store.Header{Name: "X-Half", Value: strings.Repeat("a", MaxHeaderBytes/2-len("X-Half")-4)}
	t.Run("case 36: the sum", func(t *testing.T) {
		if wrong := CheckHeaders([]store.Header{half, half}); wrong != nil {
			t.Errorf("exactly 16 KiB: %v", wrong)
		}
		half.Value += "a"
		if wrong := CheckHeaders([]store.Header{half, half}); len(wrong) != 1 || wrong[0].Field != "headers" {
			t.Errorf("over 16 KiB: %v", wrong)
		}
	})
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

// What is sealed as a credential is hidden as one.
func TestCredentialsAreSensitive(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "X-Auth-Token", "X-Client-Secret", "X-Password", "X-Credentials",
		"X-Api-Key", "ApiKey", "API_KEY",
	} {
		if !store.IsCredentialHeader(name) || !IsSensitiveHeader(name) {
			t.Errorf("%q is a credential and would be shown", name)
		}
	}
}
