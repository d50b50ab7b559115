package outbound

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// slashed escapes slashes as PHP does in JSON.
func slashed(s string) string { return strings.ReplaceAll(s, "/", `\/`) }

// serveEcho answers with the whole request, as text and in the ways in which receivers put it into JSON. It
// stores the signatures of the last request.
func serveEcho(t *testing.T, signatures *atomic.Value) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dump, err := httputil.DumpRequest(r, true)
		if err != nil {
			t.Error(err)
		}
		signatures.Store(signaturesOf(r))
		user, password, _ := r.BasicAuth()
		authorization := r.Header.Get("Authorization")
		_, credential, _ := strings.Cut(authorization, " ")
		quoted, _ := json.Marshal(authorization + " & " + password)
		w.Header().Set("Server", authorization+" "+r.URL.RawQuery)
		w.Header().Set("X-Request-Id", user+":"+password+strings.Repeat("x", maxStoredHeader-10)+
			r.Header.Get("X-Api-Key"))
		w.Header().Set("Content-Type", r.Header.Get("Cookie"))
		w.Header().Set("Location", r.URL.String())
		switch r.URL.Path {
		case "/302":
			w.WriteHeader(302)
		case "/long": // the stored text ends within a credential
			io.WriteString(w, strings.Repeat("-", MaxStoredBytes-1000)+string(dump)+string(dump)+string(dump))
			return
		case "/json":
			body, _ := json.Marshal(map[string]string{"a": authorization, "c": credential, "d": string(dump),
				"p": password})
			w.Write(body)
			return
		}
		fmt.Fprintf(w, "%s\n%s\n%s\n%s %s\n%s", dump, quoted, slashed(string(dump)), user, password,
			slashed(authorization))
	}))
	t.Cleanup(srv.Close)
	return srv
}

// signaturesOf returns the signatures in a request, except webhook-signature.
func signaturesOf(r *http.Request) []string {
	found := append(r.URL.Query()["sign"], r.URL.Query()["sig"]...)
	for _, name := range append(signatureHeaders, "X-Signature-256-Previous") {
		found = append(found, r.Header.Values(name)...)
	}
	var fields struct{ Sign string }
	if json.NewDecoder(r.Body).Decode(&fields) == nil && fields.Sign != "" {
		found = append(found, fields.Sign)
	}
	return found
}

// leakyURLs returns URLs at which attempts end in every way. The first four echo the request, and the last
// one times out.
func leakyURLs(t *testing.T, signatures *atomic.Value) []string {
	echo := serveEcho(t, signatures)
	garbage := serveAnswer(t, "Bearer hunter2-token\r\n\r\n")
	hang := serveRaw(t, silence)
	return []string{
		echo.URL + "/", echo.URL + "/302", echo.URL + "/json", echo.URL + "/long", garbage.URL,
		"http://127.0.0.1:1/",
		"http://10.0.0.1/", strings.Replace(echo.URL, "http:", "https:", 1), hang.URL,
	}
}

// checkNoLeak fails the test if a response contains one of the secrets.
func checkNoLeak(t *testing.T, what, address string, resp Response, secrets []string) {
	t.Helper()
	text, err := json.Marshal(resp)
	if err != nil {
		t.Fatal(err)
	}
	all := string(text) + fmt.Sprintf("%+v", resp)
	for _, secret := range secrets {
		for _, form := range []string{secret, slashed(secret), slashed(slashed(secret))} {
			if strings.Contains(all, form) {
				t.Errorf("%s to %s (%s): %q is in the response: %s", what, store.MaskURL(address), resp.Class,
					parse.Cut(form, 40), all)
			}
		}
	}
}

