package outbound

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestNothingIsSentUnsigned: a key that cannot sign puts the attempt off.
func TestNothingIsSentUnsigned(t *testing.T) {
	t.Parallel()
	weak := []byte("hunter2-is-not-a-key")
	for _, signer := range signtest.Every {
		use := signtest.UseOf(t, signer)
		wrong := [][]sign.Secret{signtest.Secrets(nil), signtest.Secrets(signtest.Secret(t, use, 0), nil), signtest.Secrets([]byte{})}
		if signer != "" {
			wrong = append(wrong, nil)
		}
		switch use {
		case sign.UseEd25519, sign.UseRSA:
			wrong = append(wrong, signtest.Secrets(weak), signtest.Secrets(make([]byte, 32)))
		case sign.UseText:
			wrong = append(wrong, signtest.Secrets([]byte("hunter2-\x00\x01")), signtest.Secrets([]byte("short")), signtest.Secrets([]byte("hunter2 with spaces\r\nX: 1")))
		case sign.UseBasic:
			wrong = append(wrong, signtest.Secrets(weak), signtest.Secrets([]byte(":hunter2")), signtest.Secrets([]byte("user:pw\r\nX: 1")))
		}
		for _, secrets := range wrong {
			got, _, r := signed(t, func(r *Request) { r.Signer, r.Secrets = signer, secrets })
			if got != nil {
				t.Errorf("%s: sent with %q", signer, secrets)
			}
			want{class: store.ClassSignError, uncharged: true, local: true}.check(t, r)
			if strings.Contains(r.Error, "hunter2") {
				t.Errorf("%s: the error shows the key: %s", signer, r.Error)
			}
		}
	}
	for _, signer := range []string{"x", "{", `{"type":"none","a":1}`, `"none"`} {
		got, _, r := signed(t, func(r *Request) { r.Signer = signer })
		if got != nil {
			t.Errorf("%s: sent", signer)
		}
		want{class: store.ClassInvalidRequest}.check(t, r)
	}
}

// TestSignersSetTheirHeaders: beside those that every request has; a caller's header of the same name is not sent.
func TestSignersSetTheirHeaders(t *testing.T) {
	t.Parallel()
	all := map[string]string{
		"": "webhook-signature", "standard-v1a": "webhook-signature", "hmac-sha256-body": "x-signature-256", "t-v1": "x-signature",
		"basic": "authorization", "bearer": "authorization", "wechat-v3-rsa": "wechatpay-signature", "none": "",
		`{"type":"sorted-kv","put":{"in":"header","name":"x-sign"}}`: "x-sign", `{"type":"wechat-v3-rsa","mchid":"1900009191"}`: "authorization",
	}
	const callersOwn = "the caller's own" // no signature has its blanks by chance
	for signer, header := range all {
		use := signtest.UseOf(t, signer)
		got, _, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets = signer, nil
			if use != "" {
				r.Secrets = signtest.Secrets(signtest.Secret(t, use, 0))
			}
			if header != "" && header != "webhook-signature" {
				r.Headers = []store.Header{{Name: strings.ToUpper(header), Value: callersOwn}}
			}
		})
		if r.Class != store.ClassOK {
			t.Errorf("%s: %s %s", signer, r.Class, r.Error)
			continue
		}
		for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-attempt", "traceparent", "user-agent", "content-type"} {
			if got.Header.Get(name) == "" {
				t.Errorf("%s: no %s", signer, name)
			}
		}
		if _, ok := got.Header["Webhook-Signature"]; ok != (header == "webhook-signature") {
			t.Errorf("%s: webhook-signature %v", signer, ok)
		}
		if header == "" {
			continue
		}
		if values := got.Header.Values(header); len(values) != 1 || strings.Contains(values[0], callersOwn) {
			t.Errorf("%s: %s: %q", signer, header, values)
		}
		shown := 0
		for _, h := range r.RequestHeaders {
			if strings.EqualFold(h.Name, header) {
				shown++
				if h.Value != store.Masked {
					t.Errorf("%s: %s is shown", signer, header)
				}
			}
		}
		if shown != 1 {
			t.Errorf("%s: %s is shown %d times", signer, header, shown)
		}
	}
}

