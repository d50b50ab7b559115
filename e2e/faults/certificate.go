package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A certificate is one for 127.0.0.1 that signs itself, and its files.
type certificate struct {
	pair        tls.Certificate
	public, key string
}

// env is the variable that has a Go program trust the certificate.
func (c certificate) env() string { return "SSL_CERT_FILE=" + c.public }

// serverArgs are the arguments of a redis-server that presents the certificate and asks its clients for none.
func (c certificate) serverArgs() []string {
	return []string{"--tls-cert-file", c.public, "--tls-key-file", c.key, "--tls-ca-cert-file", c.public,
		"--tls-auth-clients", "no"}
}

// makeCertificate makes one that is valid today.
func makeCertificate(t *testing.T) certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		// The nodes of a Cluster are each other's clients.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	public, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return certificate{
		pair:   tls.Certificate{Certificate: [][]byte{public}, PrivateKey: key},
		public: write("public.pem", "CERTIFICATE", public), key: write("key.pem", "EC PRIVATE KEY", private),
	}
}
