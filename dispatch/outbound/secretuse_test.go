package outbound

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
)

func TestSecretsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	for _, use := range Uses() {
		made, err := NewSecret(use)
		if (err == nil) != CanMake(use) {
			t.Errorf("%s: %v", use, err)
		}
		if err != nil {
			made = []byte("user:password")
		}
		read, err := ParseSecretFor(use, FormatSecretFor(use, made))
		if err != nil || !bytes.Equal(read, made) {
			t.Errorf("%s: what was made is read as something else: %v", use, err)
		}
		if other, err := NewSecret(use); err == nil && bytes.Equal(other, made) {
			t.Errorf("%s: made twice", use)
		}
		if _, err := ParseVerifierFor(use, FormatSecretFor(use, made)); err != nil {
			t.Errorf("%s: %v", use, err)
		}
	}
	for _, use := range []string{"", "x", "HMAC"} {
		_, err1 := ParseSecretFor(use, "x")
		_, err2 := NewSecret(use)
		_, err3 := PublicOf(use, nil)
		_, err4 := ParseVerifierFor(use, "x")
		if err1 == nil || err2 == nil || err3 == nil || err4 == nil || IsUse(use) || CanMake(use) {
			t.Errorf("%q is taken for a use", use)
		}
	}
}

func TestParseSecretFor(t *testing.T) {
	t.Parallel()
	pair := secretFor(t, UseEd25519, 0)
	mixed := append(bytes.Clone(pair[:32]), secretFor(t, UseEd25519, 1)[32:]...)
	b64 := base64.StdEncoding.EncodeToString
	for _, c := range []struct {
		use, text string
		ok        bool
	}{
		{UseHMAC, "whsec_" + b64(make([]byte, 24)), true}, {UseHMAC, "whsec_" + b64(make([]byte, 64)), true},
		{UseHMAC, "whsec_" + b64(make([]byte, 23)), false}, {UseHMAC, "whsec_" + b64(make([]byte, 65)), false},
		{UseHMAC, "hunter2-hunter2", false}, {UseHMAC, b64(make([]byte, 32)), false}, {UseHMAC, "", false},
		{UseHMAC, "whsec_", false}, {UseHMAC, "whsec_====", false}, {UseHMAC, "whsec_not base64!", false},
		{UseEd25519, "whsk_" + b64(pair), true}, {UseEd25519, "whsk_" + b64(pair[:32]), true}, {UseEd25519, "whsk_" + b64(mixed), false},
		{UseEd25519, "whsk_" + b64(pair[:31]), false}, {UseEd25519, "whpk_" + b64(pair[32:]), false}, {UseEd25519, "whsec_" + b64(pair), false},
		{UseEd25519, "whsk_hunter2-hunter2", false},
		{UseText, "hunter2!", true}, {UseText, "hunter2", false}, {UseText, strings.Repeat("h", 4096), true}, {UseText, strings.Repeat("h", 4097), false},
		{UseText, "hunter2 hunter2", false}, {UseText, "hunter2-\n", false}, {UseText, "hunter2-é", false}, {UseText, "", false},
		{UseBasic, "user:hunter2", true}, {UseBasic, "user:hun:ter2", true}, {UseBasic, "sk_live_1:", true}, {UseBasic, "usér:hunter2é", true},
		{UseBasic, "hunter2-hunter2", false}, {UseBasic, ":hunter2", false}, {UseBasic, "user:hun", false}, {UseBasic, "usr:", false},
		{UseBasic, "user:hunter2\n", false}, {UseBasic, "user:hunter2\xff", false}, {UseBasic, "user:" + strings.Repeat("h", 4096), false},
		{UseRSA, "hunter2-hunter2", false}, {UseRSA, "", false},
	} {
		key, err := ParseSecretFor(c.use, c.text)
		if (err == nil) != c.ok || (len(key) > 0) != c.ok {
			t.Errorf("%s %q: %v, want ok %v", c.use, cut(c.text, 40), err, c.ok)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter2") || len(c.text) > 20 && strings.Contains(err.Error(), c.text[10:])) {
			t.Errorf("%s: the error shows the secret: %v", c.use, err)
		}
	}
}

func TestRSAKeysAreReadFromPEM(t *testing.T) {
	t.Parallel()
	der := secretFor(t, UseRSA, 0)
	key, err := privateRSA(der)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	pkcs1 := block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key))
	for text, ok := range map[string]bool{
		block("PRIVATE KEY", der): true, pkcs1: true, "\n" + pkcs1 + "\n": true,
		pkcs1 + pkcs1: false, block("PRIVATE KEY", der[:100]): false, block("EC PRIVATE KEY", der): false, block("ENCRYPTED PRIVATE KEY", der): false,
		block("RSA PRIVATE KEY", der): false,
	} {
		got, err := ParseSecretFor(UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, der) {
			t.Errorf("%s…: %v, want ok %v", cut(text, 40), err, ok)
		}
	}
	if small, err := rsa.GenerateKey(rand.Reader, 1024); err != nil {
		t.Error(err)
	} else if _, err := ParseSecretFor(UseRSA, block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(small))); err == nil || !strings.Contains(err.Error(), "1024 bits") {
		t.Errorf("1024 bits: %v", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := PublicOf(UseRSA, der)
	if err != nil {
		t.Fatal(err)
	}
	want, err := ParseVerifierFor(UseRSA, public)
	if err != nil {
		t.Fatal(err)
	}
	for text, ok := range map[string]bool{
		block("CERTIFICATE", certificate): true, block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&key.PublicKey)): true,
		block("CERTIFICATE", der): false, block("PUBLIC KEY", der): false, "x": false, public + public: false, block("X", der): false,
	} {
		got, err := ParseVerifierFor(UseRSA, text)
		if (err == nil) != ok || ok && !bytes.Equal(got, want) {
			t.Errorf("%s…: %v, want ok %v", cut(text, 40), err, ok)
		}
	}
	for _, text := range []string{"whpk_x", "whpk_" + base64.StdEncoding.EncodeToString(make([]byte, 31))} {
		if _, err := ParseVerifierFor(UseEd25519, text); err == nil {
			t.Errorf("%s is taken for a public key", text)
		}
	}
	for _, use := range []string{UseEd25519, UseRSA} {
		if public, err := PublicOf(use, []byte("hunter2")); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("PublicOf %s: %q, %v", use, public, err)
		}
	}
}