const merchant = `{"type":"wechat-v3-rsa","mchid":"1900009191"}`

var merchantHeader = regexp.MustCompile(
	`^WECHATPAY2-SHA256-RSA2048 mchid="1900009191",nonce_str="([0-9A-Z]{26})",signature="([0-9A-Za-z+/]+=*)",timestamp="(\d{10})",serial_no="5157F09EFDC096DE"$`)

// TestMerchantsSignTheirRequests: what WeChat Pay v3 is asked is signed anew each time, over method, path and query as they were sent.
func TestMerchantsSignTheirRequests(t *testing.T) {
	t.Parallel()
	secret := sign.Secret{ID: "sec_1", Label: "5157F09EFDC096DE", Key: signtest.Secret(t, sign.UseRSA, 0)}
	private, err := x509.ParsePKCS8PrivateKey(secret.Key)
	if err != nil {
		t.Fatal(err)
	}
	rec := new(recorder)
	srv := httptest.NewServer(rec)
	defer srv.Close()
	client := newTestClient(t, Options{})
	nonces := make(map[string]bool)
	for _, c := range []struct{ method, url, target, body string }{
		{"GET", "/v3/pay/transactions/out-trade-no/1217752501?mchid=1900009191", "/v3/pay/transactions/out-trade-no/1217752501?mchid=1900009191", ""},
		{"GET", "", "/", ""},
		{"GET", "/a%2Fb/%E6%94%AF?", "/a%2Fb/%E6%94%AF?", ""},
		{"DELETE", "/支付?x=a%20b&&y=+", "/%E6%94%AF%E4%BB%98?x=a%20b&&y=+", ""},
		{"POST", "/v3/refund", "/v3/refund", `{"amount": {"total": 1}}` + "\n"},
	} {
		for range 2 {
			r := newRequest(srv.URL + c.url)
			r.Method, r.Body, r.Signer, r.Secrets = c.method, []byte(c.body), merchant, []sign.Secret{secret}
			r.Headers = []store.Header{{Name: "Accept", Value: "application/json"}, {Name: "authorization", Value: "the caller's own"}}
			resp := client.Send(t.Context(), r)
			if resp.Class != store.ClassOK || resp.KeyID != "sec_1" {
				t.Fatal(c.url, resp.Class, resp.Error, resp.KeyID)
			}
			got, body := rec.last()
			values := got.Header.Values("Authorization")
			m := merchantHeader.FindStringSubmatch(strings.Join(values, " | "))
			if m == nil {
				t.Fatalf("%s: %q", c.url, values)
			}
			if nonces[m[1]] || m[3] != got.Header.Get("webhook-timestamp") || got.Header.Get("Wechatpay-Signature") != "" {
				t.Errorf("%s: %v", c.url, got.Header)
			}
			nonces[m[1]] = true
			text := c.method + "\n" + c.target + "\n" + m[3] + "\n" + m[1] + "\n" + c.body + "\n"
			if got.RequestURI != c.target || !isSignedSHA256(private.(*rsa.PrivateKey), text, m[2]) {
				t.Errorf("%s %s: the signature is not over %q", got.Method, got.RequestURI, text)
			}
			if err := sign.Verify(merchant, []sign.Secret{secret}, got.Header, got.URL, []byte(body), 0); err != nil {
				t.Errorf("%s: %v", c.url, err)
			}
			for _, h := range resp.RequestHeaders {
				if strings.EqualFold(h.Name, "authorization") && h.Value != store.Masked {
					t.Errorf("%s is shown", h.Value)
				}
			}
		}
	}
}

func isSignedSHA256(key *rsa.PrivateKey, text, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	return err == nil && rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], raw) == nil
}

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
