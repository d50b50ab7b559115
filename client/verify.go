package client

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook. The id is that of the callback and the same for every attempt, so a receiver can
// use it to ignore repetitions. The attempt counts from 1 and is not signed.
const (
	WebhookID        = "Webhook-Id"
	WebhookTimestamp = "Webhook-Timestamp"
	WebhookSignature = "Webhook-Signature"
	WebhookAttempt   = "Webhook-Attempt"
)

// Errors of Verifier.Verify, for errors.Is.
var (
	// ErrWebhookHeaders means that a header of the signature is missing or malformed.
	ErrWebhookHeaders = errors.New("webhook headers are missing or malformed")
	// ErrWebhookTimestamp means that the webhook is too old, or from the future: it may be a replay of an old
	// request, or a clock is wrong.
	ErrWebhookTimestamp = errors.New("webhook timestamp is outside the tolerance")
	// ErrWebhookSignature means that no signature matches the body and one of the secrets.
	ErrWebhookSignature = errors.New("no webhook signature matches")
)

const (
	defaultTolerance = 5 * time.Minute
	defaultMaxBody   = 1 << 20
	// maxSignatures limits the work for one request. A rotation has two.
	maxSignatures = 16

	secretPrefix, publicPrefix, privatePrefix = "whsec_", "whpk_", "whsk_"
	minSecretBytes, maxSecretBytes            = 24, 64
)

// A Verifier checks that webhooks come from a dispatcher, and that they are recent. It knows the signatures
// of Standard Webhooks: v1 (signer standard-v1) and v1a (signer standard-v1a). It is safe for concurrent use
// once its fields are set. The zero Verifier accepts nothing.
type Verifier struct {
	// Tolerance is how far the timestamp may differ from the clock, in both directions. Zero: 5 minutes.
	// Negative: the timestamp is not checked.
	Tolerance time.Duration
	// MaxBody is the maximum size of a body for Middleware, in bytes. Zero: 1 MiB, which is more than a
	// dispatcher sends.
	MaxBody int64

	secrets [][]byte
	keys    []ed25519.PublicKey
}

// NewVerifier returns a verifier that accepts the signatures of any of the secrets: "whsec_…" for v1, and the
// public key "whpk_…" for v1a. Give both secrets during a rotation.
func NewVerifier(secrets ...string) (*Verifier, error) {
	if len(secrets) == 0 {
		return nil, errors.New("client: a verifier needs a secret")
	}
	v := &Verifier{}
	for i, text := range secrets {
		if err := v.add(strings.TrimSpace(text)); err != nil {
			return nil, fmt.Errorf("client: secret %d of a verifier: %w", i+1, err)
		}
	}
	return v, nil
}

// add parses a secret. Its errors do not contain the secret.
func (v *Verifier) add(text string) error {
	prefix, encoded, _ := strings.Cut(text, "_")
	raw, err := base64.StdEncoding.Strict().DecodeString(encoded)
	switch {
	case prefix+"_" == privatePrefix:
		return errors.New("it is a private key; a receiver verifies with the public key, whpk_…")
	case prefix+"_" != secretPrefix && prefix+"_" != publicPrefix:
		return errors.New("it begins neither with whsec_ nor with whpk_")
	case err != nil:
		return errors.New("it is not base64 after its prefix")
	case prefix+"_" == publicPrefix && len(raw) != ed25519.PublicKeySize:
		return fmt.Errorf("it has %d bytes, not %d", len(raw), ed25519.PublicKeySize)
	case prefix+"_" == publicPrefix:
		v.keys = append(v.keys, raw)
	case len(raw) < minSecretBytes || len(raw) > maxSecretBytes:
		return fmt.Errorf("it has %d bytes, not %d to %d", len(raw), minSecretBytes, maxSecretBytes)
	default:
		v.secrets = append(v.secrets, raw)
	}
	return nil
}

// Verify returns nil if one of the secrets signed the body, and the signature is recent. Otherwise the error
// is ErrWebhookHeaders, ErrWebhookTimestamp or ErrWebhookSignature. The body must have exactly the received
// bytes.
func (v *Verifier) Verify(h http.Header, body []byte) error {
	for _, name := range []string{WebhookID, WebhookTimestamp, WebhookSignature} {
		if h.Get(name) == "" {
			return fmt.Errorf("%w: no %s", ErrWebhookHeaders, strings.ToLower(name))
		}
	}
	id, seconds, signatures := h.Get(WebhookID), h.Get(WebhookTimestamp), h.Get(WebhookSignature)
	if err := v.checkTime(seconds); err != nil {
		return err
	}
	if strings.Count(signatures, " ") >= maxSignatures {
		return fmt.Errorf("%w: more than %d signatures", ErrWebhookHeaders, maxSignatures)
	}
	head := id + "." + seconds + "."
	macs := make([][]byte, len(v.secrets))
	for i, secret := range v.secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(head))
		mac.Write(body)
		macs[i] = base64.StdEncoding.AppendEncode(nil, mac.Sum(nil))
	}
	signed := append([]byte(head), body...)
	for signature := range strings.SplitSeq(signatures, " ") {
		version, encoded, _ := strings.Cut(signature, ",")
		switch version {
		case "v1":
			for _, want := range macs {
				if hmac.Equal([]byte(encoded), want) { // in constant time
					return nil
				}
			}
		case "v1a":
			raw, err := base64.StdEncoding.DecodeString(encoded)
			for _, key := range v.keys {
				if err == nil && ed25519.Verify(key, signed, raw) {
					return nil
				}
			}
		}
	}
	return ErrWebhookSignature
}

// checkTime compares a Unix timestamp with the clock.
func (v *Verifier) checkTime(seconds string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: %s is not a number of seconds", ErrWebhookHeaders,
			strings.ToLower(WebhookTimestamp))
	}
	tolerance := v.Tolerance
	if tolerance == 0 {
		tolerance = defaultTolerance
	}
	switch age := time.Since(time.Unix(n, 0)); {
	case tolerance < 0:
		return nil
	case age > tolerance:
		return fmt.Errorf("%w: older than %s", ErrWebhookTimestamp, tolerance)
	case age < -tolerance:
		return fmt.Errorf("%w: more than %s in the future", ErrWebhookTimestamp, tolerance)
	}
	return nil
}

// Middleware returns a handler that calls next only for requests with a valid signature. It reads the body,
// which next can read again. Other requests get 401, or 413 if the body exceeds MaxBody.
func (v *Verifier) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit := v.MaxBody
		if limit <= 0 {
			limit = defaultMaxBody
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
		if _, long := errors.AsType[*http.MaxBytesError](err); long {
			http.Error(w, "the body is too large", http.StatusRequestEntityTooLarge)
			return
		}
		if err != nil {
			http.Error(w, "the body is incomplete", http.StatusBadRequest)
			return
		}
		if err := v.Verify(r.Header, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		verified := r.WithContext(r.Context())
		verified.Body, verified.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		next.ServeHTTP(w, verified)
	})
}
