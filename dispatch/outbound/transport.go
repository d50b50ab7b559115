package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	// maxResponseHeaderBytes bounds a receiver's headers, informational responses included.
	maxResponseHeaderBytes = 64 << 10
	// idleTimeout is how long a connection is kept after its last use. Receivers that close idle connections unannounced
	// do so after longer than this, mostly; each one that is still in the pool then costs an attempt whose fate is unknown.
	idleTimeout = 5 * time.Second
	// maxIdle bounds the connections kept over all destinations.
	maxIdle = 4096
	// tlsSessions is how many TLS sessions are remembered for resumption.
	tlsSessions = 4096
)

// newTransport returns a transport that dials through the guard. It speaks HTTP/1.1 only: an attempt then has its
// connection for itself, so that a connection that stalls or dies takes one attempt with it and not all that share it.
func newTransport(dial func(context.Context, string, string) (net.Conn, error), maxIdlePerHost int, keepAlive bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:       nil, // environment proxies would hide the address from the guard
		DialContext: dial,
		Protocols:   protocols,
		TLSClientConfig: &tls.Config{
			MinVersion:           tls.VersionTLS12,
			ClientSessionCache:   tls.NewLRUClientSessionCache(tlsSessions),
			GetClientCertificate: noCertificate,
		},
		TLSHandshakeTimeout:    dialTimeout,
		DisableKeepAlives:      !keepAlive,
		DisableCompression:     true, // bodies are decoded here, with the limit on what comes out
		MaxIdleConns:           max(maxIdle, maxIdlePerHost),
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
	}
}

// newEngine wraps a transport in the engine that makes a single attempt: it never tries again, waits for nothing and
// hands every answer and every error through as it is.
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

// locationKey is where a redirect's Location is kept. Keys from the wire are in canonical form, so none is equal to it.
const locationKey = "location"

// single stands between the engine and the transport, and keeps two things from happening:
//
//   - After any error the engine closes the idle connections of its client. One destination that fails would cost all
//     others their connections; so CloseIdleConnections is not passed on.
//   - http.Client parses the Location of a redirect that it does not follow, and a malformed one would hide the answer
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
