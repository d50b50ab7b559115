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

	"github.com/seed-ff5a32d8/dispatcher/internal/transcript"
)

// testCertificate returns a certificate for 127.0.0.1 and example.com, and a pool with its authority.
func testCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	srv := httptest.NewTLSServer(nil)
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	return srv.TLS.Certificates[0], pool
}

// newTLSClient returns a client that trusts the pool at the given time and resolves every name to this
// machine.
func newTLSClient(t *testing.T, pool *x509.CertPool, now func() time.Time) *Client {
	t.Helper()
	c := newTestClient(t, Options{Resolver: answers("127.0.0.1")})
	c.transport.tls.RootCAs, c.transport.tls.Time = pool, now
	return c
}

// serveTLS starts a receiver with a TLS configuration.
func serveTLS(t *testing.T, cfg *tls.Config) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Date"] = nil
		io.WriteString(w, "success")
	}))
	srv.TLS = cfg
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// TestTLS is cases 86 to 89 of the security list. A line has the host, the receiver's TLS settings and the
// client's view of the certificate. A line in quotes is a receiver that does not speak TLS.
func TestTLS(t *testing.T) {
	t.Parallel()
	_, pool := testCertificate(t)
	elsewise := map[string]string{
		`"plain HTTP"`: strings.Replace(newRecorder(t).URL, "http:", "https:", 1),
		`"a banner"`: "https://" + serveRaw(t, func(c *net.TCPConn, _ int) {
			io.WriteString(c, "220 mail.example ESMTP\r\n")
			io.Copy(io.Discard, c)
		}).Addr,
		`"an end"`:  "https://" + serveRaw(t, func(c *net.TCPConn, _ int) { readRequest(c) }).Addr,
		`"silence"`: "https://" + serveRaw(t, silence).Addr,
		// Most servers answer 400 to plain HTTP on a TLS port.
		`"TLS on http"`: strings.Replace(serveTLS(t, nil).URL, "https:", "http:", 1),
	}
	transcript.Run(t, "testdata/tls.txt", func(line string) string {
		if url := elsewise[line]; url != "" {
			r := newRequest(url)
			if line == `"silence"` {
				r.Timeout = time.Second
			}
			return describe(t, newTestClient(t, Options{}).Send(t.Context(), r))
		}
		host, how, _ := strings.Cut(line, " ")
		cfg, trusted, now := new(tls.Config), pool, time.Now
		for word := range strings.FieldsSeq(how) {
			switch word {
			case "TLS-1.1":
				cfg.MinVersion, cfg.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
			case "TLS-1.2":
				cfg.MaxVersion = tls.VersionTLS12
			case "offers-h2":
				cfg.NextProtos = []string{"h2", "http/1.1"}
			case "wants-a-certificate":
				cfg.ClientAuth = tls.RequireAndVerifyClientCert
			case "of-an-unknown-authority":
				trusted = x509.NewCertPool()
			case "a-hundred-years-later":
				now = func() time.Time { return time.Now().AddDate(100, 0, 0) }
			}
		}
		srv := serveTLS(t, cfg)
		url := strings.Replace(srv.URL, "127.0.0.1", host, 1)
		r := newTLSClient(t, trusted, now).Send(t.Context(), newRequest(url))
		isTimed := r.Timings.TLS > 0 && r.Timings.Connect > 0 && r.Timings.FirstByte >= r.Timings.TLS
		if r.Answered && !isTimed {
			t.Errorf("%s: timings %+v", line, r.Timings)
		}
		return describe(t, r)
	})
}

// TestRedirectFromTLSIsNotFollowed is case 23: a redirect to plain HTTP.
func TestRedirectFromTLSIsNotFollowed(t *testing.T) {
	t.Parallel()
	_, pool := testCertificate(t)
	plain := serveAnswer(t, answerOK)
	srv := httptest.NewUnstartedServer(http.RedirectHandler(plain.URL, http.StatusMovedPermanently))
	srv.StartTLS()
	defer srv.Close()
	r := newTLSClient(t, pool, nil).Send(t.Context(), newRequest(srv.URL))
	expect(t, r, "redirect failed, status 301, location "+plain.URL)
	if n := plain.conns.Load(); n != 0 {
		t.Errorf("%d connections to %s", n, r.Location)
	}
}
