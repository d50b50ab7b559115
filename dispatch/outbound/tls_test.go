package outbound

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// testCertificate is one for 127.0.0.1 and example.com, with the authority that it is signed by.
func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return srv.TLS.Certificates[0], pool
}

// newTLSClient returns a client that trusts an authority, at a time, and finds every name on this machine.
func newTLSClient(t *testing.T, pool *x509.CertPool, now func() time.Time) *Client {
	t.Helper()
	c := newTestClient(t, Options{Resolver: answers("127.0.0.1")})
	c.transport.tls.RootCAs, c.transport.tls.Time = pool, now
	return c
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
	_, pool := testCertificate(t)
	later := func() time.Time { return time.Now().AddDate(100, 0, 0) }
	knows, doubts, late := newTLSClient(t, pool, nil), newTLSClient(t, x509.NewCertPool(), nil), newTLSClient(t, pool, later)
	ok, cert := okay(), want{class: store.ClassTLSCert}
	asks := want{class: store.ClassTLSClientCert}
	for _, x := range []struct {
		name   string
		cfg    *tls.Config
		client *Client
		host   string
		want   want
	}{
		{"good", &tls.Config{}, knows, "127.0.0.1", ok},
		{"a name", &tls.Config{}, knows, "example.com", ok},
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12}, knows, "127.0.0.1", ok},
		{"offers HTTP/2", &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, knows, "127.0.0.1", ok},
		{"case 87: unknown authority", &tls.Config{}, doubts, "127.0.0.1", cert},
		{"case 88: other host", &tls.Config{}, knows, "shop.example", cert},
		{"case 88: expired", &tls.Config{}, late, "127.0.0.1", cert},
		{"case 86: TLS 1.1", &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, knows,
			"127.0.0.1", want{class: store.ClassTLSProto}},
		{"case 89: wants a certificate", &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert}, knows,
			"127.0.0.1", asks},
		{"case 89: wants a certificate over TLS 1.2",
			&tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, MaxVersion: tls.VersionTLS12}, knows, "127.0.0.1", asks},
	} {
		srv := serveTLS(t, x.cfg)
		r := x.client.Send(t.Context(), newRequest(strings.Replace(srv.URL, "127.0.0.1", x.host, 1)))
		t.Run(x.name, func(t *testing.T) { x.want.check(t, r) })
		if x.want == ok && (r.Timings.TLS <= 0 || r.Timings.Connect <= 0 || r.Timings.FirstByte < r.Timings.TLS) {
			t.Errorf("%s: timings %+v", x.name, r.Timings)
		}
		if strings.Contains(r.Error, "127.0.0.1") {
			t.Errorf("%s: the error shows the address: %s", x.name, r.Error)
		}
	}
}

// TestTLSIsNotLeft: case 23. A redirect to plain HTTP is not followed.
func TestTLSIsNotLeft(t *testing.T) {
	t.Parallel()
	_, pool := testCertificate(t)
	plain := serveAnswer(t, answerOK)
	srv := httptest.NewUnstartedServer(http.RedirectHandler(plain.URL, http.StatusMovedPermanently))
	srv.StartTLS()
	defer srv.Close()
	r := newTLSClient(t, pool, nil).Send(t.Context(), newRequest(srv.URL))
	answeredWith(http.StatusMovedPermanently, store.ClassRedirect).check(t, r)
	if n := plain.conns.Load(); n != 0 || r.Location != plain.URL {
		t.Errorf("%d connections to %s", n, r.Location)
	}
}

func TestTLSToSomethingElse(t *testing.T) {
	t.Parallel()
	plain := httptest.NewServer(new(recorder))
	defer plain.Close()
	banner := serveRaw(t, func(c *net.TCPConn, _ int) {
		io.WriteString(c, "220 mail.example ESMTP\r\n")
		io.Copy(io.Discard, c)
	})
	closes := serveRaw(t, func(c *net.TCPConn, _ int) { readRequest(c) })
	silent := serveRaw(t, func(c *net.TCPConn, _ int) { io.Copy(io.Discard, c) })
	for name, x := range map[string]struct {
		url  string
		want want
	}{
		"plain HTTP": {strings.Replace(plain.URL, "http:", "https:", 1), want{class: store.ClassTLSProto}},
		"a banner":   {"https://" + banner.Addr, want{class: store.ClassTLSProto}},
		"closes":     {"https://" + closes.Addr, want{class: store.ClassConnReset}},
		"silent":     {"https://" + silent.Addr, want{class: store.ClassConnectTimeout, timedOut: true}},
		// Plain HTTP to a TLS port is answered with 400 by most servers.
		"TLS": {strings.Replace(serveTLS(t, nil).URL, "https:", "http:", 1), answeredWith(400, store.ClassHTTP4xx)},
	} {
		r := newRequest(x.url)
		if x.want.timedOut {
			r.Timeout = time.Second
		}
		got := newTestClient(t, Options{}).Send(t.Context(), r)
		t.Run(name, func(t *testing.T) { x.want.check(t, got) })
		if x.want.timedOut && !strings.Contains(got.Error, "TLS") {
			t.Errorf("error: %s", got.Error)
		}
	}
}
