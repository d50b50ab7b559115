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

// This file maps an answer or an error to a class. All texts are written here. Errors of libraries are never
// copied: they contain URLs, addresses and data from the receiver.

// A failure describes an attempt that got no answer.
type failure struct {
	class store.Class
	text  string
	// uncharged attempts do not count. reached means that the request may have reached the receiver.
	uncharged, reached     bool
	timedOut, stale, local bool
}

// fail fills in an attempt that got no answer. If the request may have reached the receiver, the outcome is
// unknown: the receiver may have processed it.
func (resp *Response) fail(f failure) {
	resp.Class, resp.Error = f.class, f.text
	resp.Charged = !f.uncharged
	resp.TimedOut, resp.Stale, resp.LocalFailure = f.timedOut, f.stale, f.local
	resp.Outcome = store.AttemptFailed
	if f.reached {
		resp.Outcome = store.AttemptUnknown
	}
}

// classifyError classifies an attempt that ended with an error. The order of the cases matters, because
// errors wrap each other. ctx is the caller's context: its cancellation is a shutdown.
func classifyError(ctx context.Context, a *attempt, err error, fresh bool) failure {
	var (
		bad    *requestError
		mail   *mailError
		dns    *net.DNSError
		op     *net.OpError
		record tls.RecordHeaderError
	)
	certificate := certificateError(err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return failure{class: store.ClassInterrupted, text: "interrupted by shutdown", uncharged: true,
			reached: a.gotConn}
	case errors.Is(err, ErrBlocked):
		return failure{class: store.ClassBlocked, text: ErrBlocked.Error()}
	case errors.As(err, &bad):
		return invalidRequest(bad.Error())
	case errors.As(err, &mail):
		return failure{class: mail.class, text: mail.text}
	case errors.Is(err, errNoNameServer):
		return localFailure(errNoNameServer.Error())
	case localResource(err) != "":
		return localFailure("this machine cannot open a connection: " + localResource(err))
	case errors.As(err, &dns):
		return dnsFailure(dns)
	case isTimeout(a, err):
		return timeoutFailure(a)
	case certificate != "":
		return failure{class: store.ClassTLSCert, text: certificate}
	case errors.Is(err, http.ErrSchemeMismatch):
		return failure{class: store.ClassTLSProto, text: "the server answered plain HTTP to an https URL"}
	case errors.As(err, &op) && op.Op == "remote error":
		// In TLS 1.3 a server refuses a missing certificate only after the client's handshake has ended.
		if a.clientCertRequested || strings.Contains(op.Err.Error(), "certificate") {
			return failure{class: store.ClassTLSClientCert, text: "the server requires a client certificate"}
		}
		return failure{class: store.ClassTLSProto, text: "the server refused the TLS handshake"}
	case errors.As(err, &record) || !a.gotConn && strings.Contains(err.Error(), "tls: "):
		return failure{class: store.ClassTLSProto,
			text: "the TLS handshake failed; the server must support TLS 1.2 or later"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure{class: store.ClassConnectRefused, text: "connection refused"}
	case a.gotConn:
		return exchangeFailure(a, err, fresh)
	case isReset(err):
		return failure{class: store.ClassConnReset, text: "the connection was closed during the handshake"}
	}
	return failure{class: store.ClassUnreachable, text: "the host cannot be reached"}
}

// localFailure describes a failure of this machine, not of the receiver. It is not charged.
func localFailure(text string) failure {
	return failure{class: store.ClassLocalInfra, text: text, uncharged: true, local: true}
}

// localResource returns what the system says if this machine has run out of a resource that a connection
// needs, else an empty text. The resolver turns system errors into text, so this function also searches the
// text.
func localResource(err error) string {
	for _, errno := range [...]syscall.Errno{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM,
	} {
		if errors.Is(err, errno) || inDNSText(err, errno.Error()) {
			return errno.Error()
		}
	}
	if !errors.Is(err, syscall.EADDRNOTAVAIL) {
		return ""
	}
	// For IPv4, EADDRNOTAVAIL means that no local port is left, which passes. For IPv6 it mostly means that
	// this machine has no IPv6 address. Waiting does not cure that, and an attempt that is not charged would
	// be repeated for ever, so the attempt is charged.
	var op *net.OpError
	if errors.As(err, &op) {
		if to, ok := op.Addr.(*net.TCPAddr); ok && to.IP.To4() == nil {
			return ""
		}
	}
	return "no local port is left"
}

func inDNSText(err error, text string) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && strings.Contains(dns.Err, text)
}

// resolverUnreachable reports whether a lookup failed before a name server could be reached.
func resolverUnreachable(err error) bool {
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

// isNameServerAnswer reports whether a lookup failed with an answer from a name server.
func isNameServerAnswer(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && !dns.IsTimeout && localResource(err) == "" && !resolverUnreachable(err)
}

func dnsFailure(dns *net.DNSError) failure {
	switch {
	case dns.IsNotFound:
		return failure{class: store.ClassDNSNotFound, text: "no such host"}
	case dns.IsTimeout:
		return lookupTimedOut
	}
	return failure{class: store.ClassDNSError, text: "the DNS lookup failed"}
}

var lookupTimedOut = failure{class: store.ClassDNSError, text: "the DNS lookup timed out", timedOut: true}

// isTimeout reports whether the timeout of the attempt or of one of its parts has passed.
func isTimeout(a *attempt, err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout() || errors.Is(a.Err(), context.DeadlineExceeded)
}

// timeoutFailure names the part of the attempt that timed out. If the request may have been sent, the
// outcome is unknown.
func timeoutFailure(a *attempt) failure {
	if a.gotConn {
		return failure{
			class: store.ClassTimeoutHeaders, text: "no response within the timeout",
			timedOut: true, reached: true,
		}
	}
	switch a.phase {
	case phaseDNS:
		return lookupTimedOut
	case phaseTLS:
		return failure{class: store.ClassConnectTimeout, text: "the TLS handshake timed out", timedOut: true}
	}
	return failure{class: store.ClassConnectTimeout, text: "connecting timed out", timedOut: true}
}

// certificateError returns what is wrong with a server's certificate. It is empty if the error has another
// cause.
func certificateError(err error) string {
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

// exchangeFailure classifies an error after a connection was available. A response that cannot be used is a
// failed attempt. If the connection was closed, the receiver may have processed the request.
func exchangeFailure(a *attempt, err error, fresh bool) failure {
	switch {
	case errors.Is(err, errHeadersTooLarge):
		return failure{class: store.ClassHeadersTooLarge, text: "the response headers are larger than 64 KiB"}
	case !isReset(err):
		return failure{class: store.ClassProtocol, text: "the response is not valid HTTP"}
	case a.firstByte != 0:
		return failure{class: store.ClassConnReset,
			text: "the connection was closed within the response headers", reached: true}
	case a.reused && !fresh:
		// A receiver may close an idle connection at any time, so it may not have seen the request. The
		// caller retries such an attempt at once on a new connection (Response.Stale).
		return failure{
			class: store.ClassConnReset, text: "a kept-alive connection was closed before the response",
			reached: true, stale: true, uncharged: true,
		}
	}
	return failure{class: store.ClassConnReset, text: "the connection was closed before the response",
		reached: true}
}

// isReset reports whether the peer or the network closed the connection.
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
