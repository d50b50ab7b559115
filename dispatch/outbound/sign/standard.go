package sign

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
)

// The headers of a signed request, in the spelling of net/http.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
	HeaderAttempt   = "Webhook-Attempt"
)

// standardV1 is Standard Webhooks v1, standardV1a its asymmetric half.
type (
	standardV1  struct{ noOptions }
	standardV1a struct{ noOptions }
)

func (*standardV1) use() string { return UseHMAC }

func (*standardV1) sign(_ *Cache, r *Request) (Signature, error) {
	return Signature{Standard: signV1(r.ID, r.Seconds, r.Body, r.Secrets), KeyID: keyIDs(r.Secrets)}, nil
}

func (*standardV1) verify(a *arrival) error {
	return a.verifyStandard("v1", func(key []byte, id, seconds, signature string) (bool, error) {
		return matches(signature, string(appendMAC(nil, key, id, seconds, a.body))), nil
	})
}

func (*standardV1a) use() string { return UseEd25519 }

func (*standardV1a) sign(_ *Cache, r *Request) (Signature, error) {
	value, err := signV1a(r.ID, r.Seconds, r.Body, r.Secrets)
	return Signature{Standard: value, KeyID: keyIDs(r.Secrets)}, err
}

func (*standardV1a) verify(a *arrival) error {
	return a.verifyStandard("v1a", func(key []byte, id, seconds, signature string) (bool, error) {
		public, err := publicEd25519(key)
		if err != nil {
			return false, err
		}
		raw, err := base64.StdEncoding.DecodeString(signature)
		return err == nil && ed25519.Verify(public, signedText(id, seconds, a.body), raw), nil
	})
}

// verifyStandard tries each signature of a version that is in webhook-signature.
func (a *arrival) verifyStandard(version string, verifies func(key []byte, id, seconds, signature string) (bool, error)) error {
	values, err := a.need(HeaderID, HeaderTimestamp, HeaderSignature)
	if err != nil {
		return err
	}
	id, seconds := values[0], values[1]
	if err := a.checkSeconds(seconds, HeaderTimestamp); err != nil {
		return err
	}
	return a.with(func(key []byte) (bool, error) {
		for signature := range strings.SplitSeq(values[2], " ") {
			if v, encoded, _ := strings.Cut(signature, ","); v == version {
				if ok, err := verifies(key, id, seconds, encoded); ok || err != nil {
					return ok, err
				}
			}
		}
		return false, nil
	})
}

const macLen = 44 // base64 of 32 bytes

// signV1 returns, for each secret, "v1," and the base64 of HMAC-SHA256 over "id.timestamp.body", separated by spaces.
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

// signV1a returns the value of webhook-signature by Ed25519.
func signV1a(id, seconds string, body []byte, secrets []Secret) (string, error) {
	text := signedText(id, seconds, body)
	var out []byte
	for i := range secrets {
		if len(secrets[i].Key) != ed25519.PrivateKeySize {
			return "", errNoEd25519
		}
		if i > 0 {
			out = append(out, ' ')
		}
		out = base64.StdEncoding.AppendEncode(append(out, "v1a,"...), ed25519.Sign(secrets[i].Key, text))
	}
	return string(out), nil
}

func signedText(id, seconds string, body []byte) []byte {
	return append([]byte(id+"."+seconds+"."), body...)
}
