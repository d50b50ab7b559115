package faults

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A thousand attempts to one HTTPS host open at most twice as many connections as its lanes may have in
// flight, whatever the receiver answers and however long its handshakes take: each one more costs as much as
// ten attempts. Lanes that share a host, as a platform's merchants do, share its connections.
func TestAThousandAttemptsKeepTheirConnections(t *testing.T) {
	mostlyWaits(t)
	const attempts = 1000
	body := strings.Repeat("0123456789abcdef", 512)
	for _, how := range []struct {
		lanes, concurrency, status int
		state                      client.State
	}{{1, 32, 500, "dead"}, {8, 8, 200, "succeeded"}} {
		t.Run(string(how.state), func(t *testing.T) {
			var conns, requests, foreign atomic.Int64
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				requests.Add(1)
				if req.Proto != "HTTP/1.1" {
					foreign.Add(1)
				}
				w.WriteHeader(how.status)
				io.WriteString(w, body) // in chunks
			}))
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					conns.Add(1)
				}
			}
			server.EnableHTTP2 = true
			files := makeCertificate(t)
			server.TLS = &tls.Config{
				Certificates: []tls.Certificate{files.pair},
				GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
					time.Sleep(50 * time.Millisecond) // how far away the receiver is
					return nil, nil
				},
			}
			server.StartTLS()
			t.Cleanup(func() {
				server.CloseClientConnections()
				server.Close()
			})
			p := harness.Serve(t, harness.Launch{
				On:   harness.NewBackend(t, harness.SQLiteEmbedded),
				Args: []string{"--lane-concurrency", fmt.Sprint(how.concurrency)}, Under: []string{"env", files.env()},
			})
			batch := make([]harness.Submission, attempts)
			for i := range batch {
				batch[i] = harness.Submission{"url": server.URL, "payload": i,
					"lane": fmt.Sprint("merchant-", i%how.lanes), "policy": harness.Submission{"tiers": []string{}}}
			}
			accepted, err := p.AcceptBatch(t.Context(), batch)
			if err != nil {
				t.Fatal(err)
			}
			harness.Await(t, p.Client, time.Minute)
			last, err := p.Callback(t.Context(), accepted[attempts-1].ID)
			if err != nil {
				t.Fatal(err)
			}
			if n := requests.Load(); n != attempts || last.State != how.state || foreign.Load() > 0 {
				t.Errorf("%d requests for %d callbacks, %d of them not by HTTP/1.1, of which the last is %s, want %s", n,
					attempts, foreign.Load(), last.State, how.state)
			}
			if n, most := conns.Load(), int64(2*how.lanes*how.concurrency); n > most {
				t.Errorf("%d connections, at most %d for %d lanes of %d", n, most, how.lanes, how.concurrency)
			}
			t.Logf("%d requests over %d connections", requests.Load(), conns.Load())
		})
	}
}

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
