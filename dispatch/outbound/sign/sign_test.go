package sign_test

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
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
				value, err := sign.SignStandard(id, now, []byte(body), [][]byte{[]byte(strings.Repeat("other", 6)), secret})
				if err != nil {
					t.Fatal(err)
				}
				h := signedHeader(id, now, value)
				if err := reference.Verify([]byte(body), h); err != nil {
					t.Errorf("reference library: %v", err)
				}
				theirs, err := reference.Sign(id, now, []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				h.Set("webhook-signature", "v1a,unknown "+theirs)
				if err := sign.Verify([][]byte{secret}, h, []byte(body), 0); err != nil {
					t.Errorf("Verify of the reference library's signature: %v", err)
				}
			}
		}
	}
}

func signedHeader(id string, at time.Time, signature string) http.Header {
	h := make(http.Header)
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", strconv.FormatInt(at.Unix(), 10))
	h.Set("webhook-signature", signature)
	return h
}

// TestVerify: what TestEverySignerIsVerified and TestTimestampsAreVerified do not try.
func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		at     time.Time
		id     string
		secret []byte
		want   error
	}{
		"right":           {now, "cb_1", signtest.Shortest(), nil},
		"another id":      {now, "cb_2", signtest.Shortest(), sign.ErrSignature},
		"too new":         {now.Add(6 * time.Minute), "cb_1", signtest.Shortest(), sign.ErrTimestamp},
		"an empty secret": {now, "cb_1", nil, sign.ErrNoSecret},
	} {
		value, err := sign.SignStandard("cb_1", c.at, []byte("body"), [][]byte{signtest.Shortest()})
		if err != nil {
			t.Fatal(err)
		}
		if err := sign.Verify([][]byte{c.secret}, signedHeader(c.id, c.at, value), []byte("body"), 0); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestSignRefusesAnEmptySecret(t *testing.T) {
	t.Parallel()
	if got, err := sign.SignStandard("cb_1", time.Now(), nil, [][]byte{signtest.Shortest(), {}}); err == nil || got != "" {
		t.Errorf("Sign = %q, %v", got, err)
	}
	if got, err := sign.SignStandard("cb_1", time.Now(), nil, nil); err != nil || got != "" {
		t.Errorf("without secrets: %q, %v", got, err)
	}
}
