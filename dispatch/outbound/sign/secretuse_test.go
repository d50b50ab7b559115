package sign_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
)

func TestSecretsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, use := range sign.Uses() {
		made, err := sign.NewSecret(use)
		if (err == nil) != sign.CanMake(use) {
			t.Errorf("%s: %v", use, err)
		}
		if err != nil {
			made = []byte("user:password")
		}
		read, err := sign.ParseSecretFor(use, sign.FormatSecretFor(use, made))
		if err != nil || !bytes.Equal(read, made) {
			t.Errorf("%s: what was made is read as something else: %v", use, err)
		}
		if other, err := sign.NewSecret(use); err == nil && bytes.Equal(other, made) {
			t.Errorf("%s: made twice", use)
		}
		if _, err := sign.ParseVerifierFor(use, sign.FormatSecretFor(use, made)); err != nil {
			t.Errorf("%s: %v", use, err)
		}
	}
	for _, use := range []string{"", "x", "HMAC"} {
		_, err1 := sign.ParseSecretFor(use, "x")
		_, err2 := sign.NewSecret(use)
		_, err3 := sign.PublicOf(use, nil)
		_, err4 := sign.ParseVerifierFor(use, "x")
		if err1 == nil || err2 == nil || err3 == nil || err4 == nil || sign.IsUse(use) || sign.CanMake(use) {
			t.Errorf("%q is taken for a use", use)
		}
	}
}

func TestParseSecretFor(t *testing.T) {
	t.Parallel()
	pair := signtest.Secret(t, sign.UseEd25519, 0)
	mixed := append(bytes.Clone(pair[:32]), signtest.Secret(t, sign.UseEd25519, 1)[32:]...)
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		use, text string
		ok        bool
	}{
		{sign.UseHMAC, "whsec_" + b64(make([]byte, 24)), true}, {sign.UseHMAC, "whsec_" + b64(make([]byte, 64)), true},
		{sign.UseHMAC, "whsec_" + b64(make([]byte, 23)), false}, {sign.UseHMAC, "whsec_" + b64(make([]byte, 65)), false},
		{sign.UseHMAC, "hunter2-hunter2", false}, {sign.UseHMAC, b64(make([]byte, 32)), false}, {sign.UseHMAC, "", false},
		{sign.UseHMAC, "whsec_", false}, {sign.UseHMAC, "whsec_====", false}, {sign.UseHMAC, "whsec_not base64!", false},
		{sign.UseEd25519, "whsk_" + b64(pair), true}, {sign.UseEd25519, "whsk_" + b64(pair[:32]), true}, {sign.UseEd25519, "whsk_" + b64(mixed), false},
		{sign.UseEd25519, "whsk_" + b64(pair[:31]), false}, {sign.UseEd25519, "whpk_" + b64(pair[32:]), false}, {sign.UseEd25519, "whsec_" + b64(pair), false},
		{sign.UseEd25519, "whsk_hunter2-hunter2", false},
		{sign.UseText, "hunter2!", true}, {sign.UseText, "hunter2", false}, {sign.UseText, strings.Repeat("h", 4096), true}, {sign.UseText, strings.Repeat("h", 4097), false},
		{sign.UseText, "hunter2 hunter2", false}, {sign.UseText, "hunter2-\n", false}, {sign.UseText, "hunter2-é", false}, {sign.UseText, "", false},
		{sign.UseBasic, "user:hunter2", true}, {sign.UseBasic, "user:hun:ter2", true}, {sign.UseBasic, "sk_live_1:", true}, {sign.UseBasic, "usér:hunter2é", true},
		{sign.UseBasic, "hunter2-hunter2", false}, {sign.UseBasic, ":hunter2", false}, {sign.UseBasic, "user:hun", false}, {sign.UseBasic, "usr:", false},
		{sign.UseBasic, "user:hunter2\n", false}, {sign.UseBasic, "user:hunter2\xff", false}, {sign.UseBasic, "user:" + strings.Repeat("h", 4096), false},
		{sign.UseRSA, "hunter2-hunter2", false}, {sign.UseRSA, "", false},
	} {
		key, err := sign.ParseSecretFor(c.use, c.text)
		if (err == nil) != c.ok || (len(key) > 0) != c.ok {
			t.Errorf("%s %q: %v, want ok %v", c.use, parse.Cut(c.text, 40), err, c.ok)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || len(c.text) > 20 && strings.Contains(err.Error(), c.text[10:])) {
			t.Errorf("%s: the error shows the secret: %v", c.use, err)
		}
	}
}

