// Package sign signs requests and verifies them: the signers and their options, secrets and keys as they are
// written, and the headers that a caller or a signer may set.
//
//   - Nothing is signed with a key that is missing or unfit, and no error shows a key.
//   - What a signer adds replaces nothing of the caller's; every other byte of body and query stays as it
//     was.
//   - Verification compares in constant time.
//
// The package sends nothing and looks up no secrets: it uses those that it is given.
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

// A Secret is what signs. Request.Secrets has the present one first, during a rotation followed by the one
// before it.
type Secret struct {
	// ID is for people: it is kept with the attempt. Empty: the secret has none.
	ID string
	// Label is what receivers know it by, such as a certificate's serial number: wechat-v3-rsa sends it.
	// Empty: its ID.
	Label string
	// Hosts are where it may be used beside its endpoint's own host, as store.NamesHost reads them. The
	// client does not look at them: what it is given, it uses.
	Hosts []string
	// Key is what ParseSecretFor or NewSecret returned for the signer's use.
	Key []byte
}

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

// A Signature is what a signer adds to a request.
type Signature struct {
	Headers []AddedHeader
	// Standard is the value of webhook-signature; empty: it is not sent.
	Standard string
	// Body replaces the request's, Query that of its URL; nil and "": they stay.
	Body  []byte
	Query string
	// Hidden are values that must not be shown, not even when the receiver echoes them.
	Hidden []string
	// KeyID names the secrets that signed, separated by commas.
	KeyID string
}

// An AddedHeader is sent; one that is masked is not shown.
type AddedHeader struct {
	Name, Value string
	Masked      bool
}

// Owns says whether the signer sets a header: the caller's of the same name is then not sent.
func (s *Signature) Owns(name string) bool {
	for _, h := range s.Headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}

// A KeyError is a signing key that cannot be used: the request is not sent, and the callback not charged.
type KeyError struct{ text string }

// Error returns the sentence.
func (e *KeyError) Error() string { return e.text }

// ErrNoSecret is what signing with an empty secret ends with: a request is never sent with a signature that
// anybody could have made.
var ErrNoSecret = &KeyError{"signing secret is empty"}

const (
	// maxSigners is how many compiled signers are kept.
	maxSigners = 1000
	// maxRSAKeys is how many parsed keys are kept: parsing one costs as much as signing with it.
	maxRSAKeys = 1000
)

// A Cache signs requests. It keeps signers that were compiled and RSA keys that were parsed. It is safe for
// concurrent use.
type Cache struct {
	// signers are those with options, by their text; keys are by the hash of what they were parsed from.
	signers *parse.Keep[string, *signer]
	keys    *parse.Keep[[sha256.Size]byte, *rsa.PrivateKey]
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{
		signers: parse.NewKeep[string, *signer](maxSigners),
		keys:    parse.NewKeep[[sha256.Size]byte, *rsa.PrivateKey](maxRSAKeys),
	}
}

// Sign signs a request. The signer is a name, or its JSON text, as Parse returns it; empty: the default one
// if there are secrets, else none. A *KeyError says that a secret cannot be used; any other error is the
// request's fault.
func (c *Cache) Sign(text string, r *Request) (Signature, error) {
	if text == "" && len(r.Secrets) == 0 {
		text = None
	}
	s, plain := named[cmp.Or(text, Standard)]
	if !plain {
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

// rsaKey returns a private key, parsed once.
func (c *Cache) rsaKey(key []byte) (*rsa.PrivateKey, error) {
	return c.keys.Of(sha256.Sum256(key), func() (*rsa.PrivateKey, error) { return privateRSA(key) })
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

// DefaultTolerance is how far a timestamp may be from now for Verify, both ways, unless the caller says
// otherwise.
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

// An arrival is a request as its receiver has it.
type arrival struct {
	secrets   []Secret
	header    http.Header
	url       *url.URL
	body      []byte
	tolerance time.Duration
}

// Verify says whether a request was signed with one of the secrets by a signer, which is a name or what Parse
// returned; empty: the default one. It returns nil, or an error that is ErrHeaders, ErrTimestamp or
// ErrSignature, or that says that the signer or a secret cannot be used. The secrets are what the signer
// takes; where it has a key pair, the public key (ParseVerifierFor) is enough. Body is what arrived, and u
// where it arrived: sorted-kv may look at its query, wechat-v3-rsa with mchid signs it whole; nil: there is
// none. A zero tolerance means DefaultTolerance, a negative one does not look at the age; hmac-sha256-body,
// sorted-kv, basic and bearer sign no time that is looked at. Nothing is verified of none. The method, which
// wechat-v3-rsa with mchid signs too, is not given: GET, POST, PUT, PATCH and DELETE are all tried, so that a
// receiver that must tell them apart has to do that by other means.
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
	return s.verify(&arrival{secrets, h, u, body, tolerance})
}

// with says whether any of the secrets' keys verifies; an error of one ends it.
func (a *arrival) with(verifies func(key []byte) (bool, error)) error {
	for i := range a.secrets {
		if ok, err := verifies(a.secrets[i].Key); ok || err != nil {
			return err
		}
	}
	return ErrSignature
}

// need returns headers, none of which may be missing.
func (a *arrival) need(names ...string) (values []string, err error) {
	for _, name := range names {
		value := a.header.Get(name)
		if value == "" {
			return nil, fmt.Errorf("%w: no %s", ErrHeaders, strings.ToLower(name))
		}
		values = append(values, value)
	}
	return values, nil
}

// checkSeconds judges a timestamp as it is written.
func (a *arrival) checkSeconds(seconds, header string) error {
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the timestamp of %s is not a number of seconds", ErrHeaders,
			strings.ToLower(header))
	}
	tolerance := a.tolerance
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
