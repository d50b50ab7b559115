package sign_test

import (
	"net/http"
	"net/url"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

func FuzzParseSigner(f *testing.F) {
	for _, signer := range signtest.Every {
		f.Add(signer)
	}
	f.Add(`{"type":"sorted-kv","exclude":["a","b"],"put":{"name":"x","in":"header"}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		text, wrong := sign.Parse([]byte(raw))
		if (text == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", text, wrong)
		}
		if text == "" {
			return
		}
		if again := reparse(text); again != text {
			t.Fatalf("%s is read again as %s", text, again)
		}
		if _, err := sign.UseOf(text); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzVerify: nothing is taken that was not signed.
func FuzzVerify(f *testing.F) {
	f.Add("1614265330", "v1,abc v1a,x t=1614265330,v1=00", `{"sign":"x"}`, "sign=x&sig=y", "application/json")
	f.Add("1", "Basic dXNlcjpwYXNz", "sign=&a=1", "", "")
	f.Fuzz(func(t *testing.T, seconds, signature, body, query, contentType string) {
		h := make(http.Header)
		for _, name := range []string{sign.HeaderID, sign.HeaderSignature, "X-Signature-256", "X-Signature", "X-Sign", "Wechatpay-Signature", "Wechatpay-Nonce", "Authorization"} {
			h.Set(name, signature)
		}
		h.Set(sign.HeaderTimestamp, seconds)
		h.Set("Wechatpay-Timestamp", seconds)
		h.Set("Content-Type", contentType)
		for _, signer := range signtest.Every {
			use := signtest.UseOf(t, signer)
			if err := sign.Verify(signer, signtest.Secrets(signtest.Secret(t, use, 0)), h, &url.URL{RawQuery: query}, []byte(body), -1); err == nil {
				t.Fatalf("%s: forged", signer)
			}
		}
	})
}
