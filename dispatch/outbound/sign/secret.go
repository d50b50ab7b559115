package sign

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// The uses of secrets. A signer needs secrets of one use.
const (
	// UseHMAC is for 24 to 64 random bytes, written as "whsec_" and base64 (Standard Webhooks).
	UseHMAC = "hmac"
	// UseEd25519 is for a private key, written as "whsk_" and the base64 of its 64 bytes or of its 32-byte
	// seed. The public key is written as "whpk_" and base64 (Standard Webhooks).
	UseEd25519 = "ed25519"
	// UseRSA is for a private key of 2,048 to 8,192 bits, written as PEM (PKCS #8 or PKCS #1). The public key
	// is PEM, too.
	UseRSA = "rsa"
	// UseText is for 8 to 4,096 printable ASCII characters without spaces, such as a merchant key or a token.
	UseText = "text"
	// UseBasic is for "user:password", at most 4,096 bytes of UTF-8 without control characters. The user is
	// not empty and has no colon. The secret part is the password, or the user if the password is empty. It
	// has at least 4 characters, because shorter values cannot be masked reliably.
	UseBasic = "basic"
)

// Uses returns the uses of secrets.
func Uses() []string { return []string{UseHMAC, UseEd25519, UseRSA, UseText, UseBasic} }

// IsUse reports whether use is one of Uses.
func IsUse(use string) bool { return slices.Contains(Uses(), use) }

const (
	privateKeyPrefix = "whsk_"
	publicKeyPrefix  = "whpk_"

	minTextBytes   = 8
	maxTextBytes   = 4096
	minPassword    = 4
	minRSABits     = 2048
	maxRSABits     = 8192
	madeHMACBytes  = 32
	madeTextLength = 40
)

// ParseSecretFor parses the written form of a secret and returns the bytes for Secret.Key. Its errors never
// contain the secret.
func ParseSecretFor(use, text string) ([]byte, error) {
	switch use {
	case UseHMAC:
		return ParseSecret(text)
	case UseEd25519:
		key, err := decode("key", privateKeyPrefix, text)
		if err != nil {
			return nil, err
		}
		return privateEd25519(key)
	case UseRSA:
		key, err := parseRSAPEM(text)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKCS8PrivateKey(key)
	case UseText, UseBasic:
		key := []byte(text)
		if err := checkText(use, key); err != nil {
			return nil, err
		}
		return key, nil
	case UseURL:
		key := []byte(text)
		if err := checkURLSecret(key); err != nil {
			return nil, err
		}
		return key, nil
	}
	return nil, unknownUse(use)
}

// ParseVerifierFor parses a key that verifies signatures: a public key as PublicOf returns it (for UseRSA
// also a certificate), or a secret as ParseSecretFor parses it. Its errors never contain the secret.
func ParseVerifierFor(use, text string) ([]byte, error) {
	switch {
	case use == UseEd25519 && strings.HasPrefix(text, publicKeyPrefix):
		key, err := decode("key", publicKeyPrefix, text)
		if err == nil && len(key) != ed25519.PublicKeySize {
			return nil, fmt.Errorf("public key has %d bytes, not %d", len(key), ed25519.PublicKeySize)
		}
		return key, err
	case use == UseRSA && !strings.Contains(text, "PRIVATE KEY"):
		return parsePublicPEM(text)
	}
	return ParseSecretFor(use, text)
}

// FormatSecretFor returns the written form of a secret, which ParseSecretFor parses.
func FormatSecretFor(use string, key []byte) string {
	switch use {
	case UseHMAC:
		return FormatSecret(key)
	case UseEd25519:
		return privateKeyPrefix + base64.StdEncoding.EncodeToString(key)
	case UseRSA:
		return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	}
	return string(key)
}

// CanMake reports whether NewSecret can generate a secret for a use. It cannot generate a user and a
// password.
func CanMake(use string) bool {
	return IsUse(use) && use != UseBasic
}

