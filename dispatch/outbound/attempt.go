package outbound

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A phase is the step of opening a connection that an attempt has reached. A timeout reports it.
type phase int

const (
	phaseNone phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
)

// An attempt is the context of one request and its measurements, in one allocation. Its fields are accessed
// only by the goroutine that called Send, so they need no lock.
type attempt struct {
	context.Context
	start   time.Time
	timeout time.Duration

	// gotConn means that a connection was available, so the request may have been sent. reused means that an
	// earlier attempt used the same connection.
	gotConn, reused bool
	phase           phase
	// The durations of the parts. All but firstByte are zero on a reused connection. firstByte is measured
	// from start.
	dns, connect, tls, firstByte time.Duration
	// clientCertRequested means that the server requested a client certificate.
	clientCertRequested bool
}

type attemptKey struct{}

// Value implements context.Context. With attemptKey it returns the attempt, so that dialer and TLS callbacks
// find it.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// attemptOf returns the attempt that a context belongs to. It is nil outside of Send.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) onFirstByte() {
	if a.firstByte == 0 {
		a.firstByte = time.Since(a.start)
	}
}

// noClientCertificate is the TLS callback for a server that requests a client certificate. The client has
// none. It records the request in the attempt, because the alerts of servers that then refuse are ambiguous.
func noClientCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if a := attemptOf(info.Context()); a != nil {
		a.clientCertRequested = true
	}
	return new(tls.Certificate), nil
}

// timings returns the measurements in milliseconds.
func (a *attempt) timings(end time.Time) store.Timings {
	return store.Timings{
		DNS: milliseconds(a.dns), Connect: milliseconds(a.connect), TLS: milliseconds(a.tls),
		FirstByte: milliseconds(a.firstByte), Total: milliseconds(end.Sub(a.start)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
