package sign_test

import (
	"bytes"
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
				a, err := signtest.Send(t, sign.Standard, sign.Request{
					ID: id, At: now, Body: []byte(body), Secrets: signtest.Secrets([]byte(strings.Repeat("other", 6)), secret),
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := reference.Verify([]byte(body), a.Header); err != nil {
					t.Errorf("reference library: %v", err)
				}
				theirs, err := reference.Sign(id, now, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				a.Header.Set("webhook-signature", "v1a,unknown "+theirs)
				if err := a.Verify("", signtest.Secrets(secret)...); err != nil {
					t.Errorf("Verify of the reference library's signature: %v", err)
				}
			}
		}
	}
}
