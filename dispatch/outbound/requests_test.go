package outbound

import (
	"cmp"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
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
	requestHeader  = regexp.MustCompile(`(?s)^ \[([^:\]]*): (.*?)\]`)
	merchantHeader = regexp.MustCompile(
		`nonce_str="([0-9A-Z]{26})",signature="([0-9A-Za-z+/]+=*)",timestamp="(\d{10})"`)
	// fresh are the values that differ with each attempt.
	fresh = []struct {
		pattern *regexp.Regexp
		name    string
	}{
		{regexp.MustCompile(`v1,\S{44}`), "v1,SIGNATURE"},
		{regexp.MustCompile(`00-[0-9a-f]{32}-[0-9a-f]{16}-00`), "TRACE"},
		{regexp.MustCompile(`(webhook-timestamp|Webhook-Timestamp): \d{10}`), "$1: TIME"},
		{merchantHeader, `nonce_str="NONCE",signature="SIGNATURE",timestamp="TIME"`},
	}
)

// TestRequests prints each request as the receiver gets it and its redacted headers.
func TestRequests(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	host := strings.TrimPrefix(rec.URL, "http://")
	client := newTestClient(t, Options{Version: "1.2.3"})
	by := newRequest("")
	by.Number, by.ContentType, by.Body = 7, "", nil
	merchant, err := x509.ParsePKCS8PrivateKey(signtest.Secret(t, sign.UseRSA, 0))
	if err != nil {
		t.Fatal(err)
	}
	transcript.Run(t, "testdata/requests.txt", func(line string) string {
		method, rest, _ := strings.Cut(line, " ")
		switch method {
		case "unsigned":
			by.Secrets = nil
			return ""
		case "keys":
			by.Secrets = nil
			for i, key := range strings.Split(rest, " | ") {
				by.Secrets = append(by.Secrets, sign.Secret{ID: fmt.Sprint("key-", i+1), Key: []byte(key)})
			}
			return ""
		case "merchant":
			by.Secrets = []sign.Secret{{ID: "merchant", Label: rest, Key: signtest.Secret(t, sign.UseRSA, 0)}}
			return ""
		case "signer":
			by.Signer = rest
			return ""
		}
		r := by
		end := strings.Index(rest+" [", " [")
		r.Method, r.URL, rest = method, strings.Replace(rest[:end], "here", host, 1), rest[end:]
		for {
			m := requestHeader.FindStringSubmatch(rest)
			if m == nil {
				break
			}
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
		resp := client.Send(t.Context(), r)
		got, arrived := rec.take()
		if !arrived {
			return describe(t, resp)
		}
		expect(t, resp, okay)
		for _, secret := range r.Secrets {
			err := sign.Verify(r.Signer, []sign.Secret{secret}, got.Header, got.URL, got.body, 0)
			if err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
		if m := merchantHeader.FindStringSubmatch(got.Header.Get("Authorization")); m != nil {
			checkMerchant(t, got, &merchant.(*rsa.PrivateKey).PublicKey, m[1], m[2], m[3])
		}
		var lines []string
		for name, values := range got.Header {
			lines = append(lines, name+": "+strings.Join(values, " and "))
		}
		slices.Sort(lines)
		text := fmt.Sprintf("%s %s\n%s\n%q, %d bytes %v\nsigned by: %s\nstored:",
			got.Method, got.RequestURI, strings.Join(lines, "\n"), got.body,
			got.ContentLength, got.TransferEncoding, cmp.Or(resp.KeyID, "no key"))
		for _, h := range resp.RequestHeaders {
			text += "\n" + h.Name + ": " + h.Value
		}
		for _, f := range fresh {
			text = f.pattern.ReplaceAllString(text, f.name)
		}
		return text
	})
}

// checkMerchant checks that the signature of a WeChat Pay v3 request covers method, path and query as sent.
func checkMerchant(t *testing.T, got arrival, key *rsa.PublicKey, nonce, signature, seconds string) {
	t.Helper()
	text := strings.Join([]string{got.Method, got.RequestURI, seconds, nonce, string(got.body), ""}, "\n")
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	if err != nil || rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], raw) != nil ||
		seconds != got.Header.Get("webhook-timestamp") {
		t.Errorf("%s %s: the signature of %s is not over %q", got.Method, got.RequestURI, seconds, text)
	}
}

// TestMasks prints masked URLs, and which headers are credentials or masked.
func TestMasks(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/masked.txt", func(line string) string {
		if name, ok := strings.CutPrefix(line, "header "); ok {
			sealed, hidden := store.IsCredentialHeader(name), store.IsSensitiveHeader(name)
			return fmt.Sprintf("credential %v, masked %v", sealed, hidden)
		}
		return store.MaskURL(line)
	})
}
