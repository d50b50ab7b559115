package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a signed request, in the spelling of net/http.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
	HeaderAttempt   = "Webhook-Attempt"
)

// Secrets are MinSecretBytes to MaxSecretBytes long, and written as SecretPrefix and standard base64.
const (
	SecretPrefix   = "whsec_"
	MinSecretBytes = 24
	MaxSecretBytes = 64
)

// DefaultTolerance is how far a timestamp may be from now for Verify, both ways, unless the caller says otherwise.
const DefaultTolerance = 5 * time.Minute

// Errors of Verify, to be told apart with errors.Is.
var (
	// ErrHeaders: a header of the signature is missing, or the timestamp is not a number of seconds.
	ErrHeaders = errors.New("signature headers are missing or malformed")
	// ErrTimestamp: the timestamp is further from now than the tolerance.
	ErrTimestamp = errors.New("timestamp is outside the tolerance")
	// ErrSignature: no signature was made over these bytes with any of the secrets.
	ErrSignature = errors.New("no signature matches")
)

// ErrNoSecret is what signing with an empty secret ends with: a request is never sent with a signature that anybody
// could have made.
var ErrNoSecret = &KeyError{"signing secret is empty"}

// Sign returns the value of webhook-signature: for each secret "v1," and the base64 of HMAC-SHA256 over
// "id.timestamp.body", separated by spaces, in the order of the secrets. The timestamp counts in whole seconds. With no
// secret the value is empty; a secret that is empty is an error.
func SignStandard(id string, timestamp time.Time, body []byte, secrets [][]byte) (string, error) {
	if len(secrets) == 0 {
		return "", nil
	}
	keys := make([]Secret, len(secrets))
	for i, key := range secrets {
		keys[i].Key = key
	}
	if err := checkSecrets(keys); err != nil {
		return "", err
	}
	return signV1(id, strconv.FormatInt(timestamp.Unix(), 10), body, keys), nil
}

const macLen = 44 // base64 of 32 bytes

// signV1 is Sign with secrets that were checked.
func signV1(id, seconds string, body []byte, secrets []Secret) string {
	var scratch [2 * (macLen + 4)]byte
	out := scratch[:0]
	for i := range secrets {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, "v1,"...)
		out = appendMAC(out, secrets[i].Key, id, seconds, body)
	}
	return string(out)
}

func appendMAC(out, secret []byte, id, seconds string, body []byte) []byte {
	// The head is copied once, so that the MAC is fed with two writes and no string is turned into a slice on the heap.
	var room [128]byte
	head := append(room[:0], id...)
	head = append(head, '.')
	head = append(head, seconds...)
	head = append(head, '.')

	mac := hmac.New(sha256.New, secret)
	mac.Write(head)
	mac.Write(body)
	var sum [sha256.Size]byte
	return base64.StdEncoding.AppendEncode(out, mac.Sum(sum[:0]))
}

// Verify says whether a request was signed with one of the secrets: nil, or an error that is ErrHeaders, ErrTimestamp
// or ErrSignature. A zero tolerance means DefaultTolerance; a negative one does not look at the age.
func Verify(secrets [][]byte, h http.Header, body []byte, tolerance time.Duration) error {
	id, seconds, signatures, err := standardHeaders(h, tolerance)
	if err != nil {
		return err
	}
	for _, secret := range secrets {
		if len(secret) == 0 {
			return ErrNoSecret
		}
		want := appendMAC(nil, secret, id, seconds, body)
		for signature := range strings.SplitSeq(signatures, " ") {
			version, mac, ok := strings.Cut(signature, ",")
			if ok && version == "v1" && hmac.Equal([]byte(mac), want) {
				return nil
			}
		}
	}
	return ErrSignature
}

// standardHeaders returns the headers of Standard Webhooks if they are all there and the timestamp is within the tolerance.
func standardHeaders(h http.Header, tolerance time.Duration) (id, seconds, signatures string, err error) {
	id, seconds, signatures = h.Get(HeaderID), h.Get(HeaderTimestamp), h.Get(HeaderSignature)
	for _, need := range [...][2]string{{"webhook-id", id}, {"webhook-timestamp", seconds}, {"webhook-signature", signatures}} {
		if need[1] == "" {
			return "", "", "", fmt.Errorf("%w: no %s", ErrHeaders, need[0])
		}
	}
	return id, seconds, signatures, checkSeconds(seconds, HeaderTimestamp, tolerance)
}

func checkAge(at time.Time, tolerance time.Duration) error {
	if tolerance < 0 {
		return nil
	}
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	switch age := time.Since(at); {
	case age > tolerance:
		return fmt.Errorf("%w: older than %s", ErrTimestamp, tolerance)
	case age < -tolerance:
		return fmt.Errorf("%w: more than %s in the future", ErrTimestamp, tolerance)
	}
	return nil
}

// ParseSecret reads a secret in its written form. Its errors never show the secret.
func ParseSecret(text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, SecretPrefix)
	if !ok {
		return nil, fmt.Errorf("secret does not begin with %q", SecretPrefix)
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("secret is not base64 after %q", SecretPrefix)
	}
	if len(secret) < MinSecretBytes || len(secret) > MaxSecretBytes {
		return nil, fmt.Errorf("secret has %d bytes, not %d to %d", len(secret), MinSecretBytes, MaxSecretBytes)
	}
	return secret, nil
}

// FormatSecret returns the written form of a secret, which ParseSecret reads.
func FormatSecret(secret []byte) string {
	return SecretPrefix + base64.StdEncoding.EncodeToString(secret)
}
