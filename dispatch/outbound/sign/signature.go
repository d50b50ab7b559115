package sign

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// A Request is what is signed.
type Request struct {
	// ID is the callback's id with its prefix: the webhook-id.
	ID          string
	Method      string
	URL         *url.URL
	ContentType string
	Body        []byte
	// Secrets sign, the present one first, during a rotation followed by the one before it.
	Secrets []Secret
	// At is the time of the attempt, Seconds the timestamp that it is.
	At      time.Time
	Seconds string
}

// A signature is what a signer adds to a request.
type Signature struct {
	Headers []addedHeader
	// standard is the value of webhook-signature; empty: it is not sent.
	Standard string
	// body replaces the request's, query that of its URL; nil and "": they stay.
	Body  []byte
	Query string
	// hidden are values that must not be shown, not even when the receiver echoes them.
	Hidden []string
	// keyID names the secrets that signed, separated by commas.
	KeyID string
}

// An addedHeader is sent; one that is masked is not shown.
type addedHeader struct {
	Name, Value string
	Masked      bool
}

// owns says whether the signer sets a header: the caller's of the same name is then not sent.
func (s *Signature) Owns(name string) bool {
	for _, h := range s.Headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// A keyError is a signing key that cannot be used: the request is not sent, and the callback not charged.
type KeyError struct{ text string }

// Error returns the sentence.
func (e *KeyError) Error() string { return e.text }

// sign signs a request. Its errors are a *keyError, or others if the request is at fault.
func (c *Cache) sign(s *signer, r *Request) (Signature, error) {
	if s.name == None {
		return Signature{}, nil
	}
	if err := checkSecrets(r.Secrets); err != nil {
		return Signature{}, err
	}
	present := &r.Secrets[0]
	switch s.name {
	case Standard:
		return standardHeader(signV1(r.ID, r.Seconds, r.Body, r.Secrets), r.Secrets), nil
	case StandardAsymmetric:
		value, err := signV1a(r.ID, r.Seconds, r.Body, r.Secrets)
		return standardHeader(value, r.Secrets), err
	case HMACBody:
		return s.signBody(r), nil
	case Timestamped:
		return s.signTimestamped(r), nil
	case SortedKV:
		return c.signSortedKV(s, r)
	case WeChatV3:
		return c.signWeChatV3(s, r)
	case Basic:
		if checkText(UseBasic, present.Key) != nil {
			return Signature{}, &KeyError{`the signing secret is not of the form "user:password"`}
		}
		user, password, _ := strings.Cut(string(present.Key), ":")
		if password == "" {
			password = user
		}
		return authorization("Basic", base64.StdEncoding.EncodeToString(present.Key), present.ID, string(present.Key), password), nil
	default: // SignerBearer
		if checkText(UseText, present.Key) != nil {
			return Signature{}, &KeyError{"the token is no text of 8 to 4096 printable characters"}
		}
		return authorization("Bearer", string(present.Key), present.ID), nil
	}
}

// checkSecrets refuses to sign with nothing: anybody could have made such a signature.
func checkSecrets(secrets []Secret) error {
	if len(secrets) == 0 {
		return ErrNoSecret
	}
	for i := range secrets {
		if len(secrets[i].Key) == 0 {
			return ErrNoSecret
		}
	}
	return nil
}

func standardHeader(value string, secrets []Secret) Signature {
	return Signature{Standard: value, KeyID: keyIDs(secrets)}
}

// keyIDs names the secrets.
func keyIDs(secrets []Secret) string {
	id := secrets[0].ID
	for _, s := range secrets[1:] {
		if s.ID != "" {
			id += "," + s.ID
		}
	}
	return id
}

// signV1a returns the value of webhook-signature by Ed25519.
func signV1a(id, seconds string, body []byte, secrets []Secret) (string, error) {
	text := append([]byte(id+"."+seconds+"."), body...)
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

// macKey returns the key of an HMAC: the secret, or how it is written.
func (s *signer) macKey(key []byte) []byte {
	if s.written {
		return []byte(FormatSecret(key))
	}
	return key
}

// bodyMAC returns what hmac-sha256-body puts into its header.
func (s *signer) bodyMAC(key, body []byte) string {
	mac := hmac.New(sha256.New, s.macKey(key))
	mac.Write(body)
	if s.base64 {
		return s.prefix + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return s.prefix + hex.EncodeToString(mac.Sum(nil))
}

// signBody signs by hmac-sha256-body. Its header has room for one signature: that of the present secret. During a rotation that of the
// one before is in a header of its own, so that a receiver can verify with whichever it has.
func (s *signer) signBody(r *Request) Signature {
	value := s.bodyMAC(r.Secrets[0].Key, r.Body)
	out := Signature{Headers: []addedHeader{{s.header, value, true}}, KeyID: r.Secrets[0].ID, Hidden: []string{value}}
	if len(r.Secrets) > 1 && s.rotation != "" {
		value = s.bodyMAC(r.Secrets[1].Key, r.Body)
		out.Headers = append(out.Headers, addedHeader{s.rotation, value, true})
		out.Hidden = append(out.Hidden, value)
		out.KeyID = keyIDs(r.Secrets[:2])
	}
	return out
}

// timestampedMAC returns a v1 of t-v1.
func (s *signer) timestampedMAC(key []byte, seconds string, body []byte) string {
	mac := hmac.New(sha256.New, s.macKey(key))
	mac.Write([]byte(seconds + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *signer) signTimestamped(r *Request) Signature {
	var b strings.Builder
	b.WriteString("t=" + r.Seconds)
	for i := range r.Secrets {
		b.WriteString(",v1=" + s.timestampedMAC(r.Secrets[i].Key, r.Seconds, r.Body))
	}
	value := b.String()
	return Signature{Headers: []addedHeader{{s.header, value, true}}, KeyID: keyIDs(r.Secrets), Hidden: []string{value}}
}

// authorization puts a credential into Authorization; more are other spellings of it that must not be shown either.
func authorization(scheme, credential, id string, more ...string) Signature {
	return Signature{
		Headers: []addedHeader{{"Authorization", scheme + " " + credential, true}},
		Hidden:  append(more, credential),
		KeyID:   id,
	}
}