// NewSecret generates a secret: 32 bytes for UseHMAC, a key pair for UseEd25519 and UseRSA, 40 letters and
// digits for UseText. An RSA key has 2,048 bits and takes some tenths of a second. Any other use is an error.
func NewSecret(use string) ([]byte, error) {
	switch use {
	case UseHMAC:
		key := make([]byte, madeHMACBytes)
		_, err := rand.Read(key)
		return key, err
	case UseEd25519:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case UseRSA:
		key, err := rsa.GenerateKey(rand.Reader, minRSABits)
		if err != nil {
			return nil, err
		}
		return x509.MarshalPKCS8PrivateKey(key)
	case UseText:
		text := rand.Text() + rand.Text()
		return []byte(text[:madeTextLength]), nil
	case UseBasic:
		return nil, errors.New("a user and a password cannot be generated")
	}
	return nil, unknownUse(use)
}

// PublicOf returns the public key with which a receiver verifies signatures: "whpk_…" for UseEd25519 and PEM
// for UseRSA. It is empty for secrets that both sides share.
func PublicOf(use string, key []byte) (string, error) {
	switch use {
	case UseHMAC, UseText, UseBasic, UseURL:
		return "", nil
	case UseEd25519:
		public, err := publicEd25519(key)
		if err != nil {
			return "", err
		}
		return publicKeyPrefix + base64.StdEncoding.EncodeToString(public), nil
	case UseRSA:
		public, err := publicRSA(key)
		if err != nil {
			return "", err
		}
		der, err := x509.MarshalPKIXPublicKey(public)
		if err != nil {
			return "", errNotRSA
		}
		return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), nil
	}
	return "", unknownUse(use)
}

func unknownUse(use string) error {
	return fmt.Errorf("%q is not a use of secrets; it must be one of %s",
		parse.Cut(strings.ToValidUTF8(use, ""), 32), strings.Join(Uses(), ", "))
}

// decode parses a prefix and base64. name is what errors call the value.
func decode(name, prefix, text string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return nil, fmt.Errorf("%s does not begin with %q", name, prefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("%s is not base64 after %q", name, prefix)
	}
	return key, nil
}

// privateEd25519 returns the 64 bytes of a private key, given those bytes or its seed.
func privateEd25519(key []byte) ([]byte, error) {
	switch len(key) {
	case ed25519.SeedSize:
		return ed25519.NewKeyFromSeed(key), nil
	case ed25519.PrivateKeySize:
		if !bytes.Equal(ed25519.NewKeyFromSeed(key[:ed25519.SeedSize]), key) {
			return nil, errors.New("key is not an Ed25519 key: its private and public halves do not match")
		}
		return key, nil
	}
	return nil, fmt.Errorf("key has %d bytes, not %d or %d", len(key), ed25519.SeedSize,
		ed25519.PrivateKeySize)
}

// publicEd25519 returns the public key in the bytes that ParseSecretFor or ParseVerifierFor returned: 64
// bytes are a private key with its public half, 32 bytes are a public key. A seed, which has 32 bytes too,
// must not be passed.
func publicEd25519(key []byte) (ed25519.PublicKey, error) {
	switch len(key) {
	case ed25519.PublicKeySize:
		return key, nil
	case ed25519.PrivateKeySize:
		return key[ed25519.SeedSize:], nil
	}
	return nil, errNotEd25519
}

var (
	errNotEd25519 = &KeyError{"the signing key is not an Ed25519 key"}
	errNotRSA     = &KeyError{"the signing key is not an RSA key"}
)

// decodePEM parses a text that is exactly one PEM block.
func decodePEM(text string) (*pem.Block, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("key is not a single PEM block")
	}
	return block, nil
}

// parseRSAPEM parses a private key.
func parseRSAPEM(text string) (*rsa.PrivateKey, error) {
	block, err := decodePEM(text)
	if err != nil {
		return nil, err
	}
	var parsed any
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "RSA PRIVATE KEY":
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	default:
		return nil, errors.New("key is not an unencrypted private key: its PEM type must be PRIVATE KEY or " +
			"RSA PRIVATE KEY")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("key is not an RSA private key (PKCS #8 or PKCS #1)")
	}
	return key, checkRSASize(&key.PublicKey)
}

