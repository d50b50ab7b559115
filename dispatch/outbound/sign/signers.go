package sign

import (
	"crypto/rsa"
	"crypto/sha256"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

const (
	// maxSigners is how many compiled signers are kept.
	maxSigners = 1000
	// maxRSAKeys is how many parsed keys are kept: parsing one costs as much as signing with it.
	maxRSAKeys = 1000
)

// A Cache signs requests. It keeps signers that were compiled and RSA keys that were parsed. It is safe for
// concurrent use.
type Cache struct {
	// signers are by their text, keys by the hash of what they were parsed from. The two that most callbacks have need no look-up.
	signers            *parse.Keep[string, *signer]
	standard, unsigned *signer
	keys               *parse.Keep[[sha256.Size]byte, *rsa.PrivateKey]
}

// NewCache returns an empty cache.
func NewCache() *Cache {
	return &Cache{
		signers: parse.NewKeep[string, *signer](maxSigners), standard: defaultSigner(Standard), unsigned: defaultSigner(None),
		keys: parse.NewKeep[[sha256.Size]byte, *rsa.PrivateKey](maxRSAKeys),
	}
}

// Sign signs a request. The signer is a name, or its JSON text, as ParseSigner returns it; empty: the default one if
// there are secrets, else none. A *keyError says that a secret cannot be used; any other error is the request's fault.
func (c *Cache) Sign(signer string, r *Request) (Signature, error) {
	s, err := c.signerOf(signer, len(r.Secrets) > 0)
	if err != nil {
		return Signature{}, err
	}
	return c.sign(s, r)
}

func (c *Cache) signerOf(text string, secrets bool) (*signer, error) {
	switch {
	case text == None || text == "" && !secrets:
		return c.unsigned, nil
	case text == Standard || text == "":
		return c.standard, nil
	}
	if s, ok := c.signers.Get(text); ok {
		return s, nil
	}
	s, err := readSigner(text)
	if err == nil {
		c.signers.Put(text, s)
	}
	return s, err
}

// rsaKey returns a private key, parsed once.
func (c *Cache) rsaKey(key []byte) (*rsa.PrivateKey, error) {
	id := sha256.Sum256(key)
	if private, ok := c.keys.Get(id); ok {
		return private, nil
	}
	private, err := privateRSA(key)
	if err != nil {
		return nil, err
	}
	c.keys.Put(id, private)
	return private, nil
}
