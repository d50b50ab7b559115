package outbound

import (
	"fmt"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

var (
	requestHeader = regexp.MustCompile(`(?s)^ \[([^:\]]*): (.*?)\]`)
	// fresh is what is another at each attempt.
	fresh = []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`v1,\S{44}`), "v1,SIGNATURE"}, {regexp.MustCompile(`00-[0-9a-f]{32}-[0-9a-f]{16}-01`), "TRACE"},
		{regexp.MustCompile(`(webhook-timestamp|Webhook-Timestamp): \d{10}`), "$1: TIME"},
	}
)

// TestRequests: what arrives of a request, and what is shown of it.
func TestRequests(t *testing.T) {
	t.Parallel()
	rec := new(recorder)
	srv := httptest.NewServer(rec)
	defer srv.Close()
	host := strings.TrimPrefix(srv.URL, "http://")
	client := newTestClient(t, Options{Version: "1.2.3"})
	secrets := signtest.Secrets(signtest.Shortest(), []byte("the secret before the rotation"))
	transcript.Run(t, "testdata/requests.txt", func(line string) string {
		if line == "unsigned" {
			secrets = nil
			return ""
		}
		r := newRequest("")
		r.Number, r.Secrets, r.ContentType, r.Body = 7, secrets, "", nil
		method, rest, _ := strings.Cut(line, " ")
		end := strings.Index(rest+" [", " [")
		r.Method, r.URL, rest = method, strings.Replace(rest[:end], "here", host, 1), rest[end:]
		for m := requestHeader.FindStringSubmatch(rest); m != nil; m = requestHeader.FindStringSubmatch(rest) {
			rest = rest[len(m[0]):]
			if m[1] == "type" {
				r.ContentType = m[2]
			} else {
				r.Headers = append(r.Headers, store.Header{Name: m[1], Value: m[2]})
			}
		}
		if rest != "" {
			r.Body = []byte(rest[1:])
		}
		before := rec.count()
		resp := client.Send(t.Context(), r)
		if rec.count() == before {
			return fmt.Sprintf("%s: %s", resp.Class, resp.Error)
		}
		got, body := rec.last()
		for _, secret := range secrets {
			if err := sign.Verify("", []sign.Secret{secret}, got.Header, nil, []byte(body), 0); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		var lines []string
		for name, values := range got.Header {
			lines = append(lines, name+": "+strings.Join(values, " and "))
		}
		slices.Sort(lines)
		said := fmt.Sprintf("%s %s\n%s\n%q, %d bytes %v\nshown:", got.Method, got.RequestURI, strings.Join(lines, "\n"), body,
			got.ContentLength, got.TransferEncoding)
		for _, h := range resp.RequestHeaders {
			said += "\n" + h.Name + ": " + h.Value
		}
		for _, f := range fresh {
			said = f.pattern.ReplaceAllString(said, f.name)
		}
		expect(t, resp, okay)
		return said
	})
}

// TestMasks: what is shown of URLs, and which headers are hidden.
func TestMasks(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/masked.txt", func(line string) string {
		if name, ok := strings.CutPrefix(line, "header "); ok {
			sealed, hidden := store.IsCredentialHeader(name), store.IsSensitiveHeader(name)
			return fmt.Sprintf("credential %v, hidden %v", sealed, hidden)
		}
		return store.MaskURL(line)
	})
}
