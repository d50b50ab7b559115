package outbound

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// An authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert, key, pool}
}

// issue returns a certificate for 127.0.0.1, or for another host, that ends when it is told to.
func (a *authority) issue(t *testing.T, until time.Time, host string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// serveTLS starts a receiver with the configuration.
func serveTLS(t *testing.T, cfg *tls.Config) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "success") }))
	srv.TLS = cfg
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	good := ours.issue(t, later, "127.0.0.1")
	c := newTestClient(t, Options{})
	c.transport.tls.RootCAs = ours.pool
	ok := okay()
	with := func(certs ...tls.Certificate) *tls.Config { return &tls.Config{Certificates: certs} }
	for _, x := range []struct {
		name string
		cfg  *tls.Config
		want want
	}{
		{"good", with(good), ok},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{good}, MaxVersion: tls.VersionTLS12}, ok},
		{"offers HTTP/2", &tls.Config{Certificates: []tls.Certificate{good}, NextProtos: []string{"h2", "http/1.1"}}, ok},
		{"unknown authority", with(theirs.issue(t, later, "127.0.0.1")), want{class: store.ClassTLSCert}},
		{"other host", with(ours.issue(t, later, "shop.example")), want{class: store.ClassTLSCert}},
		{"expired", with(ours.issue(t, time.Now().Add(-time.Minute), "127.0.0.1")), want{class: store.ClassTLSCert}},
		{"TLS 1.1", &tls.Config{Certificates: []tls.Certificate{good}, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11},
			want{class: store.ClassTLSProto}},
		{"wants a client certificate", &tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert},
			want{class: store.ClassTLSClientCert}},
		{"wants a client certificate over TLS 1.2",
			&tls.Config{Certificates: []tls.Certificate{good}, ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: tls.VersionTLS12},
			want{class: store.ClassTLSClientCert}},
	} {
		srv := serveTLS(t, x.cfg)
		r := c.Send(t.Context(), newRequest(srv.URL))
		t.Run(x.name, func(t *testing.T) { x.want.check(t, r) })
		if x.want == ok && (r.Timings.TLS <= 0 || r.Timings.Connect <= 0 || r.Timings.FirstByte < r.Timings.TLS) {
			t.Errorf("%s: timings %+v", x.name, r.Timings)
		}
		if strings.Contains(r.Error, "127.0.0.1") {
			t.Errorf("%s: the error shows the address: %s", x.name, r.Error)
		}
	}
}

func TestTLSToSomethingElse(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	plain := httptest.NewServer(new(recorder))
	defer plain.Close()
	r := c.Send(t.Context(), newRequest(strings.Replace(plain.URL, "http:", "https:", 1)))
	want{class: store.ClassTLSProto}.check(t, r)

	banner := serveRaw(t, func(c *net.TCPConn, _ int) {
		io.WriteString(c, "220 mail.example ESMTP\r\n")
		io.Copy(io.Discard, c)
	})
	r = c.Send(t.Context(), newRequest("https://"+banner.Addr+"/"))
	want{class: store.ClassTLSProto}.check(t, r)

	closes := serveRaw(t, func(c *net.TCPConn, _ int) { readRequest(c) })
	r = c.Send(t.Context(), newRequest("https://"+closes.Addr+"/"))
	want{class: store.ClassConnReset}.check(t, r)

	silent := serveRaw(t, func(c *net.TCPConn, _ int) { io.Copy(io.Discard, c) })
	slow := newRequest("https://" + silent.Addr + "/")
	slow.Timeout = time.Second
	r = c.Send(t.Context(), slow)
	want{class: store.ClassConnectTimeout, timedOut: true}.check(t, r)
	if !strings.Contains(r.Error, "TLS") {
		t.Errorf("error: %s", r.Error)
	}

	// Plain HTTP to a TLS port is answered with 400 by most servers.
	secure := serveTLS(t, nil)
	r = c.Send(t.Context(), newRequest(strings.Replace(secure.URL, "https:", "http:", 1)))
	answeredWith(400, store.ClassHTTP4xx).check(t, r)
}
