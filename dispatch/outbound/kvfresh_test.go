package outbound

import (
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestSortedKVIsFreshAtEachAttempt: the same request made twice has a nonce and a time of its own each time, which are signed, where the
// signed fields are; every other byte is the caller's.
func TestSortedKVIsFreshAtEachAttempt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options, method, contentType, query, body string
		// wantQuery and wantBody are patterns, with NONCE for the nonce.
		wantQuery, wantBody string
	}{
		"JSON": {
			`"nonce":"n","time":"t"`, "POST", "application/json", "?n=1", `{"a": 1} `, `n=1`, `\{"a": 1,"n":"NONCE","t":"\d{10}","sign":"[0-9A-F]{64}"\} `,
		},
		"an empty JSON object, in milliseconds": {
			`"alg":"md5","time":"t","time_format":"unix_ms","sign_type":"MD5","nonce":"n"`, "POST", "application/json", "", `{}`,
			``, `\{"n":"NONCE","t":"\d{13}","sign_type":"MD5","sign":"[0-9A-F]{32}"\}`,
		},
		"a form, as Alipay has it": {
			`"alg":"rsa2","exclude":["sign"],"sign_type":"RSA2","nonce":"n","time":"timestamp","time_format":"datetime"`, "POST",
			"application/x-www-form-urlencoded; charset=utf-8", "", "app_id=2014&biz_content=%7B%7D", ``,
			`app_id=2014&biz_content=%7B%7D&n=NONCE&timestamp=\d{4}-\d\d-\d\d\+\d\d%3A\d\d%3A\d\d&sign_type=RSA2&sign=.+`,
		},
		"XML, as WeChat Pay v2 has it": {
			`"alg":"md5","nonce":"nonce_str"`, "POST", "text/xml", "", "<xml><mch_id>1</mch_id></xml>\n",
			``, `<xml><mch_id>1</mch_id><nonce_str>NONCE</nonce_str><sign>[0-9A-F]{32}</sign></xml>` + "\n",
		},
		"a query, as Alipay has it": {
			`"alg":"rsa2","exclude":["sign"],"put":{"in":"query"},"sign_type":"RSA2","nonce":"n","time":"timestamp","time_format":"datetime"`, "GET", "",
			"?app_id=2014&biz_content=%7B%7D", "", `app_id=2014&biz_content=%7B%7D&n=NONCE&timestamp=\d{4}-\d\d-\d\d\+\d\d%3A\d\d%3A\d\d&sign_type=RSA2&sign=.+`, ``,
		},
		"no query at all":             {`"put":{"in":"query"},"nonce":"n","time":"t"`, "GET", "", "", "", `n=NONCE&t=\d{10}&sign=[0-9A-F]{64}`, ``},
		"a query, signed in a header": {`"put":{"in":"header","name":"X-Sign"},"nonce":"n"`, "GET", "", "?a=%20", "", `a=%20&n=NONCE`, ``},
		"a body, signed in the query": {
			`"put":{"in":"query"},"sign_type":"x","nonce":"n","time":"t"`, "POST", "application/json", "?n=1", `{"a":1}`,
			`n=1&sign_type=x&sign=[0-9A-F]{64}`, `\{"a":1,"n":"NONCE","t":"\d{10}"\}`,
		},
		"a body, signed in a header": {`"put":{"in":"header","name":"X-Sign"},"nonce":"n"`, "POST", "", "", "a=1&", ``, `a=1&n=NONCE`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signer := `{"type":"sorted-kv",` + c.options + `}`
			use := signtest.UseOf(t, signer)
			secrets := signtest.Secrets(signtest.Secret(t, use, 0))
			rec := new(recorder)
			srv := httptest.NewServer(rec)
			defer srv.Close()
			client := newTestClient(t, Options{})
			nonces := make(map[string]bool)
			for number := range 2 {
				r := newRequest(srv.URL + "/query" + c.query)
				r.Number, r.Method, r.ContentType, r.Body = number+1, c.method, c.contentType, []byte(c.body)
				r.Signer, r.Secrets = signer, secrets
				if resp := client.Send(t.Context(), r); resp.Class != store.ClassOK {
					t.Fatal(resp.Class, resp.Error)
				}
				got, body := rec.last()
				for _, part := range [...]struct{ got, want string }{{got.URL.RawQuery, c.wantQuery}, {body, c.wantBody}} {
					m := regexp.MustCompile(`^` + strings.Replace(part.want, "NONCE", `([a-z0-9]{32})`, 1) + `$`).FindStringSubmatch(part.got)
					if m == nil {
						t.Fatalf("%q is not %s", part.got, part.want)
					}
					if len(m) > 1 {
						nonces[m[1]] = true
					}
				}
				if err := sign.Verify(signer, secrets, got.Header, got.URL, []byte(body), 0); err != nil {
					t.Errorf("attempt %d: %v", number+1, err)
				}
				for n := range nonces { // those of another request are not verified in this one
					other := func(text string) string { return strings.ReplaceAll(text, n, strings.Repeat("0", 32)) }
					u := *got.URL
					u.RawQuery = other(u.RawQuery)
					changed := u.RawQuery != got.URL.RawQuery || other(body) != body
					if err := sign.Verify(signer, secrets, got.Header, &u, []byte(other(body)), 0); changed && !errors.Is(err, sign.ErrSignature) {
						t.Errorf("with another nonce: %v", err)
					}
				}
			}
			if len(nonces) != 2 {
				t.Errorf("two attempts have nonces %v", nonces)
			}
		})
	}
}