func TestRSAKeysAreReadFromPEM(t *testing.T) {
	t.Parallel()
	der := signtest.Secret(t, sign.UseRSA, 0)
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		t.Fatal(err)
	}
	key := parsed.(*rsa.PrivateKey)
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	for text, ok := range map[string]bool{
		block("PRIVATE KEY", der): true, pkcs1: true, "\n" + pkcs1 + "\n": true,
		pkcs1 + pkcs1: false, block("PRIVATE KEY", der[:100]): false, block("EC PRIVATE KEY", der): false, block("ENCRYPTED PRIVATE KEY", der): false,
		block("RSA PRIVATE KEY", der): false,
	} {
		got, err := sign.ParseSecretFor(sign.UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, der) {
			t.Errorf("%s…: %v, want ok %v", parse.Cut(text, 40), err, ok)
		}
	}
	if small, err := rsa.GenerateKey(rand.Reader, 1024); err != nil {
		t.Error(err)
	} else if _, err := sign.ParseSecretFor(sign.UseRSA, block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small))); err == nil || !strings.Contains(err.Error(), "1024 bits") {
		t.Errorf("1024 bits: %v", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := sign.PublicOf(sign.UseRSA, der)
	if err != nil {
		t.Fatal(err)
	}
	want, err := sign.ParseVerifierFor(sign.UseRSA, public)
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		block("CERTIFICATE", certificate): true, block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)): true,
		block("CERTIFICATE", der): false, block("PUBLIC KEY", der): false, "x": false, public + public: false, block("X", der): false,
	} {
		got, err := sign.ParseVerifierFor(sign.UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, want) {
			t.Errorf("%s…: %v, want ok %v", parse.Cut(text, 40), err, ok)
		}
	}
	for _, text := range []string{"whpk_x", "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 31))} {
		if _, err := sign.ParseVerifierFor(sign.UseEd25519, text); err == nil {
			t.Errorf("%s is taken for a public key", text)
		}
	}
	for _, use := range []string{sign.UseEd25519, sign.UseRSA} {
		if public, err := sign.PublicOf(use, []byte("hunter2")); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("PublicOf %s: %q, %v", use, public, err)
		}
	}
}

// FuzzSecret: a secret that is taken is written as one that reads the same, has a public key that verifies,
// and an error never shows what was written.
func FuzzSecret(f *testing.F) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	for _, s := range []string{
		"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsk_" + strings.Repeat("A", 43) + "=",
		"whpk_" + strings.Repeat("A", 43) + "=",
		string(pkcs1), string(public), "user:password", "a secret", "0123456789", "whsec_", "whsk_####",
		"-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
	} {
		for use := range len(secretUses) {
			f.Add(byte(use), s)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		use := secretUses[int(which)%len(secretUses)]
		key, err := sign.ParseSecretFor(use, text)
		if err != nil {
			if len(text) >= 8 && strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error shows the secret: %v", use, err)
			}
		} else {
			written := sign.FormatSecretFor(use, key)
			if back, err := sign.ParseSecretFor(use, written); err != nil || !bytes.Equal(back, key) {
				t.Errorf("%s: %q is written %q, which reads as %x, %v; want %x", use, text, written, back,
					err, key)
			}
			public, err := sign.PublicOf(use, key)
			if err != nil {
				t.Errorf("%s: the public key of %q: %v", use, text, err)
			} else if public != "" {
				if _, err := sign.ParseVerifierFor(use, public); err != nil {
					t.Errorf("%s: the public key of %q is %q: %v", use, text, public, err)
				}
			}
		}
		if verifier, err := sign.ParseVerifierFor(use, text); err == nil {
			if _, err := sign.PublicOf(use, verifier); err != nil {
				t.Errorf("%s: what verifies by %q has no public key: %v", use, text, err)
			}
		}
	})
}

var secretUses = []string{sign.UseHMAC, sign.UseEd25519, sign.UseRSA, sign.UseText, sign.UseBasic}
