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

// verifyV1 verifies Standard Webhooks v1.
func verifyV1(in *receivedRequest) error {
	return in.verifyStandard("v1", func(key []byte, id, seconds, signature string) (bool, error) {
		return matches(signature, string(appendMAC(nil, key, id, seconds, in.body))), nil
	})
}

// verifyV1a verifies Standard Webhooks v1a.
func verifyV1a(in *receivedRequest) error {
	return in.verifyStandard("v1a", func(key []byte, id, seconds, signature string) (bool, error) {
		public, err := publicEd25519(key)
		if err != nil {
			return false, err
		}
		raw, err := base64.StdEncoding.DecodeString(signature)
		return err == nil && ed25519.Verify(public, signedText(id, seconds, in.body), raw), nil
	})
}

// verifyStandard verifies with each signature of a version in webhook-signature.
func (in *receivedRequest) verifyStandard(version string,
	verifies func(key []byte, id, seconds, signature string) (bool, error)) error {
	values, err := in.requireHeaders(HeaderID, HeaderTimestamp, HeaderSignature)
	if err != nil {
		return err
	}
	id, seconds := values[0], values[1]
	if err := in.checkSeconds(seconds, HeaderTimestamp); err != nil {
		return err
	}
	return in.verifyAny(func(key []byte) (bool, error) {
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

// signV1 returns for each secret "v1," and the base64 of HMAC-SHA256 over "id.timestamp.body", separated by
// spaces.
func signV1(r *Request) (Signature, error) {
	var scratch [2 * (macLen + 4)]byte
	out := scratch[:0]
	for i := range r.Secrets {
		if i > 0 {
			out = append(out, ' ')
		}
		out = append(out, "v1,"...)
		out = appendMAC(out, r.Secrets[i].Key, r.ID, r.Seconds, r.Body)
	}
	return Signature{Standard: string(out), KeyID: keyIDs(r.Secrets)}, nil
}

// appendMAC appends the base64 of HMAC-SHA256 over "id.seconds.body" to out.
func appendMAC(out, secret []byte, id, seconds string, body []byte) []byte {
	// The head is copied into one buffer on the stack, so that no string is converted to a slice on the heap.
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

// signV1a is signV1 with Ed25519 and the prefix "v1a,".
func signV1a(r *Request) (Signature, error) {
	text := signedText(r.ID, r.Seconds, r.Body)
	var out []byte
	for i, secret := range r.Secrets {
		if len(secret.Key) != ed25519.PrivateKeySize {
			return Signature{}, errNotEd25519
		}
		if i > 0 {
			out = append(out, ' ')
		}
		out = base64.StdEncoding.AppendEncode(append(out, "v1a,"...), ed25519.Sign(secret.Key, text))
	}
	return Signature{Standard: string(out), KeyID: keyIDs(r.Secrets)}, nil
}

func signedText(id, seconds string, body []byte) []byte {
	return append([]byte(id+"."+seconds+"."), body...)
}
