package outbound

import (
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestSignedHeadersArrive checks that a signature header arrives in place of a caller's header of the same
// name, with the headers that every request has. The received request verifies.
func TestSignedHeadersArrive(t *testing.T) {
	t.Parallel()
	const callersOwn = "the caller's own" // a signature never contains spaces
	rec, client := newRecorder(t), newTestClient(t, Options{})
	for _, signer := range append([]string{sign.None}, signtest.Every...) {
		use := signtest.UseOf(t, signer)
		var secrets []sign.Secret
		if use != "" {
			secrets = signtest.Secrets(signtest.Secret(t, use, 0))
		}
		sent := newRequest(rec.URL)
		sent.Signer, sent.Secrets = signer, secrets
		for _, name := range signatureHeaders {
			sent.Headers = append(sent.Headers, store.Header{Name: strings.ToUpper(name), Value: callersOwn})
		}
		r := client.Send(t.Context(), sent)
		expect(t, r, okay)
		got, ok := rec.take()
		if !ok {
			t.Errorf("%s: %s", signer, r.Error)
			continue
		}
		if err := sign.Verify(signer, secrets, got.Header, got.URL, got.body, 0); err != nil {
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
			stored := slices.DeleteFunc(slices.Clone(r.RequestHeaders), func(h store.Header) bool {
				return !strings.EqualFold(h.Name, name)
			})
			if len(stored) != 1 || got.Header.Get(name) != callersOwn && stored[0].Value != store.Masked {
				t.Errorf("%s: %s is stored as %v", signer, name, stored)
			}
		}
	}
}

// signatureHeaders are the headers, besides webhook-signature, that the signers of signtest.Every use.
var signatureHeaders = []string{
	"X-Signature-256", "X-Shopify-Hmac-Sha256", "X-Signature", "Stripe-Signature", "X-Sign",
	"Wechatpay-Signature", "Authorization",
}
