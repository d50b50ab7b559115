// Package secret encrypts what must not be plain text in SQL: the signing secrets of projects and endpoints,
// sealed headers and templates. The keyring contains the master keys.
//
// A ciphertext is bound to its project, owner, use and row, and cannot be decrypted elsewhere. A rotated
// secret signs together with its successor until its overlap ends. A rotation by another process takes effect
// here within 5 s.
//
// The package does not decide who may read a secret, and it does not sign: package outbound does.
package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// MasterKeyBytes is the length of a master key.
const MasterKeyBytes = 32

// Errors of a keyring, for errors.Is.
var (
	// ErrUnknownKey: the ciphertext was encrypted with a master key that is not in the keyring.
	ErrUnknownKey = errors.New("unknown master key")
	// ErrTampered: the ciphertext was changed, belongs to another row, or was encrypted with another key than
	// it names.
	ErrTampered = errors.New("ciphertext is not authentic")
)

// A Keyring encrypts with AES-256-GCM. It may have several master keys: the first one encrypts, all decrypt,
// so that a key can be replaced while rows of the old one exist. It is immutable and safe for concurrent use,
// and printing it reveals no key.
type Keyring struct {
	current string
	keys    map[string]cipher.AEAD
}

// NewKeyring returns a keyring of master keys, each the base64 of 32 bytes. The errors contain no key.
func NewKeyring(keys []string) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("master key: missing")
	}
	k := &Keyring{keys: make(map[string]cipher.AEAD, len(keys))}
	seen := make(map[string][]byte, len(keys))
	for i, text := range keys {
		key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("master key %d of %d: not base64", i+1, len(keys))
		}
		if len(key) != MasterKeyBytes {
			return nil, fmt.Errorf("master key %d of %d: has %d bytes, not %d", i+1, len(keys), len(key),
				MasterKeyBytes)
		}
		id := keyID(key)
		if other, ok := seen[id]; ok && !hmac.Equal(other, key) {
			return nil, fmt.Errorf("master key %d of %d: has the id %s of another key; generate a new one",
				i+1, len(keys), id)
		}
		seen[id] = key
		aead, err := newAEAD(key)
		if err != nil {
			return nil, fmt.Errorf("master key %d of %d: %w", i+1, len(keys), err)
		}
		k.keys[id] = aead
		if i == 0 {
			k.current = id
		}
	}
	return k, nil
}

func newAEAD(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// keyID identifies a key without revealing it: the first 8 hex digits of its SHA-256.
func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// Seal encrypts with the current key. aad binds the ciphertext to its project, owner, use and row; Open fails
// with any other. The ciphertext begins with a random nonce.
func (k *Keyring) Seal(aad string, plain []byte) (keyID string, ciphertext []byte) {
	return k.current, k.keys[k.current].Seal(nil, nil, plain, []byte(aad))
}

// Open decrypts a result of Seal. Its error is ErrUnknownKey or ErrTampered.
func (k *Keyring) Open(aad, keyID string, ciphertext []byte) ([]byte, error) {
	aead, ok := k.keys[keyID]
	if !ok {
		return nil, fmt.Errorf("open: %w: %q", ErrUnknownKey, keyID)
	}
	plain, err := aead.Open(nil, nil, ciphertext, []byte(aad))
	if err != nil {
		return nil, fmt.Errorf("open: %w", ErrTampered)
	}
	return plain, nil
}

// KeyID returns the id of the current key, which encrypts. Reseal re-encrypts rows of other keys.
func (k *Keyring) KeyID() string { return k.current }

// String returns the number of keys and the id of the current one.
func (k *Keyring) String() string {
	return fmt.Sprintf("keyring of %d, first %s", len(k.keys), k.current)
}

// GoString is String.
func (k *Keyring) GoString() string { return k.String() }

// LaneSecret derives the 32-byte secret that a signer uses for a callback with only a URL. It is an
// HMAC-SHA256 with the project's root secret as the key. The message is the lane for standard-v1, and the
// signer's name, a line feed and the lane for all others. So the secret of one lane or signer is of no use
// for another.
func LaneSecret(root []byte, signer, lane string) []byte {
	mac := hmac.New(sha256.New, root)
	if signer != sign.Standard {
		mac.Write([]byte(signer + "\n"))
	}
	mac.Write([]byte(lane))
	return mac.Sum(nil)
}
