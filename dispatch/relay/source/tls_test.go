package source_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/relay/source"
	"github.com/seed-ff5a32d8/dispatcher/internal/testserver"
)

// certificate writes a certificate for 127.0.0.1 and its key to a directory that the server's user can read.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "certificate-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{{127, 0, 0, 1}},
		IsCA:        true, BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, secret.Public(), secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for file, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: public}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// TestTLS checks the parameters of a MySQL DSN on a server that refuses other connections.
func TestTLS(t *testing.T) {
	needsServers(t)
	t.Parallel()
	cert, key := certificate(t)
	m := testserver.NewMariaDB(t, "--ssl-cert="+cert, "--ssl-key="+key)
	if err := m.Exec(t.Context(), "SET GLOBAL require_secure_transport = ON"); err != nil {
		t.Fatal(err)
	}
	for parameters, want := range map[string]string{
		"":                         "connect: Error",
		"?tls=false":               "connect: Error",
		"?tls=true":                "x509",
		"?tls=true&tls_ca=" + cert: "dispatcher_outbox does not exist", // connected
		"?tls=skip-verify":         "dispatcher_outbox does not exist",
		"?tls=preferred":           "dispatcher_outbox does not exist",
	} {
		s, err := source.Open(source.Options{DSN: m.URL() + parameters})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Connect(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("connect with %q: %v, want %q", parameters, err, want)
		}
	}
}
