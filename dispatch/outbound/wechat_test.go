package outbound

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

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
