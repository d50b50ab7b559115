package sign

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
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

// FuzzHeaders: a header that may be sent arrives as it was given, alone, and is none of our own.
func FuzzHeaders(f *testing.F) {
	for _, s := range [][2]string{
		{"X-Shop", "7"}, {"webhook-id", "x"}, {"Host", "x"}, {"A", "b\r\nC: d"}, {"A:", "b"}, {"A", " b\t"},
		{"Content-Type", "text/plain"},
		{"A", "\u00e9"}, {"A", "\x80"}, {"transfer-encoding", "chunked"}, {"A", ""}, {"COOKIE", "a=b; c=d"},
	} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckHeaders([]store.Header{{Name: name, Value: value}}) != nil {
			return
		}
		var wire bytes.Buffer
		req, err := http.NewRequest("POST", "http://shop.example/", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header[http.CanonicalHeaderKey(name)] = []string{value}
		if err := req.Write(&wire); err != nil {
			t.Fatalf("%q: %q cannot be sent: %v", name, value, err)
		}
		got, err := http.ReadRequest(bufio.NewReader(&wire))
		if err != nil {
			t.Fatalf("%q: %q makes a request that cannot be read: %v", name, value, err)
		}
		got.Header.Del("User-Agent")
		got.Header.Del("Content-Length")
		if arrived := got.Header.Get(name); arrived != strings.Trim(value, " \t") || len(got.Header) != 1 ||
			got.ContentLength != 4 {
			t.Errorf("%q: %q arrives as %q, all as %q", name, value, arrived, got.Header)
		}
	})
}
