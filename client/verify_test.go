package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

const (
	webhookID   = "cb_01JD0000000000000000000001"
	webhookBody = `{"paid":10000}`
)

// keyPair returns the secret n of a signer, and what its receiver verifies with.
func keyPair(t testing.TB, signer string, n byte) (secret []byte, receiver string) {
	t.Helper()
	use := signtest.UseOf(t, signer)
	secret = signtest.Secret(t, use, n)
	receiver, err := sign.PublicOf(use, secret)
	if err != nil {
		t.Fatal(err)
	}
	if receiver == "" {
		receiver = sign.FormatSecretFor(use, secret)
	}
	return secret, receiver
}

// signed returns the headers of a request that the dispatcher signed at a time.
func signed(t testing.TB, signer string, at time.Time, body string, secrets ...[]byte) http.Header {
	t.Helper()
	seconds := strconv.FormatInt(at.Unix(), 10)
	s, err := sign.NewCache().Sign(signer, &sign.Request{
		ID: webhookID, Body: []byte(body), At: at, Seconds: seconds, Secrets: signtest.Secrets(secrets...),
	})
	if err != nil {
		t.Fatal(err)
	}
	return http.Header{client.WebhookID: {webhookID}, client.WebhookTimestamp: {seconds},
		client.WebhookSignature: {s.Standard}}
}

