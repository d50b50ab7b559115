package outbound

import (
	"context"
	"crypto/tls"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A phase is how far the dial that an attempt asked for has come.
type phase int

const (
	phaseNone phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
)

// An attempt is the context of one request and all that is measured of it, in one allocation. All of it
// happens in the goroutine that sends.
type attempt struct {
	context.Context
	start   time.Time
	timeout time.Duration

	// gotConn: there was a connection to send on. reused: another attempt had it before.
	gotConn, reused bool
	phase           phase
	// What was looked up and opened for it took so long. firstByte is counted from the start.
	dns, connect, tls, firstByte time.Duration
	// certWanted: the server asked for a client certificate.
	certWanted bool
}

type attemptKey struct{}

// Value lets the dialer find the attempt in its context.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// attemptOf returns the attempt that a context belongs to, or nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) onFirstByte() {
	if a.firstByte == 0 {
		a.firstByte = time.Since(a.start)
	}
}

// noCertificate answers a server that asks for a client certificate: there is none, and the attempt takes
// note, because what servers say when they refuse is not clear.
func noCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if a := attemptOf(info.Context()); a != nil {
		a.certWanted = true
	}
	return new(tls.Certificate), nil
}

// timings returns the parts of the attempt. On a connection that was used before nothing was looked up or
// opened.
func (a *attempt) timings(end time.Time) store.Timings {
	return store.Timings{
		DNS: milliseconds(a.dns), Connect: milliseconds(a.connect), TLS: milliseconds(a.tls),
		FirstByte: milliseconds(a.firstByte), Total: milliseconds(end.Sub(a.start)),
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
