// Package secret keeps what signs and what must not stand in SQL in clear: the key ring with the master keys,
// the signing secrets of projects and endpoints, and sealed headers and templates.
//
// A ciphertext is bound to its project, owner, use and row: moved elsewhere it cannot be opened. A rotated
// secret signs beside its successor until its overlap ends. A secret that another process has rotated is in
// force here within 5 s.
//
// It does not decide who may see a secret, and it does not sign: package outbound does.
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

// Errors of a keyring, to be told apart with errors.Is.
var (
	// ErrUnknownKey: the ciphertext was made with a master key that is not in the keyring.
	ErrUnknownKey = errors.New("master key is not known")
	// ErrTampered: the ciphertext was changed, belongs to another row, or was not made with the key that it
	// names.
	ErrTampered = errors.New("ciphertext is not authentic")
)

// A Keyring encrypts what must not stand in SQL in clear, with AES-256-GCM. Several master keys may be held:
// the first one encrypts, all decrypt, so that a key can be replaced while rows of the old one are still
// there. It is immutable, safe for concurrent use, and shows nothing of its keys when it is printed.
type Keyring struct {
	first string
	keys  map[string]cipher.AEAD
}

// NewKeyring returns a keyring over master keys, each the base64 of 32 bytes. The errors never show a key.
func NewKeyring(keys []string) (*Keyring, error) {
	if len(keys) == 0 {
		return nil, errors.New("master key: none is given")
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
			return nil, fmt.Errorf("master key %d of %d: has the same id %s as another one; make a new one",
				i+1, len(keys), id)
		}
		seen[id] = key
		aead, err := newAEAD(key)
		if err != nil {
			return nil, fmt.Errorf("master key %d of %d: %w", i+1, len(keys), err)
		}
		k.keys[id] = aead
		if i == 0 {
			k.first = id
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

// keyID names a key without giving anything of it away: the first 8 hex digits of its SHA-256.
func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:4])
}

// Seal encrypts with the first key. aad is what the ciphertext belongs to: project, owner, use and row. Open
// refuses it anywhere else. The nonce is random and stands in front of the ciphertext.
func (k *Keyring) Seal(aad string, plain []byte) (keyID string, ciphertext []byte) {
	return k.first, k.keys[k.first].Seal(nil, nil, plain, []byte(aad))
}

// Open decrypts what Seal made. Its error is ErrUnknownKey or ErrTampered.
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

// KeyID returns the id of the key that encrypts. A row with another one can be encrypted anew.
func (k *Keyring) KeyID() string { return k.first }

// String names the keys by their ids.
func (k *Keyring) String() string {
	return fmt.Sprintf("keyring of %d, first %s", len(k.keys), k.first)
}

// GoString is String.
func (k *Keyring) GoString() string { return k.String() }

// LaneSecret derives the secret by which a signer signs what is sent to a plain URL, 32 bytes: HMAC-SHA256
// under the project's root secret, of the lane for standard-v1, and of the signer's name, a line feed and the
// lane for every other. So one lane's secret is of no use in another lane, nor one signer's for another
// signer.
func LaneSecret(root []byte, signer, lane string) []byte {
	mac := hmac.New(sha256.New, root)
	if signer != sign.Standard {
		mac.Write([]byte(signer + "\n"))
	}
	mac.Write([]byte(lane))
	return mac.Sum(nil)
}