func newVerifier(t testing.TB, secrets ...string) *client.Verifier {
	t.Helper()
	v, err := client.NewVerifier(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestVerifierAcceptsTheDispatcher checks what both signers of Standard Webhooks send, also during rotations.
func TestVerifierAcceptsTheDispatcher(t *testing.T) {
	for _, signer := range []string{sign.Standard, sign.StandardAsymmetric} {
		current, ofCurrent := keyPair(t, signer, 0)
		former, ofFormer := keyPair(t, signer, 1)
		_, ofOther := keyPair(t, signer, 2)
		for _, tc := range []struct {
			secrets  [][]byte
			verifier []string
			ok       bool
		}{
			{[][]byte{current}, []string{ofCurrent}, true},
			{[][]byte{current}, []string{" " + ofCurrent + "\n"}, true},
			{[][]byte{current}, []string{ofFormer, ofCurrent}, true},
			{[][]byte{current, former}, []string{ofFormer}, true},
			{[][]byte{current, former}, []string{ofOther}, false},
			{[][]byte{former}, []string{ofCurrent, ofOther}, false},
		} {
			h := signed(t, signer, time.Now(), webhookBody, tc.secrets...)
			err := newVerifier(t, tc.verifier...).Verify(h, []byte(webhookBody))
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, client.ErrWebhookSignature) {
				t.Errorf("%s %v: %v", signer, tc.verifier, err)
			}
		}
	}
	// One receiver may have endpoints with both signers.
	hmac, ofHMAC := keyPair(t, sign.Standard, 0)
	private, ofPrivate := keyPair(t, sign.StandardAsymmetric, 0)
	both := newVerifier(t, ofHMAC, ofPrivate)
	for signer, secret := range map[string][]byte{sign.Standard: hmac, sign.StandardAsymmetric: private} {
		h := signed(t, signer, time.Now(), webhookBody, secret)
		if err := both.Verify(h, []byte(webhookBody)); err != nil {
			t.Errorf("%s: %v", signer, err)
		}
	}
}

// TestVerifierAcceptsTheReference checks signatures of the reference library of Standard Webhooks.
func TestVerifierAcceptsTheReference(t *testing.T) {
	secret, text := keyPair(t, sign.Standard, 0)
	reference, err := standardwebhooks.NewWebhookRaw(secret)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	signature, err := reference.Sign(webhookID, now, []byte(webhookBody))
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{client.WebhookID: {webhookID}, client.WebhookTimestamp: {fmt.Sprint(now.Unix())},
		client.WebhookSignature: {"v2,new v1,AAAA " + signature}}
	if err := newVerifier(t, text).Verify(h, []byte(webhookBody)); err != nil {
		t.Error(err)
	}
}

// TestVerifierRefuses changes every part of a signed request.
func TestVerifierRefuses(t *testing.T) {
	for _, signer := range []string{sign.Standard, sign.StandardAsymmetric} {
		secret, receiver := keyPair(t, signer, 0)
		v := newVerifier(t, receiver)
		for name, tc := range map[string]struct {
			change func(h http.Header) (body string)
			want   error
		}{
			"another body": {func(http.Header) string { return "{}" }, client.ErrWebhookSignature},
			"no body":      {func(http.Header) string { return "" }, client.ErrWebhookSignature},
			"another id":   {set(client.WebhookID, "cb_2"), client.ErrWebhookSignature},
			"no id":        {set(client.WebhookID, ""), client.ErrWebhookHeaders},
			"no timestamp": {set(client.WebhookTimestamp, ""), client.ErrWebhookHeaders},
			"no seconds":   {set(client.WebhookTimestamp, "1e9"), client.ErrWebhookHeaders},
			"huge seconds": {set(client.WebhookTimestamp, "9223372036854775807"),
				client.ErrWebhookTimestamp},
			"no signature": {set(client.WebhookSignature, ""), client.ErrWebhookHeaders},
			"only a version": {set(client.WebhookSignature, "v1 v1a , v1,"),
				client.ErrWebhookSignature},
			"no base64": {set(client.WebhookSignature, "v1,% v1a,%"), client.ErrWebhookSignature},
			"too many": {set(client.WebhookSignature, strings.Repeat("v1a,AAAA ", 20)),
				client.ErrWebhookHeaders},
			"another version": {func(h http.Header) string {
				_, signature, _ := strings.Cut(h.Get(client.WebhookSignature), ",")
				h.Set(client.WebhookSignature, "v2,"+signature)
				return webhookBody
			}, client.ErrWebhookSignature},
			"a second later": {func(h http.Header) string {
				h.Set(client.WebhookTimestamp, fmt.Sprint(time.Now().Unix()+1))
				return webhookBody
			}, client.ErrWebhookSignature},
		} {
			h := signed(t, signer, time.Now().Add(-time.Minute), webhookBody, secret)
			body := tc.change(h)
			if err := v.Verify(h, []byte(body)); !errors.Is(err, tc.want) {
				t.Errorf("%s, %s: %v, want %v", signer, name, err, tc.want)
			}
		}
		h := signed(t, signer, time.Now(), webhookBody, secret)
		if err := new(client.Verifier).Verify(h, []byte(webhookBody)); err == nil {
			t.Error("a verifier without a secret accepts a request")
		}
	}
}

// set returns a change of one header.
func set(name, value string) func(http.Header) string {
	return func(h http.Header) string {
		h.Set(name, value)
		return webhookBody
	}
}

// TestVerifierTolerance checks the edges of the tolerance, in both directions.
func TestVerifierTolerance(t *testing.T) {
	secret, receiver := keyPair(t, sign.Standard, 0)
	for _, tc := range []struct {
		tolerance, age time.Duration
		ok             bool
	}{
		{0, 5 * time.Minute, true}, {0, 5*time.Minute + time.Second, false},
		{0, -5 * time.Minute, true}, {0, -5*time.Minute - time.Second, false},
		{time.Hour, time.Hour, true}, {time.Second, 2 * time.Second, false},
		{-1, 1000 * time.Hour, true}, {-1, -1000 * time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := newVerifier(t, receiver)
			v.Tolerance = tc.tolerance
			h := signed(t, sign.Standard, time.Now().Add(-tc.age), webhookBody, secret)
			err := v.Verify(h, []byte(webhookBody))
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, client.ErrWebhookTimestamp) {
				t.Errorf("age %s with tolerance %s: %v", tc.age, tc.tolerance, err)
			}
		})
	}
}

