package sign_test

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign/signtest"
	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

func TestSecretsRoundTrip(t *testing.T) {
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
			t.Errorf("%s: a generated secret is parsed to another one: %v", use, err)
		}
		if other, err := sign.NewSecret(use); err == nil && bytes.Equal(other, made) {
			t.Errorf("%s: two generated secrets are equal", use)
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
			t.Errorf("%q is accepted as a use", use)
		}
	}
}

func TestParseSecretFor(t *testing.T) {
	t.Parallel()
	transcript.Run(t, "testdata/secrets.txt", func(line string) string {
		read := sign.ParseSecretFor
		if rest, ok := strings.CutPrefix(line, "verifier "); ok {
			line, read = rest, sign.ParseVerifierFor
		}
		use, text, _ := strings.Cut(line, " ")
		key, err := read(use, text)
		if err == nil {
			return fmt.Sprintf("%d bytes", len(key))
		}
		isLeaked := len(text) > 20 && strings.Contains(err.Error(), text[10:])
		if isLeaked || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error contains the secret: %v", use, err)
		}
		return err.Error()
	})
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
		pkcs1 + pkcs1: false, block("PRIVATE KEY", der[:100]): false, block("EC PRIVATE KEY", der): false,
		block("ENCRYPTED PRIVATE KEY", der): false,
		block("RSA PRIVATE KEY", der):       false,
	} {
		got, err := sign.ParseSecretFor(sign.UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, der) {
			t.Errorf("%s…: %v, want ok %v", parse.Cut(text, 40), err, ok)
		}
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	smallPEM := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small))
	_, err = sign.ParseSecretFor(sign.UseRSA, smallPEM)
	if err == nil || !strings.Contains(err.Error(), "1024 bits") {
		t.Errorf("1024 bits: %v", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"},
		NotAfter: time.Now().Add(time.Hour)}
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
		block("CERTIFICATE", certificate):                                   true,
		block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)): true,
		block("CERTIFICATE", der):                                           false,
		block("PUBLIC KEY", der):                                            false,
		"x":                                                                 false,
		public + public:                                                     false,
		block("X", der):                                                     false,
	} {
		got, err := sign.ParseVerifierFor(sign.UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, want) {
			t.Errorf("%s…: %v, want ok %v", parse.Cut(text, 40), err, ok)
		}
	}
	for _, use := range []string{sign.UseEd25519, sign.UseRSA} {
		public, err := sign.PublicOf(use, []byte("hunter2"))
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("PublicOf %s: %q, %v", use, public, err)
		}
	}
}

// FuzzSecret checks that a valid secret has a written form that parses to it and a public key that verifies.
// No error contains the secret.
func FuzzSecret(f *testing.F) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		f.Fatal(err)
	}
	pkcs1 := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	public := pem.EncodeToMemory(&pem.Block{Type: "RSA PUBLIC KEY",
		Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)})
	seeds := []string{string(pkcs1), string(public)}
	for _, line := range transcript.Inputs(f, "testdata/secrets.txt") {
		_, text, _ := strings.Cut(strings.TrimPrefix(line, "verifier "), " ")
		seeds = append(seeds, text)
	}
	for _, s := range seeds {
		for use := range sign.Uses() {
			f.Add(byte(use), s)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, text string) {
		uses := sign.Uses()
		use := uses[int(which)%len(uses)]
		key, err := sign.ParseSecretFor(use, text)
		if err != nil {
			if len(text) >= 8 && strings.Contains(err.Error(), text) {
				t.Errorf("%s: the error contains the secret: %v", use, err)
			}
		} else {
			written := sign.FormatSecretFor(use, key)
			if back, err := sign.ParseSecretFor(use, written); err != nil || !bytes.Equal(back, key) {
				t.Errorf("%s: %q is written %q, which is parsed to %x, %v; want %x",
					use, text, written, back, err, key)
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
				t.Errorf("%s: the verifier %q has no public key: %v", use, text, err)
			}
		}
	})
}