// TestSecretsAreRedacted checks that no part of a response contains signing secrets, credentials in headers
// or values of the query. It covers all ways to end an attempt, and receivers that echo the whole request.
func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	const query = "?token=query-value-1&plain=query%20value%202&query-value-3"
	secrets := []string{
		"hunter2", "query-value-1", "query value 2", "query%20value%202", "query-value-3",
		string(signtest.Shortest()), sign.FormatSecret(signtest.Shortest()),
		strings.TrimPrefix(sign.FormatSecret(signtest.Shortest()), sign.SecretPrefix),
	}
	urls := append(leakyURLs(t, new(atomic.Value)),
		"http://unknown.invalid/", "http://user:query-value-1@shop.example/")
	for _, url := range urls {
		r := newRequest(url + query)
		r.Timeout = 300 * time.Millisecond
		r.Success.Name = rule.BodySuccess
		r.Headers = []store.Header{
			{Name: "Authorization", Value: "Bearer hunter2-token"},
			{Name: "Cookie", Value: "session=hunter2-cookie"},
			{Name: "X-Api-Key", Value: "hunter2-api-key"}, {Name: "X-Access-Token", Value: "hunter2-access"},
			{Name: "X-Client-Secret", Value: "hunter2-client"},
			{Name: "X-Signature", Value: "hunter2-signature"},
			{Name: "X-Shop", Value: "visible-7"},
		}
		resp := c.Send(t.Context(), r)
		checkNoLeak(t, "headers", url, resp, secrets)
		if resp.RequestHeaders == nil {
			continue // refused before headers were made
		}
		headers := fmt.Sprint(resp.RequestHeaders)
		for _, visible := range []string{
			"visible-7", "cb_01JD0000000000000000000001", "webhook-timestamp", "{webhook-attempt 1}",
			"traceparent",
		} {
			if !strings.Contains(headers, visible) {
				t.Errorf("%s: %q should be visible: %s", store.MaskURL(url), visible, headers)
			}
		}
	}
}

// TestSignersLeakNothing checks that a response contains neither the secret nor the signature, however the
// attempt ends and wherever the receiver echoes them. Only webhook-signature may be in the receiver's text.
func TestSignersLeakNothing(t *testing.T) {
	t.Parallel()
	rules := []store.Success{
		{Name: rule.BodySuccess}, {Name: rule.JSONCode}, {Name: rule.WeChatV3},
		{Rule: `{"body":{"json":[{"pointer":"/a","eq":"x"},{"pointer":"/c","eq":"x"},` +
			`{"pointer":"/d","eq":"x"},{"pointer":"/p","eq":"x"}]}}`},
		{Rule: `{"permanent_if":{"body":{"json":[{"pointer":"/c","ne":"x"}]}}}`},
		{Rule: `{"defer_if":{"body":{"regex":"."}}}`},
	}
	c := newTestClient(t, Options{})
	var signatures atomic.Value
	urls := leakyURLs(t, &signatures)
	for _, signer := range signtest.Every {
		use := signtest.UseOf(t, signer)
		keys := [][]byte{signtest.Secret(t, use, 0), signtest.Secret(t, use, 1)}
		for i, u := range urls {
			silent := i == len(urls)-1
			for _, by := range rules {
				if silent && by.Name != rule.BodySuccess {
					continue // no answer, so the rule does not matter
				}
				r := newRequest(u)
				r.Body, r.Success = []byte(`{"paid":1,"note":"a/b"}`), by
				if silent {
					r.Timeout = 50 * time.Millisecond
				}
				r.Signer, r.Secrets = signer, signtest.Secrets(keys...)
				signatures.Store([]string{})
				resp := c.Send(t.Context(), r)
				checkKeysAreRedacted(t, resp, signer, use, u, keys)
				made := signatures.Load().([]string)
				if signer == "" || strings.HasPrefix(signer, "standard") {
					continue // webhook-signature may be visible
				}
				if resp.Answered && len(made) == 0 {
					t.Errorf("%s: no signature is in the request to %s", signer, store.MaskURL(u))
				}
				for _, signature := range made {
					checkNoLeak(t, signer, u, resp, []string{signature, url.QueryEscape(signature)})
				}
			}
		}
	}
}

// checkKeysAreRedacted checks that a response contains the keys in no form, and that sensitive headers are
// masked.
func checkKeysAreRedacted(t *testing.T, resp Response, signer, use, address string, keys [][]byte) {
	t.Helper()
	var secrets []string
	for _, key := range keys {
		written := sign.FormatSecretFor(use, key)
		secrets = append(secrets, string(key), written, hex.EncodeToString(key),
			base64.StdEncoding.EncodeToString(key), url.QueryEscape(string(key)))
		if _, password, ok := strings.Cut(string(key), ":"); ok && use == sign.UseBasic {
			secrets = append(secrets, password)
		}
	}
	checkNoLeak(t, signer, address, resp, secrets)
	for _, h := range resp.RequestHeaders {
		isVisible := !store.IsSensitiveHeader(h.Name) || h.Name == "Wechatpay-Signature-Type"
		if !isVisible && h.Value != store.Masked {
			t.Errorf("%s: %s: %s is not masked", signer, h.Name, h.Value)
		}
	}
}
