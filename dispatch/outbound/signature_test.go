package outbound

import (
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
