package outbound

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// A signature is what a signer adds to a request.
type signature struct {
	headers []addedHeader
	// standard is the value of webhook-signature; empty: it is not sent.
	standard string
	// body replaces the request's, query that of its URL; nil and "": they stay.
	body  []byte
	query string
	// hidden are values that must not be shown, not even when the receiver echoes them.
	hidden []string
	// keyID names the secrets that signed, separated by commas.
	keyID string
}

// An addedHeader is sent; one that is masked is not shown.
type addedHeader struct {
	name, value string
	masked      bool
}

// owns says whether the signer sets a header: the caller's of the same name is then not sent.
func (s *signature) owns(name string) bool {
	for _, h := range s.headers {
		if strings.EqualFold(h.name, name) {
			return true
		}
	}
	return false
}

// A keyError is a signing key that cannot be used: the request is not sent, and the callback not charged.
type keyError struct{ text string }

// Error returns the sentence.
func (e *keyError) Error() string { return e.text }

// sign signs a request. Now is the time of the attempt, seconds the timestamp that it is. Its errors are errNoSecret, a *keyError, or a
// *requestError if the request is at fault.
func (c *Client) sign(s *signer, r *Request, u *url.URL, now time.Time, seconds string) (signature, error) {
	if s.name == SignerNone {
		return signature{}, nil
	}
	if err := checkSecrets(r.Secrets); err != nil {
		return signature{}, err
	}
	present := &r.Secrets[0]
	switch s.name {
	case SignerStandard:
		return standardHeader(signV1(r.ID, seconds, r.Body, r.Secrets), r.Secrets), nil
	case SignerStandardAsymmetric:
		value, err := signV1a(r.ID, seconds, r.Body, r.Secrets)
		return standardHeader(value, r.Secrets), err
	case SignerHMACBody:
		return s.signBody(r), nil
	case SignerTimestamped:
		return s.signTimestamped(r, seconds), nil
	case SignerSortedKV:
		return c.signSortedKV(s, r, u, now)
	case SignerWeChatV3:
		return c.signWeChatV3(s, r, u, seconds)
	case SignerBasic:
		if checkText(UseBasic, present.Key) != nil {
			return signature{}, &keyError{`the signing secret is not of the form "user:password"`}
		}
		user, password, _ := strings.Cut(string(present.Key), ":")
		if password == "" {
			password = user
		}
		return authorization("Basic", base64.StdEncoding.EncodeToString(present.Key), present.ID, string(present.Key), password), nil
	default: // SignerBearer
		if checkText(UseText, present.Key) != nil {
			return signature{}, &keyError{"the token is no text of 8 to 4096 printable characters"}
		}
		return authorization("Bearer", string(present.Key), present.ID), nil
	}
}

// checkSecrets refuses to sign with nothing: anybody could have made such a signature.
func checkSecrets(secrets []Secret) error {
	if len(secrets) == 0 {
		return errNoSecret
	}
	for i := range secrets {
		if len(secrets[i].Key) == 0 {
			return errNoSecret
		}
	}
	return nil
}

func standardHeader(value string, secrets []Secret) signature {
	return signature{standard: value, keyID: keyIDs(secrets)}
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
func (s *signer) signBody(r *Request) signature {
	value := s.bodyMAC(r.Secrets[0].Key, r.Body)
	out := signature{headers: []addedHeader{{s.header, value, true}}, keyID: r.Secrets[0].ID, hidden: []string{value}}
	if len(r.Secrets) > 1 && s.rotation != "" {
		value = s.bodyMAC(r.Secrets[1].Key, r.Body)
		out.headers = append(out.headers, addedHeader{s.rotation, value, true})
		out.hidden = append(out.hidden, value)
		out.keyID = keyIDs(r.Secrets[:2])
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

func (s *signer) signTimestamped(r *Request, seconds string) signature {
	var b strings.Builder
	b.WriteString("t=" + seconds)
	for i := range r.Secrets {
		b.WriteString(",v1=" + s.timestampedMAC(r.Secrets[i].Key, seconds, r.Body))
	}
	value := b.String()
	return signature{headers: []addedHeader{{s.header, value, true}}, keyID: keyIDs(r.Secrets), hidden: []string{value}}
}

// authorization puts a credential into Authorization; more are other spellings of it that must not be shown either.
func authorization(scheme, credential, id string, more ...string) signature {
	return signature{
		headers: []addedHeader{{"Authorization", scheme + " " + credential, true}},
		hidden:  append(more, credential),
		keyID:   id,
	}
}

// maxRSAKeys is how many parsed keys a client keeps: parsing one costs as much as signing with it.
const maxRSAKeys = 1000

// rsaKey returns a private key, parsed once.
func (c *Client) rsaKey(key []byte) (*rsa.PrivateKey, error) {
	id := sha256.Sum256(key)
	if private, ok := c.keys.get(id); ok {
		return private, nil
	}
	private, err := privateRSA(key)
	if err != nil {
		return nil, err
	}
	c.keys.put(id, private)
	return private, nil
}

// contentTypeOf returns the content type that a request is sent with.
func contentTypeOf(r *Request) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			return h.Value
		}
	}
	return r.ContentType
}