// checkRSASize is called when a key is parsed. Smaller keys are too weak, larger ones take too much CPU time
// to sign with.
func checkRSASize(key *rsa.PublicKey) error {
	if bits := key.N.BitLen(); bits < minRSABits || bits > maxRSABits {
		return fmt.Errorf("key has %d bits, not %d to %d", bits, minRSABits, maxRSABits)
	}
	return nil
}

// parsePublicPEM parses a public key or a certificate and returns the key in PKIX form.
func parsePublicPEM(text string) ([]byte, error) {
	block, err := decodePEM(text)
	if err != nil {
		return nil, err
	}
	var parsed any
	switch block.Type {
	case "PUBLIC KEY":
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		parsed, err = x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		var certificate *x509.Certificate
		certificate, err = x509.ParseCertificate(block.Bytes)
		if err == nil {
			parsed = certificate.PublicKey
		}
	}
	key, ok := parsed.(*rsa.PublicKey)
	if err != nil || !ok {
		return nil, errors.New("key is not an RSA public key")
	}
	if err := checkRSASize(key); err != nil {
		return nil, err
	}
	return x509.MarshalPKIXPublicKey(key)
}

// privateRSA parses the bytes that ParseSecretFor returned.
func privateRSA(key []byte) (*rsa.PrivateKey, error) {
	parsed, err := x509.ParsePKCS8PrivateKey(key)
	private, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errNotRSA
	}
	return private, nil
}

// publicRSA returns the public key of the bytes that ParseSecretFor or ParseVerifierFor returned.
func publicRSA(key []byte) (*rsa.PublicKey, error) {
	if private, err := privateRSA(key); err == nil {
		return &private.PublicKey, nil
	}
	parsed, err := x509.ParsePKIXPublicKey(key)
	public, ok := parsed.(*rsa.PublicKey)
	if err != nil || !ok {
		return nil, errNotRSA
	}
	return public, nil
}

// checkText checks a secret of UseText or UseBasic. ParseSecretFor calls it, and signers call it again before
// they send.
func checkText(use string, key []byte) error {
	text := string(key)
	switch {
	case use == UseText && (len(text) < minTextBytes || len(text) > maxTextBytes):
		return fmt.Errorf("secret has %d bytes, not %d to %d", len(text), minTextBytes, maxTextBytes)
	case use == UseText && (!parse.IsPrintable(text) || strings.Contains(text, " ")):
		return errors.New("secret must be printable ASCII without spaces")
	case use == UseText:
		return nil
	}
	user, password, ok := strings.Cut(text, ":")
	switch {
	case !ok || user == "":
		return errors.New(`secret must have the form "user:password"`)
	case len(text) > maxTextBytes:
		return fmt.Errorf("secret has %d bytes; at most %d are allowed", len(text), maxTextBytes)
	case !utf8.ValidString(text) || strings.IndexFunc(text, unicode.IsControl) >= 0:
		return errors.New("secret must be UTF-8 without control characters")
	case len(password) < minPassword && (password != "" || len(user) < minPassword):
		return fmt.Errorf("password has fewer than %d characters", minPassword)
	}
	return nil
}

// The written form of a secret of UseHMAC is SecretPrefix and standard base64 of MinSecretBytes to
// MaxSecretBytes.
const (
	SecretPrefix   = "whsec_"
	MinSecretBytes = 24
	MaxSecretBytes = 64
)

// ParseSecret parses the written form of a secret of UseHMAC. Its errors never contain the secret.
func ParseSecret(text string) ([]byte, error) {
	secret, err := decode("secret", SecretPrefix, text)
	if err == nil && (len(secret) < MinSecretBytes || len(secret) > MaxSecretBytes) {
		return nil, fmt.Errorf("secret has %d bytes, not %d to %d", len(secret), MinSecretBytes,
			MaxSecretBytes)
	}
	return secret, err
}

// FormatSecret returns the written form of a secret of UseHMAC, which ParseSecret parses.
func FormatSecret(secret []byte) string {
	return SecretPrefix + base64.StdEncoding.EncodeToString(secret)
}
