// Package sign signs requests and verifies signatures. It has the signers and their options, the written
// forms of secrets and keys, and the check of headers that a caller or a signer sets.
//
//   - With a missing or unfit key nothing is signed. No error contains a key.
//   - A signer adds fields and headers and replaces none of the caller's fields. All other bytes of body and
//     query stay unchanged.
//   - Verification compares in constant time.
//
// The package sends nothing and looks up no secrets: the caller passes them.
package sign

import (
	"cmp"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A Secret signs requests. Lists of secrets begin with the current one; during a rotation the previous one
// follows.
type Secret struct {
	// ID names the secret in stored attempts. Empty means that it has none.
	ID string
	// Label is the receiver's name for the secret, such as a certificate's serial number. wechat-v3-rsa sends
	// it. Empty means the ID.
	Label string
	// Hosts are where the secret may be used besides its endpoint's own host, in the form of store.NamesHost.
	// This package does not check them; the caller does before it passes the secret.
	Hosts []string
	// Key has the bytes that ParseSecretFor or NewSecret returned for the signer's use.
	Key []byte
}

// A Request is the input of a signer.
type Request struct {
	// ID is the callback's id with its prefix and is sent as webhook-id.
	ID          string
	Method      string
	URL         *url.URL
	ContentType string
	Body        []byte
	// Secrets are the secrets that sign, the current one first. During a rotation the previous one follows.
	Secrets []Secret
	// At is the time of the attempt. Seconds is the same as a Unix timestamp.
	At      time.Time
	Seconds string
}

// A Signature is what a signer adds to a request.
type Signature struct {
	Headers []AddedHeader
	// Standard is the value of webhook-signature. Empty means that it is not sent.
	Standard string
	// Body replaces the request's body, Query the query of its URL, and URL the whole URL. URL has the same
	// scheme, host and port. Nil and "" mean no change.
	Body  []byte
	Query string
	URL   *url.URL
	// Hidden are values to mask in the response if the receiver echoes them.
	Hidden []string
	// KeyID has the IDs of the secrets that signed, separated by commas.
	KeyID string
}

// An AddedHeader is a header to send. Masked means that its value is masked in what is stored.
type AddedHeader struct {
	Name, Value string
	Masked      bool
}

// Owns reports whether the signer sets a header. The client then does not send the caller's header of that
// name.
func (s *Signature) Owns(name string) bool {
	for _, h := range s.Headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// A KeyError means that a signing key cannot be used. The client then sends nothing and does not charge the
// attempt.
type KeyError struct{ text string }

// Error returns the text.
func (e *KeyError) Error() string { return e.text }

// ErrNoSecret is the error of signing with an empty secret: anyone could make such a signature.
var ErrNoSecret = &KeyError{"the signing secret is empty"}

const (
	// maxSigners is the maximum of cached signers.
	maxSigners = 1000
	// maxRSAKeys is the maximum of cached RSA keys. To parse a key costs as much as to sign with it.
	maxRSAKeys = 1000
)

// A Cache signs requests. It caches compiled signers and parsed RSA keys. It is safe for concurrent use.
type Cache struct {
	// signers caches signers with options by their JSON text. keys caches private keys by the hash of their
	// bytes.
	signers *parse.Cache[string, *signer]
	keys    *parse.Cache[[sha256.Size]byte, *rsa.PrivateKey]
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{
		signers: parse.NewCache[string, *signer](maxSigners),
		keys:    parse.NewCache[[sha256.Size]byte, *rsa.PrivateKey](maxRSAKeys),
	}
}

// Sign signs a request. The signer is a name, or its JSON text as Parse returns it. Empty means the default
// signer if there are secrets, else none. A *KeyError means that a secret cannot be used. Any other error
// means that the request or the signer is invalid.
func (c *Cache) Sign(text string, r *Request) (Signature, error) {
	if text == "" && len(r.Secrets) == 0 {
		text = None
	}
	s, ok := byName[cmp.Or(text, Standard)]
	if !ok {
		var err error
		s, err = c.signers.Of(text, func() (*signer, error) { return readSigner(text) })
		if err != nil {
			return Signature{}, err
		}
	}
	if s.name != None {
		if err := checkSecrets(r.Secrets); err != nil {
			return Signature{}, err
		}
	}
	return s.sign(c, r)
}

// rsaKey returns the parsed private key, from the cache if possible.
func (c *Cache) rsaKey(key []byte) (*rsa.PrivateKey, error) {
	return c.keys.Of(sha256.Sum256(key), func() (*rsa.PrivateKey, error) { return privateRSA(key) })
}

// checkSecrets returns ErrNoSecret if there is no secret or an empty one.
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

// keyIDs joins the IDs of the secrets.
func keyIDs(secrets []Secret) string {
	id := secrets[0].ID
	for _, s := range secrets[1:] {
		if s.ID != "" {
			id += "," + s.ID
		}
	}
	return id
}

// DefaultTolerance is the tolerance of Verify for timestamps, in both directions.
const DefaultTolerance = 5 * time.Minute

// Errors of Verify, for errors.Is.
var (
	// ErrHeaders means that a signature header is missing or malformed.
	ErrHeaders = errors.New("signature headers are missing or malformed")
	// ErrTimestamp means that the timestamp differs from now by more than the tolerance.
	ErrTimestamp = errors.New("timestamp is outside the tolerance")
	// ErrSignature means that no signature matches the request and any of the secrets.
	ErrSignature = errors.New("no signature matches")
)

// A receivedRequest is a request as its receiver has it.
type receivedRequest struct {
	secrets   []Secret
	header    http.Header
	url       *url.URL
	body      []byte
	tolerance time.Duration
}

// Verify returns nil if a signer signed a request with one of the secrets. Otherwise the error is ErrHeaders,
// ErrTimestamp or ErrSignature, or says that the signer or a secret cannot be used. text is the signer, as
// for Cache.Sign; empty means the default one. For none, Verify returns nil without a check.
//
// The secrets are those of the signer. For a key pair the public key suffices, see ParseVerifierFor. body is
// the received body. u is the request's URL: sorted-kv may read its query, and wechat-v3-rsa with mchid signs
// its path and query. It may be nil.
//
// A tolerance of zero means DefaultTolerance, and a negative one disables the check of the age.
// hmac-sha256-body, sorted-kv, basic and bearer have no checked timestamp.
//
// wechat-v3-rsa with mchid also signs the method, which Verify does not know. It tries GET, POST, PUT, PATCH
// and DELETE. A receiver that must distinguish methods has to check the method otherwise.
func Verify(text string, secrets []Secret, h http.Header, u *url.URL, body []byte,
	tolerance time.Duration) error {
	s, err := readSigner(text)
	if err != nil {
		return err
	}
	if s.name == None {
		return nil
	}
	if err := checkSecrets(secrets); err != nil {
		return err
	}
	if u == nil {
		u = new(url.URL)
	}
	return s.verify(&receivedRequest{secrets, h, u, body, tolerance})
}

// verifyAny returns nil if verifies is true for the key of one of the secrets, else ErrSignature. An error of
// verifies ends it.
func (in *receivedRequest) verifyAny(verifies func(key []byte) (bool, error)) error {
	for i := range in.secrets {
		if ok, err := verifies(in.secrets[i].Key); ok || err != nil {
			return err
		}
	}
	return ErrSignature
}

// requireHeaders returns the values of headers, or ErrHeaders if one is missing.
func (in *receivedRequest) requireHeaders(names ...string) (values []string, err error) {
	for _, name := range names {
		value := in.header.Get(name)
		if value == "" {
			return nil, fmt.Errorf("%w: no %s", ErrHeaders, strings.ToLower(name))
		}
		values = append(values, value)
	}
	return values, nil
}

// checkSeconds checks a Unix timestamp of a header against the tolerance.
func (in *receivedRequest) checkSeconds(seconds, header string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the timestamp of %s is not a number of seconds", ErrHeaders,
			strings.ToLower(header))
	}
	tolerance := in.tolerance
	if tolerance == 0 {
		tolerance = DefaultTolerance
	}
	switch age := time.Since(time.Unix(n, 0)); {
	case tolerance < 0:
		return nil
	case age > tolerance:
		return fmt.Errorf("%w: older than %s", ErrTimestamp, tolerance)
	case age < -tolerance:
		return fmt.Errorf("%w: more than %s in the future", ErrTimestamp, tolerance)
	}
	return nil
}

// matches compares in constant time.
func matches(got, want string) bool {
	return subtle.ConstantTimeCompare([]byte(got), []byte(want)) == 1
}
