package outbound

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestNothingIsSentUnsigned: a key that cannot sign puts the attempt off, a signer that cannot be read ends it.
func TestNothingIsSentUnsigned(t *testing.T) {
	t.Parallel()
	const off, ended = "sign_error failed, uncharged, local trouble", "invalid_request failed"
	for _, c := range []struct {
		signer  string
		secrets []sign.Secret
		want    string
	}{
		{"", signtest.Secrets(nil), off}, {"", signtest.Secrets(signtest.Shortest(), nil), off}, {sign.Standard, nil, off},
		{sign.Bearer, signtest.Secrets([]byte("hunter2 with spaces\r\nX: 1")), off},
		{sign.WeChatV3, signtest.Secrets([]byte("hunter2-is-not-a-key")), off},
		{"x", signtest.Secrets(signtest.Shortest()), ended}, {"{", nil, ended}, {`"none"`, nil, ended},
		{sign.SortedKV, signtest.Secrets(signtest.Secret(t, sign.UseText, 0)), ended}, // what it signs is no list of fields
	} {
		got, _, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets, r.Body = c.signer, c.secrets, []byte(`["paid"]`)
		})
		if got != nil {
			t.Errorf("%s: sent with %q", c.signer, c.secrets)
		}
		expect(t, r, c.want)
		if strings.Contains(r.Error, "hunter2") {
			t.Errorf("%s: the error shows the key: %s", c.signer, r.Error)
		}
	}
}

// TestWhatSignersAddArrives: beside the headers that every request has, and in the place of a caller's header of the same
// name. What arrives is verified.
func TestWhatSignersAddArrives(t *testing.T) {
	t.Parallel()
	const callersOwn = "the caller's own" // no signature has its blanks by chance
	for _, signer := range append([]string{sign.None}, signtest.Every...) {
		use := signtest.UseOf(t, signer)
		var secrets []sign.Secret
		if use != "" {
			secrets = signtest.Secrets(signtest.Secret(t, use, 0))
		}
		got, body, r := signed(t, func(r *Request) {
			r.Signer, r.Secrets = signer, secrets
			for _, name := range signatureHeaders {
				r.Headers = append(r.Headers, store.Header{Name: strings.ToUpper(name), Value: callersOwn})
			}
		})
		if r.Class != store.ClassOK {
			t.Errorf("%s: %s %s", signer, r.Class, r.Error)
			continue
		}
		if err := sign.Verify(signer, secrets, got.Header, got.URL, body, 0); err != nil {
			t.Errorf("%s: %v", signer, err)
		}
		for _, name := range []string{"id", "timestamp", "attempt"} {
			if got.Header.Get("webhook-"+name) == "" {
				t.Errorf("%s: no webhook-%s", signer, name)
			}
		}
		isStandard := signer == "" || strings.HasPrefix(signer, "standard")
		if _, ok := got.Header["Webhook-Signature"]; ok != isStandard {
			t.Errorf("%s: webhook-signature %v", signer, ok)
		}
		for _, name := range signatureHeaders {
			if values := got.Header.Values(name); len(values) != 1 {
				t.Errorf("%s: %s: %q", signer, name, values)
			}
			shown := slices.DeleteFunc(slices.Clone(r.RequestHeaders), func(h store.Header) bool {
				return !strings.EqualFold(h.Name, name)
			})
			if len(shown) != 1 || got.Header.Get(name) != callersOwn && shown[0].Value != store.Masked {
				t.Errorf("%s: %s is shown as %v", signer, name, shown)
			}
		}
	}
}

// signatureHeaders are those that the signers of signtest.Every put signatures into, beside webhook-signature.
var signatureHeaders = []string{
	"X-Signature-256", "X-Shopify-Hmac-Sha256", "X-Signature", "Stripe-Signature", "X-Sign", "Wechatpay-Signature",
	"Authorization",
}

const merchant = `{"type":"wechat-v3-rsa","mchid":"1900009191"}`

var merchantHeader = regexp.MustCompile(
	`^WECHATPAY2-SHA256-RSA2048 mchid="1900009191",nonce_str="([0-9A-Z]{26})",` +
		`signature="([0-9A-Za-z+/]+=*)",timestamp="(\d{10})",serial_no="5157F09EFDC096DE"$`)

// TestMerchantsSignTheirRequests: what WeChat Pay v3 is asked is signed over method, path and query as they were sent.
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
	for _, c := range []struct{ method, url, target, body string }{
		{"GET", "", "/", ""},
		{"GET", "/v3/pay/out-trade-no/1217752501?mchid=1900009191", "/v3/pay/out-trade-no/1217752501?mchid=1900009191", ""},
		{"GET", "/a%2Fb/%E6%94%AF?", "/a%2Fb/%E6%94%AF?", ""},
		{"DELETE", "/支付?x=a%20b&&y=+", "/%E6%94%AF%E4%BB%98?x=a%20b&&y=+", ""},
		{"POST", "/v3/refund", "/v3/refund", `{"amount": {"total": 1}}` + "\n"},
	} {
		r := newRequest(srv.URL + c.url)
		r.Method, r.Body, r.Signer, r.Secrets = c.method, []byte(c.body), merchant, []sign.Secret{secret}
		if resp := client.Send(t.Context(), r); resp.Class != store.ClassOK || resp.KeyID != "sec_1" {
			t.Fatal(c.url, resp.Class, resp.Error, resp.KeyID)
		}
		got, body := rec.last()
		m := merchantHeader.FindStringSubmatch(got.Header.Get("Authorization"))
		if m == nil || m[3] != got.Header.Get("webhook-timestamp") {
			t.Fatalf("%s: %q", c.url, got.Header)
		}
		text := strings.Join([]string{c.method, c.target, m[3], m[1], c.body, ""}, "\n")
		if got.RequestURI != c.target || !isSignedSHA256(private.(*rsa.PrivateKey), text, m[2]) {
			t.Errorf("%s %s: the signature is not over %q", got.Method, got.RequestURI, text)
		}
		if err := sign.Verify(merchant, []sign.Secret{secret}, got.Header, got.URL, []byte(body), 0); err != nil {
			t.Errorf("%s: %v", c.url, err)
		}
	}
}

func isSignedSHA256(key *rsa.PrivateKey, text, signature string) bool {
	raw, err := base64.StdEncoding.DecodeString(signature)
	sum := sha256.Sum256([]byte(text))
	return err == nil && rsa.VerifyPKCS1v15(&key.PublicKey, crypto.SHA256, sum[:], raw) == nil
}
