package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// tlsSessions is the maximum of TLS sessions cached for resumption.
const tlsSessions = 4096

// A transport sends requests on connections that the guard permits. It writes each request once.
//
// It uses HTTP/1.1 only: each attempt has its connection to itself, so a stalled connection affects one
// attempt. It uses no proxy, because a proxy would hide the address from the guard (ADR 0016, 0031).
type transport struct {
	dialer *dialer
	tls    *tls.Config
	pool   *pool
}

func newTransport(d *dialer, maxIdlePerHost int) *transport {
	return &transport{
		dialer: d,
		pool:   newPool(maxIdlePerHost),
		tls: &tls.Config{
			MinVersion:           tls.VersionTLS12,
			ClientSessionCache:   tls.NewLRUClientSessionCache(tlsSessions),
			GetClientCertificate: noClientCertificate,
		},
	}
}

// RoundTrip sends the request of an attempt, whose context it must have. A request with Close uses a new
// connection.
//
// If the receiver has closed an idle connection, the attempt fails. RoundTrip does not repeat the request on
// another connection, because the receiver may have read it. Response.Stale lets the caller decide.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req.Context())
	if err := a.Err(); err != nil {
		return nil, err // the attempt has ended, so nothing may be sent
	}
	if isMail(req.URL) {
		return t.sendMail(req, a)
	}
	key := poolKey{req.URL.Scheme, req.URL.Host}
	var c *connection
	if !req.Close {
		c = t.pool.get(key)
	}
	reused := c != nil
	if !reused {
		var err error
		c, err = t.open(a, req.URL, key)
		if err != nil {
			return nil, err
		}
		if err := a.Err(); err != nil {
			c.abort()
			return nil, err
		}
	}
	a.gotConn, a.reused = true, reused
	return c.exchange(req, a, t.pool.put)
}

// open opens a connection within the attempt's context.
func (t *transport) open(a *attempt, u *url.URL, key poolKey) (*connection, error) {
	raw, host, err := connect(a, u, t.dialer.dial)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" {
		return newConnection(raw, raw, key), nil
	}
	conn, err := t.handshake(a, raw, host)
	if err != nil {
		_ = raw.Close() // the handshake's error is returned
		return nil, err
	}
	return newConnection(conn, raw, key), nil
}

// connect connects an attempt to the server of a URL, and returns the host's name in ASCII.
func connect(
	a *attempt, u *url.URL, dial func(a *attempt, host string, port uint16) (net.Conn, error),
) (conn net.Conn, host string, err error) {
	host, err = asciiHost(u.Hostname())
	if err != nil {
		return nil, "", &requestError{err}
	}
	port, err := portOf(u)
	if err != nil {
		return nil, "", &requestError{err}
	}
	conn, err = dial(a, host, port)
	return conn, host, err
}

// handshake makes a TLS client connection on raw, within another dialTimeout: a server that accepts the
// connection and then says nothing must not use up the attempt's timeout. Its error is
// http.ErrSchemeMismatch if the receiver answers in plain HTTP. The caller closes raw after an error.
func (t *transport) handshake(a *attempt, raw net.Conn, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(a, dialTimeout)
	defer cancel()
	a.phase = phaseTLS
	config := t.tls.Clone()
	config.ServerName = host
	conn := tls.Client(raw, config)
	start := time.Now()
	err := conn.HandshakeContext(ctx)
	a.tls = time.Since(start)
	record, ok := errors.AsType[tls.RecordHeaderError](err)
	if ok && string(record.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch
	}
	return conn, err
}

// newHTTPClient wraps a transport in a retryablehttp client that makes a single attempt: it does not retry or
// wait, and returns every answer and error unchanged.
func newHTTPClient(rt http.RoundTripper) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     wrappedTransport{rt},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Logger:       nil,
		RetryMax:     0,
		CheckRetry:   func(context.Context, *http.Response, error) (bool, error) { return false, nil },
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return 0 },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// locationKey is where wrappedTransport stores the Location of a redirect. Header names of an answer are in
// canonical form, so none is equal to it.
const locationKey = "location"

// A wrappedTransport prevents two effects of the clients above it:
//
//   - After an error retryablehttp closes the idle connections of its http.Client. One failing destination
//     would cost all others their connections. So this type does not implement CloseIdleConnections.
//   - http.Client parses the Location of a redirect even if it does not follow it. If the header is
//     malformed, it returns an error in place of the answer. So this type moves Location to locationKey.
type wrappedTransport struct{ rt http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s wrappedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.rt.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 3 {
		if location, ok := resp.Header["Location"]; ok {
			delete(resp.Header, "Location")
			resp.Header[locationKey] = location
		}
	}
	return resp, err
}
