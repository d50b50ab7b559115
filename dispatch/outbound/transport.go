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

// tlsSessions is how many TLS sessions are remembered for resumption.
const tlsSessions = 4096

// A transport makes requests on connections that the guard allows. It speaks HTTP/1.1 only: an attempt then
// has its connection for itself, so that a connection that stalls or dies takes one attempt with it and not
// all that share it. It sends what it is given, once, and uses no proxy, which would hide the address from
// the guard (ADR 0016, 0031).
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
			GetClientCertificate: noCertificate,
		},
	}
}

// RoundTrip makes a request of an attempt, whose context it has. One that is to be the last on its connection
// gets one of its own.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	a := attemptOf(req.Context())
	if err := a.Err(); err != nil {
		return nil, err // an attempt that is over sends nothing
	}
	to := place{req.URL.Scheme, req.URL.Host}
	var l *line
	if !req.Close {
		l = t.pool.take(to)
	}
	reused := l != nil
	if !reused {
		var err error
		l, err = t.open(a, req.URL, to)
		if err != nil {
			return nil, err
		}
		if err := a.Err(); err != nil {
			l.hangUp()
			return nil, err
		}
	}
	a.gotConn, a.reused = true, reused
	return l.exchange(req, a, t.pool.give)
}

// open opens a connection for the attempt, and gives it up with the attempt.
func (t *transport) open(a *attempt, u *url.URL, to place) (*line, error) {
	host, err := asciiHost(u.Hostname())
	if err != nil {
		return nil, &requestError{err}
	}
	port, err := portOf(u)
	if err != nil {
		return nil, &requestError{err}
	}
	below, err := t.dialer.dial(a, host, port)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" {
		return newLine(below, below, to), nil
	}
	wire, err := t.secure(a, below, host)
	if err != nil {
		_ = below.Close() // the handshake's error is what matters
		return nil, err
	}
	return newLine(wire, below, to), nil
}

// secure takes the attempt through the handshake.
func (t *transport) secure(a *attempt, below net.Conn, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(a, dialTimeout)
	defer cancel()
	a.phase = phaseTLS
	config := t.tls.Clone()
	config.ServerName = host
	wire := tls.Client(below, config)
	start := time.Now()
	err := wire.HandshakeContext(ctx)
	a.tls = time.Since(start)
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok &&
		string(record.RecordHeader[:]) == "HTTP/" {
		err = http.ErrSchemeMismatch
	}
	return wire, err
}

// newEngine wraps a transport in the engine that makes a single attempt: it never tries again, waits for
// nothing and hands every answer and every error through as it is.
func newEngine(rt http.RoundTripper) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     single{rt},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Logger:       nil,
		RetryMax:     0,
		CheckRetry:   func(context.Context, *http.Response, error) (bool, error) { return false, nil },
		Backoff:      func(time.Duration, time.Duration, int, *http.Response) time.Duration { return 0 },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
}

// locationKey is where a redirect's Location is kept. Keys from the wire are in canonical form, so none is
// equal to it.
const locationKey = "location"

// single stands between the engine and the transport, and keeps two things from happening:
//
//   - After any error the engine closes the idle connections of its client. One destination that fails would
//     cost all
//     others their connections; so CloseIdleConnections is not passed on.
//   - http.Client parses the Location of a redirect that it does not follow, and a malformed one would hide
//     the answer
//     behind an error; so Location is moved out of its sight.
type single struct{ rt http.RoundTripper }

// RoundTrip makes the request.
func (s single) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.rt.RoundTrip(req)
	if err == nil && resp.StatusCode/100 == 3 {
		if location, ok := resp.Header["Location"]; ok {
			delete(resp.Header, "Location")
			resp.Header[locationKey] = location
		}
	}
	return resp, err
}
