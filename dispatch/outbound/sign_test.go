package outbound

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func TestSignAgreesWithTheReferenceLibrary(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, size := range []int{MinSecretBytes, 32, MaxSecretBytes} {
		secret := bytes.Repeat([]byte{byte(size)}, size)
		reference, err := standardwebhooks.NewWebhook(FormatSecret(secret))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"", "{}", "\x00\xff not text", strings.Repeat("x", 300_000)} {
			for _, id := range []string{"cb_01JD0000000000000000000001", strings.Repeat("i", 200)} {
				value, err := Sign(id, now, []byte(body), [][]byte{[]byte(strings.Repeat("other", 6)), secret})
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
				if err := Verify([][]byte{secret}, h, []byte(body), 0); err != nil {
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

func TestVerify(t *testing.T) {
	t.Parallel()
	now := time.Now()
	id, body, secret, old := "cb_1", []byte("body"), testSecret(), []byte("the secret before the rotation")
	signed := func(at time.Time, secrets ...[]byte) http.Header {
		value, err := Sign(id, at, body, secrets)
		if err != nil {
			t.Fatal(err)
		}
		return signedHeader(id, at, value)
	}
	without := func(name string) http.Header {
		h := signed(now, secret)
		h.Del(name)
		return h
	}
	malformed := signed(now, secret)
	malformed.Set("webhook-timestamp", "1.5")
	foreign := signed(now, secret)
	foreign.Set("webhook-id", "cb_2")
	for _, c := range []struct {
		name      string
		h         http.Header
		body      string
		tolerance time.Duration
		want      error
	}{
		{"right", signed(now, secret), "body", 0, nil},
		{"two signatures during a rotation", signed(now, old, secret), "body", 0, nil},
		{"another secret", signed(now, old), "body", 0, ErrSignature},
		{"another body", signed(now, secret), "bodY", 0, ErrSignature},
		{"another id", foreign, "body", 0, ErrSignature},
		{"no id", without("webhook-id"), "body", 0, ErrHeaders},
		{"no timestamp", without("webhook-timestamp"), "body", 0, ErrHeaders},
		{"no signature", without("webhook-signature"), "body", 0, ErrHeaders},
		{"timestamp is no number", malformed, "body", 0, ErrHeaders},
		{"too old", signed(now.Add(-6*time.Minute), secret), "body", 0, ErrTimestamp},
		{"too new", signed(now.Add(6*time.Minute), secret), "body", 0, ErrTimestamp},
		{"old, but that is tolerated", signed(now.Add(-time.Hour), secret), "body", 2 * time.Hour, nil},
		{"age does not matter", signed(time.Unix(1, 0), secret), "body", -1, nil},
	} {
		err := Verify([][]byte{secret}, c.h, []byte(c.body), c.tolerance)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := Verify([][]byte{nil}, signed(now, secret), body, 0); err == nil {
		t.Error("an empty secret verified")
	}
}

func TestSignRefusesAnEmptySecret(t *testing.T) {
	t.Parallel()
	if got, err := Sign("cb_1", time.Now(), nil, [][]byte{testSecret(), {}}); err == nil || got != "" {
		t.Errorf("Sign = %q, %v", got, err)
	}
	if got, err := Sign("cb_1", time.Now(), nil, nil); err != nil || got != "" {
		t.Errorf("without secrets: %q, %v", got, err)
	}
}
