package sign_test

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

func TestSignAgreesWithTheReferenceLibrary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, size := range []int{sign.MinSecretBytes, 32, sign.MaxSecretBytes} {
		secret := bytes.Repeat([]byte{byte(size)}, size)
		reference, err := standardwebhooks.NewWebhook(sign.FormatSecret(secret))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"", "{}", "\x00\xff not text", strings.Repeat("x", 300_000)} {
			for _, id := range []string{"cb_01JD0000000000000000000001", strings.Repeat("i", 200)} {
				r := sign.Request{
					ID: id, Seconds: strconv.FormatInt(now.Unix(), 10), Body: []byte(body),
					Secrets: signtest.Secrets([]byte(strings.Repeat("other", 6)), secret),
				}
				ours, err := sign.NewCache().Sign(sign.Standard, &r)
				if err != nil {
					t.Fatal(err)
				}
				h := http.Header{
					sign.HeaderID: {id}, sign.HeaderTimestamp: {r.Seconds},
					sign.HeaderSignature: {ours.Standard},
				}
				if err := reference.Verify(r.Body, h); err != nil {
					t.Errorf("reference library: %v", err)
				}
				theirs, err := reference.Sign(id, now, r.Body)
				if err != nil {
					t.Fatal(err)
				}
				h.Set("webhook-signature", "v1a,unknown "+theirs)
				if err := sign.Verify("", signtest.Secrets(secret), h, nil, r.Body, 0); err != nil {
					t.Errorf("Verify of the reference library's signature: %v", err)
				}
			}
		}
	}
}

// FuzzVerify checks that unsigned requests do not verify.
func FuzzVerify(f *testing.F) {
	f.Add("1614265330", "v1,abc v1a,x t=1614265330,v1=00", `{"sign":"x"}`, "sign=x&sig=y", "application/json")
	f.Add("1", "Basic dXNlcjpwYXNz", "sign=&a=1", "", "")
	f.Fuzz(func(t *testing.T, seconds, signature, body, query, contentType string) {
		h := make(http.Header)
		for _, name := range []string{
			sign.HeaderID, sign.HeaderSignature, "X-Signature-256", "X-Signature", "X-Sign",
			"Wechatpay-Signature", "Wechatpay-Nonce", "Authorization",
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
