package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file is the table from an answer or an error to a class. The texts are ours throughout: what the
// libraries say contains URLs, addresses, and whatever a receiver chose to send.

// A finding is what is known of an attempt without an answer.
type finding struct {
	class store.Class
	text  string
	// uncharged attempts do not count. reached: the request may have reached the receiver.
	uncharged, reached     bool
	timedOut, stale, local bool
}

// fail fills in an attempt that got no answer. Its outcome is unknown where the receiver may have acted on
// it.
func (resp *Response) fail(f finding) {
	resp.Class, resp.Error = f.class, f.text
	resp.Charged = !f.uncharged
	resp.TimedOut, resp.Stale, resp.LocalFailure = f.timedOut, f.stale, f.local
	resp.Outcome = store.AttemptFailed
	if f.reached {
		resp.Outcome = store.AttemptUnknown
	}
}

// diagnose classifies an attempt that ended with an error. The order of the cases matters where errors wrap
// each other.
func diagnose(ctx context.Context, a *attempt, err error, fresh bool) finding {
	var (
		bad    *requestError
		dns    *net.DNSError
		op     *net.OpError
		record tls.RecordHeaderError
	)
	certificate := certificateText(err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return finding{class: store.ClassInterrupted, text: "interrupted by shutdown", uncharged: true,
			reached: a.gotConn}
	case errors.Is(err, ErrBlocked):
		return finding{class: store.ClassBlocked, text: ErrBlocked.Error()}
	case errors.As(err, &bad):
		return invalidRequest(bad.Error())
	case errors.Is(err, errNoNameServer):
		return localTrouble(errNoNameServer.Error())
	case isLocalResource(err):
		return localTrouble("no file descriptor, port or memory is left for a connection")
	case errors.As(err, &dns):
		return dnsFinding(dns)
	case isTimeout(a, err):
		return timeoutFinding(a)
	case certificate != "":
		return finding{class: store.ClassTLSCert, text: certificate}
	case errors.Is(err, http.ErrSchemeMismatch):
		return finding{class: store.ClassTLSProto, text: "the server speaks plain HTTP on an https address"}
	case errors.As(err, &op) && op.Op == "remote error":
		// A server that wants a certificate says so after our handshake has ended.
		if a.certWanted || strings.Contains(op.Err.Error(), "certificate") {
			return finding{class: store.ClassTLSClientCert, text: "the server asks for a client certificate"}
		}
		return finding{class: store.ClassTLSProto, text: "the server refused the TLS handshake"}
	case errors.As(err, &record) || !a.gotConn && strings.Contains(err.Error(), "tls: "):
		return finding{class: store.ClassTLSProto,
			text: "the TLS handshake found no common ground; TLS 1.2 is the least"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return finding{class: store.ClassConnectRefused, text: "connection refused"}
	case a.gotConn:
		return exchangeFinding(a, err, fresh)
	case isReset(err):
		return finding{class: store.ClassConnReset, text: "the connection was closed during the handshake"}
	}
	return finding{class: store.ClassUnreachable, text: "the host cannot be reached"}
}

// localTrouble is our own.
func localTrouble(text string) finding {
	return finding{class: store.ClassLocalInfra, text: text, uncharged: true, local: true}
}

// isLocalResource says whether this machine has run out of what a connection needs. The resolver turns errors
// into text, so they are also looked for there.
func isLocalResource(err error) bool {
	if err == nil {
		return false
	}
	for _, errno := range [...]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS,
		syscall.ENOMEM} {
		if errors.Is(err, errno) || inDNSText(err, errno.Error()) {
			return true
		}
	}
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return false
	}
	// IPv4: no local port is left. IPv6: this machine has no address of that kind, and never will for this
	// destination.
	var op *net.OpError
	if errors.As(err, &op) {
		if to, ok := op.Addr.(*net.TCPAddr); ok {
			return to.IP.To4() != nil
		}
	}
	return true
}

func inDNSText(err error, text string) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && strings.Contains(dns.Err, text)
}

// cannotAskResolver says whether a lookup failed before any name server could be asked.
func cannotAskResolver(err error) bool {
	for _, errno := range [...]syscall.Errno{
		syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EPERM,
		syscall.EACCES,
	} {
		if inDNSText(err, errno.Error()) {
			return true
		}
	}
	return false
}

// isAnswer says whether a failed lookup ended with what a name server said.
func isAnswer(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && !dns.IsTimeout && !isLocalResource(err) && !cannotAskResolver(err)
}

func dnsFinding(dns *net.DNSError) finding {
	switch {
	case dns.IsNotFound:
		return finding{class: store.ClassDNSNotFound, text: "no such host"}
	case dns.IsTimeout:
		return lookupTimedOut
	}
	return finding{class: store.ClassDNSError, text: "the host could not be looked up"}
}

var lookupTimedOut = finding{class: store.ClassDNSError, text: "looking up the host timed out",
	timedOut: true}

// isTimeout says whether time ran out: the attempt's, or that of one of its parts.
func isTimeout(a *attempt, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(a.Err(), context.DeadlineExceeded)
}

func timeoutFinding(a *attempt) finding {
	if a.gotConn {
		return finding{class: store.ClassTimeoutHeaders, text: "no answer in time", timedOut: true,
			reached: true}
	}
	switch a.phase {
	case phaseDNS:
		return lookupTimedOut
	case phaseTLS:
		return finding{class: store.ClassConnectTimeout, text: "the TLS handshake timed out", timedOut: true}
	}
	return finding{class: store.ClassConnectTimeout, text: "connecting timed out", timedOut: true}
}

// certificateText says what is wrong with a server's certificate; "": nothing is.
func certificateText(err error) string {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		host         x509.HostnameError
		invalid      x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &host):
		return "the server's certificate is for another host"
	case errors.As(err, &authority):
		return "the server's certificate is signed by an unknown authority"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired or is not yet valid"
	case errors.As(err, &invalid), errors.As(err, &verification):
		return "the server's certificate is not valid"
	}
	return ""
}

// exchangeFinding knows what goes wrong once there is a connection. Whether the receiver acted on the request
// is unknown unless it began to answer.
func exchangeFinding(a *attempt, err error, fresh bool) finding {
	switch {
	case errors.Is(err, errHeadersTooLarge):
		return finding{class: store.ClassHeadersTooLarge, text: "the answer's headers are larger than 64 KiB"}
	case !isReset(err):
		return finding{class: store.ClassProtocol, text: "the answer is not valid HTTP"}
	case a.firstByte != 0:
		return finding{class: store.ClassConnReset,
			text: "the connection was closed within the answer's headers", reached: true}
	case a.reused && !fresh:
		// The receiver may have closed it before it saw the request, as it may with any idle connection.
		return finding{
			class: store.ClassConnReset, text: "a kept-alive connection was closed before the answer",
			reached: true, stale: true, uncharged: true,
		}
	}
	return finding{class: store.ClassConnReset, text: "the connection was closed before the answer",
		reached: true}
}

// isReset says whether the peer, or the network, ended the connection.
func isReset(err error) bool {
	for _, cause := range [...]error{
		syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED, io.EOF, io.ErrUnexpectedEOF,
		io.ErrClosedPipe, net.ErrClosed,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}
