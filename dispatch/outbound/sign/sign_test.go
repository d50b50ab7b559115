package sign_test

import (
	"bytes"
	"net/http"
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
					sign.HeaderID: {id}, sign.HeaderTimestamp: {r.Seconds}, sign.HeaderSignature: {ours.Standard},
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
