package sign_test

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

func TestTimestampsAreVerified(t *testing.T) {
	t.Parallel()
	for signer, header := range map[string]string{
		"standard-v1": "webhook-timestamp", "standard-v1a": "webhook-timestamp", "t-v1": "X-Signature", "wechat-v3-rsa": "Wechatpay-Timestamp",
	} {
		secrets := signtest.Secrets(signtest.Secret(t, signtest.UseOf(t, signer), 0))
		a, err := signtest.Send(t, signer, sign.Request{At: time.Now().Add(-time.Hour), Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		for tolerance, want := range map[time.Duration]error{0: sign.ErrTimestamp, 2 * time.Hour: nil, -1: nil} {
			if err := sign.Verify(signer, secrets, a.Header, nil, a.Body, tolerance); !errors.Is(err, want) {
				t.Errorf("%s, an hour old, tolerance %v: %v, want %v", signer, tolerance, err, want)
			}
		}
		for _, wrong := range []string{"x", "", "t=x,v1=00", "v1=00", "t=1"} {
			a.Header.Set(header, wrong)
			if err := sign.Verify(signer, secrets, a.Header, nil, a.Body, -1); !errors.Is(err, sign.ErrHeaders) {
				t.Errorf("%s with %s: %q: %v", signer, header, wrong, err)
			}
		}
	}
}

// TestMerchantsAreVerified: nothing is taken that was not signed, or not now.
func TestMerchantsAreVerified(t *testing.T) {
	t.Parallel()
	const merchant = `{"type":"wechat-v3-rsa","mchid":"1900009191"}`
	secrets := signtest.Secrets(signtest.Secret(t, sign.UseRSA, 0))
	for name, c := range map[string]struct {
		signer    string
		ago       time.Duration
		old, new  string
		uri, body string
		want      error
	}{
		"as it is":         {signer: merchant},
		"old":              {signer: merchant, ago: time.Hour, want: sign.ErrTimestamp},
		"another merchant": {signer: `{"type":"wechat-v3-rsa","mchid":"1900009192"}`, want: sign.ErrSignature},
		"merchant changed": {signer: merchant, old: `mchid="1`, new: `mchid="2`, want: sign.ErrSignature},
		"another query":    {signer: merchant, uri: "/query?a=2", want: sign.ErrSignature},
		"another path":     {signer: merchant, uri: "/close?a=1", want: sign.ErrSignature},
		"another body":     {signer: merchant, body: "{}", want: sign.ErrSignature},
		"another nonce":    {signer: merchant, old: `nonce_str="`, new: `nonce_str="A`, want: sign.ErrSignature},
		"a later time":     {signer: merchant, old: `timestamp="`, new: `timestamp="0`, want: sign.ErrSignature},
		"another scheme":   {signer: merchant, old: "RSA2048", new: "SM3", want: sign.ErrHeaders},
		"no nonce":         {signer: merchant, old: "nonce_str", new: "nonce", want: sign.ErrHeaders},
		"no signature":     {signer: merchant, old: "signature", new: "sign", want: sign.ErrHeaders},
		"no number":        {signer: merchant, old: `timestamp="`, new: `timestamp="x`, want: sign.ErrHeaders},
		"as a platform":    {signer: sign.WeChatV3, want: sign.ErrHeaders},
	} {
		a, err := signtest.Send(t, merchant, sign.Request{At: time.Now().Add(-c.ago), Secrets: secrets})
		if err != nil {
			t.Fatal(err)
		}
		a.Header.Set("Authorization", strings.Replace(a.Header.Get("Authorization"), c.old, c.new, 1))
		if a.URL, err = url.ParseRequestURI(cmp.Or(c.uri, "/query?a=1")); err != nil {
			t.Fatal(err)
		}
		a.Body = []byte(cmp.Or(c.body, string(a.Body)))
		if err := a.Verify(c.signer, secrets...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

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
