package outbound

import (
	"context"
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A phase is how far the dial that an attempt asked for has come.
type phase int32

const (
	phaseNone phase = iota
	phaseDNS
	phaseConnect
	phaseTLS
)

// An attempt is the context of one request and all that is measured of it, in one allocation. It is never reused: of two
// addresses that are dialled at once, the one that lost may still be reported on.
type attempt struct {
	context.Context
	start   time.Time
	timeout time.Duration

	// Set by the goroutine that sends.
	gotConn, reused, secure bool
	conn                    *conn
	gotConnAt               time.Time

	// Set by others, possibly after the end. Durations are in nanoseconds.
	phase        atomic.Int32
	dns, connect atomic.Int64
	firstByte    atomic.Int64
	// certWanted: the server asked for a client certificate.
	certWanted atomic.Bool
}

type attemptKey struct{}

// Value lets the dialer find the attempt in its context.
func (a *attempt) Value(key any) any {
	if key == (attemptKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// attemptOf returns the attempt that a context belongs to, or nil. All methods can be called on nil.
func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

// onConn notes the connection that the attempt has got.
func (a *attempt) onConn(l *line, reused bool) {
	a.gotConn, a.reused = true, reused
	a.gotConnAt = time.Now()
	a.conn, a.secure = l.below, l.wire != net.Conn(l.below)
}

func (a *attempt) onFirstByte() {
	a.firstByte.CompareAndSwap(0, int64(time.Since(a.start)))
}

func (a *attempt) enter(p phase) {
	if a != nil {
		a.phase.Store(int32(p))
	}
}

// noCertificate answers a server that asks for a client certificate: there is none, and the attempt takes note, because
// what servers say when they refuse is not clear.
func noCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if a := attemptOf(info.Context()); a != nil {
		a.certWanted.Store(true)
	}
	return new(tls.Certificate), nil
}

func (a *attempt) dnsTook(d time.Duration) {
	if a != nil {
		a.dns.Store(int64(d))
	}
}

func (a *attempt) connectTook(d time.Duration) {
	if a != nil {
		a.connect.Store(int64(d))
	}
}

// timings returns the parts of the attempt. On a connection that was used before nothing was looked up or opened.
func (a *attempt) timings(end time.Time) store.Timings {
	t := store.Timings{Total: milliseconds(end.Sub(a.start)), FirstByte: milliseconds(time.Duration(a.firstByte.Load()))}
	switch {
	case a.reused:
	case a.conn != nil:
		// The connection may have been opened for another attempt, which then went without it.
		t.DNS, t.Connect = milliseconds(a.conn.dns), milliseconds(a.conn.connect)
		if a.secure {
			t.TLS = milliseconds(max(a.gotConnAt.Sub(a.conn.ready), 0))
		}
	default:
		t.DNS, t.Connect = milliseconds(time.Duration(a.dns.Load())), milliseconds(time.Duration(a.connect.Load()))
	}
	return t
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
