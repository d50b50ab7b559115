package sign_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

// FuzzVerify: nothing is taken that was not signed.
func FuzzVerify(f *testing.F) {
	f.Add("1614265330", "v1,abc v1a,x t=1614265330,v1=00", `{"sign":"x"}`, "sign=x&sig=y", "application/json")
	f.Add("1", "Basic dXNlcjpwYXNz", "sign=&a=1", "", "")
	f.Fuzz(func(t *testing.T, seconds, signature, body, query, contentType string) {
		h := make(http.Header)
		for _, name := range []string{
			sign.HeaderID, sign.HeaderSignature, "X-Signature-256", "X-Signature", "X-Sign", "Wechatpay-Signature",
			"Wechatpay-Nonce", "Authorization",
		} {
			h.Set(name, signature)
		}
		h.Set(sign.HeaderTimestamp, seconds)
		h.Set("Wechatpay-Timestamp", seconds)
		h.Set("Content-Type", contentType)
		for _, signer := range signtest.Every {
			secrets := signtest.Secrets(signtest.Secret(t, signtest.UseOf(t, signer), 0))
			if sign.Verify(signer, secrets, h, &url.URL{RawQuery: query}, []byte(body), -1) == nil {
				t.Fatalf("%s: forged", signer)
			}
		}
	})
}
