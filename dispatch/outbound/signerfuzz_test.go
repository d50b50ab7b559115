package outbound

import (
	"net/http"
	"net/url"
	"testing"
)

func FuzzParseSigner(f *testing.F) {
	for _, signer := range everySigner {
		f.Add(signer)
	}
	f.Add(`{"type":"sorted-kv","exclude":["a","b"],"put":{"name":"x","in":"header"}}`)
	f.Fuzz(func(t *testing.T, raw string) {
		text, wrong := ParseSigner([]byte(raw))
		if (text == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", text, wrong)
		}
		if text == "" {
			return
		}
		s, err := readSigner(text)
		if err != nil || s.text() != text {
			t.Fatalf("%s is read again as %+v, %v", text, s, err)
		}
		if _, err := UseOf(text); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzVerifyAny: nothing is taken that was not signed.
func FuzzVerifyAny(f *testing.F) {
	f.Add("1614265330", "v1,abc v1a,x t=1614265330,v1=00", `{"sign":"x"}`, "sign=x&sig=y", "application/json")
	f.Add("1", "Basic dXNlcjpwYXNz", "sign=&a=1", "", "")
	f.Fuzz(func(t *testing.T, seconds, signature, body, query, contentType string) {
		h := make(http.Header)
		for _, name := range []string{headerID, headerSignature, defaultBodyHeader, defaultTimestampedHeader, "X-Sign", weChatSignature, weChatNonce, "Authorization"} {
			h.Set(name, signature)
		}
		h.Set(headerTimestamp, seconds)
		h.Set(weChatTimestamp, seconds)
		h.Set("Content-Type", contentType)
		for _, signer := range everySigner {
			use := useOf(t, signer)
			if err := VerifyAny(signer, secretsOf(secretFor(t, use, 0)), h, &url.URL{RawQuery: query}, []byte(body), -1); err == nil {
				t.Fatalf("%s: forged", signer)
			}
		}
	})
}