// TestVerifierSecrets checks which texts are no secrets, and that errors do not contain them.
func TestVerifierSecrets(t *testing.T) {
	private := sign.FormatSecretFor(sign.UseEd25519, signtest.Secret(t, sign.UseEd25519, 0))
	for text, want := range map[string]string{
		"": "neither", "hunter2": "neither", "whsec_hunter2!": "base64", "whsec_aHVudGVyMg==": "7 bytes",
		"whpk_aHVudGVyMg==": "7 bytes", private: "private key",
		"whsec_" + strings.Repeat("aaaa", 22): "66 bytes",
	} {
		_, err := client.NewVerifier(text)
		_, tail, _ := strings.Cut(text, "_")
		if err == nil || !strings.Contains(err.Error(), want) ||
			tail != "" && strings.Contains(err.Error(), tail) {
			t.Errorf("%.12s: %v, want %s", text, err, want)
		}
	}
	if _, err := client.NewVerifier(); err == nil {
		t.Error("a verifier needs no secret")
	}
}

// TestMiddleware checks which requests reach the handler behind it, and with which body.
func TestMiddleware(t *testing.T) {
	secret, receiver := keyPair(t, sign.Standard, 0)
	v := newVerifier(t, receiver)
	v.MaxBody = 100
	got := ""
	h := v.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(body)) {
			t.Errorf("%d bytes of %d: %v", len(body), r.ContentLength, err)
		}
		got = string(body)
		w.WriteHeader(http.StatusNoContent)
	}))
	exact, long := strings.Repeat("x", 100), strings.Repeat("x", 101)
	for _, tc := range []struct {
		body   io.Reader
		signed string
		status int
	}{
		{strings.NewReader(webhookBody), webhookBody, 204},
		{strings.NewReader(exact), exact, 204},
		{http.NoBody, "", 204},
		{strings.NewReader(webhookBody + " "), webhookBody, 401},
		{strings.NewReader(long), long, 413},
		{iotest.ErrReader(io.ErrUnexpectedEOF), webhookBody, 400},
	} {
		got = "-"
		req := httptest.NewRequest("POST", "/notify", tc.body)
		req.Header = signed(t, sign.Standard, time.Now(), tc.signed, secret)
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		if rec.Code != tc.status || (got == tc.signed) != (tc.status == 204) {
			t.Errorf("status %d, want %d; the handler got %q", rec.Code, tc.status, got)
		}
	}
	v.MaxBody = 0
	big := bytes.Repeat([]byte("x"), 256<<10) // the largest body of a dispatcher
	req := httptest.NewRequest("POST", "/notify", bytes.NewReader(big))
	req.Header = signed(t, sign.Standard, time.Now(), string(big), secret)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	if rec.Code != 204 {
		t.Errorf("the largest body gets %d", rec.Code)
	}
}

// FuzzVerifier checks that the verifier and the dispatcher's own agree on every request.
func FuzzVerifier(f *testing.F) {
	secret, receiver := keyPair(f, sign.Standard, 0)
	private, public := keyPair(f, sign.StandardAsymmetric, 0)
	at := time.Unix(1795248000, 0)
	for signer, secret := range map[string][]byte{sign.Standard: secret, sign.StandardAsymmetric: private} {
		h := signed(f, signer, at, webhookBody, secret)
		f.Add(webhookID, h.Get(client.WebhookTimestamp), h.Get(client.WebhookSignature), webhookBody)
	}
	f.Add("", "1", "v1,", "")
	f.Add("a", "x", "v1,AAAA v1a,AAAA  ,", "b")
	v, err := client.NewVerifier(receiver, public)
	if err != nil {
		f.Fatal(err)
	}
	v.Tolerance = -1
	f.Fuzz(func(t *testing.T, id, seconds, signature, body string) {
		if strings.Count(signature, " ") >= 16 {
			return
		}
		h := http.Header{client.WebhookID: {id}, client.WebhookTimestamp: {seconds},
			client.WebhookSignature: {signature}}
		want := false
		for signer, secret := range map[string][]byte{
			sign.Standard: secret, sign.StandardAsymmetric: private,
		} {
			err := sign.Verify(signer, signtest.Secrets(secret), h, nil, []byte(body), -1)
			want = want || err == nil
		}
		if err := v.Verify(h, []byte(body)); (err == nil) != want {
			t.Errorf("verifier: %v; the dispatcher's own accepts: %t", err, want)
		}
	})
}
