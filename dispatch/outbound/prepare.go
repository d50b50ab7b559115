package outbound

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// prepared is a request that is ready to send, with what may be stored of it.
type prepared struct {
	header http.Header
	// redacted are the headers with credentials masked, for storage.
	redacted []store.Header
	// hidden are the credentials to mask in the response if the receiver echoes them.
	hidden []string
	// keyID names the secrets that signed, see Response.KeyID.
	keyID string
}

// prepare signs the request and sets its headers. now is the timestamp that is signed.
//
// A signer that puts its signature into the body or the query changes r.Body or u.RawQuery.
func (c *Client) prepare(r *Request, u *url.URL, now time.Time) (prepared, error) {
	for _, h := range r.Headers {
		if why := sign.CheckHeader(h); why != "" {
			return prepared{}, &requestError{fmt.Errorf("header: %s", why)}
		}
	}
	seconds := strconv.FormatInt(now.Unix(), 10)
	signed, err := c.signers.Sign(r.Signer, &sign.Request{
		ID: r.ID, Method: r.Method, URL: u, ContentType: contentTypeOf(r), Body: r.Body, Secrets: r.Secrets,
		At: now, Seconds: seconds,
	})
	if err != nil {
		return prepared{}, err
	}
	b := headerBuilder{
		header:   make(http.Header, len(r.Headers)+8),
		values:   make([]string, 0, len(r.Headers)+8),
		redacted: make([]store.Header, 0, len(r.Headers)+8),
	}
	b.set(sign.HeaderID, "webhook-id", r.ID)
	b.set(sign.HeaderTimestamp, "webhook-timestamp", seconds)
	if signed.Standard != "" {
		b.set(sign.HeaderSignature, "webhook-signature", signed.Standard)
		b.mask()
	}
	for _, h := range signed.Headers {
		b.set(textproto.CanonicalMIMEHeaderKey(h.Name), h.Name, h.Value)
		if h.Masked {
			b.mask()
		}
	}
	b.set(sign.HeaderAttempt, "webhook-attempt", strconv.Itoa(r.Number))
	trace := r.Traceparent
	if trace == "" {
		trace = unsampledTrace()
	}
	b.set("Traceparent", "traceparent", trace)
	b.set("User-Agent", "user-agent", c.userAgent)
	if r.ContentType != "" && r.Body != nil {
		if err := sign.CheckContentType(r.ContentType); err != nil {
			return prepared{}, &requestError{err}
		}
		b.set("Content-Type", "content-type", r.ContentType)
	}
	p := prepared{hidden: append(r.hiddenQuery(u.RawQuery), signed.Hidden...), keyID: signed.KeyID}
	p.addCallerHeaders(&b, r.Headers, &signed)
	p.header, p.redacted = b.header, b.redacted
	if signed.Body != nil {
		r.Body = signed.Body
	}
	if signed.Query != "" {
		u.RawQuery = signed.Query
	}
	if signed.URL != nil {
		*u = *signed.URL
	}
	return p, nil
}

// addCallerHeaders adds the caller's headers except those that the signer owns. Credentials among them go to
// hidden.
func (p *prepared) addCallerHeaders(b *headerBuilder, headers []store.Header, signed *sign.Signature) {
	for _, h := range headers {
		if signed.Owns(h.Name) {
			continue
		}
		b.add(h)
		if store.IsSensitiveHeader(h.Name) {
			b.mask()
			p.hidden = hide(p.hidden, h.Value)
			if _, credential, ok := strings.Cut(h.Value, " "); ok { // "Bearer …" and similar
				p.hidden = hide(p.hidden, credential)
			}
		}
	}
}

// A headerBuilder fills a header map and the redacted list. All values of the map share one slice, to save
// allocations.
type headerBuilder struct {
	header   http.Header
	values   []string
	redacted []store.Header
}

// set sets a header of the client or the signer. key is the canonical form of name; the redacted list has
// name.
func (b *headerBuilder) set(key, name, value string) {
	n := len(b.values)
	b.values = append(b.values, value)
	b.header[key] = b.values[n : n+1 : n+1]
	b.redacted = append(b.redacted, store.Header{Name: name, Value: value})
}

// add adds a header of the caller. A repeated name is sent repeatedly. Content-Type replaces the default.
func (b *headerBuilder) add(h store.Header) {
	key := textproto.CanonicalMIMEHeaderKey(h.Name)
	if key == "Content-Type" {
		delete(b.header, key)
		isDefault := func(h store.Header) bool { return h.Name == "content-type" }
		b.redacted = slices.DeleteFunc(b.redacted, isDefault)
	}
	if present, ok := b.header[key]; ok {
		b.header[key] = append(present, h.Value)
		b.redacted = append(b.redacted, h)
		return
	}
	b.set(key, h.Name, h.Value)
}

// mask masks the header that was added last in the redacted list.
func (b *headerBuilder) mask() { b.redacted[len(b.redacted)-1].Value = store.Masked }

// unsampledTrace returns a W3C Trace Context header with new ids. It is not marked as sampled, because its
// span is not recorded (ADR 0036).
func unsampledTrace() string {
	var raw [24]byte
	for {
		binary.NativeEndian.PutUint64(raw[0:], rand.Uint64())
		binary.NativeEndian.PutUint64(raw[8:], rand.Uint64())
		binary.NativeEndian.PutUint64(raw[16:], rand.Uint64())
		// All zeros is invalid for either id.
		if raw[0]|raw[15] != 0 && raw[16]|raw[23] != 0 {
			break
		}
	}
	var text [55]byte
	copy(text[:], "00-")
	hex.Encode(text[3:35], raw[:16])
	text[35] = '-'
	hex.Encode(text[36:52], raw[16:])
	copy(text[52:], "-00")
	return string(text[:])
}

// newHTTPRequest returns the request of one attempt. It uses u as parsed and does not parse the URL again.
func newHTTPRequest(ctx context.Context, r *Request, u *url.URL, header http.Header) (*http.Request, error) {
	if err := CheckMethod(r.Method); err != nil {
		return nil, &requestError{err}
	}
	body := io.ReadCloser(http.NoBody)
	if len(r.Body) > 0 {
		body = io.NopCloser(bytes.NewReader(r.Body))
	}
	return (&http.Request{
		Method:        r.Method,
		URL:           u,
		Host:          u.Host,
		Header:        header,
		Close:         r.Fresh,
		Body:          body,
		ContentLength: int64(len(r.Body)),
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
	}).WithContext(ctx), nil
}

// A requestError says why a request cannot be sent: its data is invalid. A retry does not help.
type requestError struct{ err error }

// Error returns the cause's text.
func (e *requestError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *requestError) Unwrap() error { return e.err }

// CheckMethod returns nil if the method can be sent, else an error of one sentence. The method must be in
// upper case. CONNECT and TRACE are refused.
func CheckMethod(method string) error {
	switch {
	case method == "":
		return fmt.Errorf("method is empty")
	case len(method) > 32 || !sign.IsToken(method):
		return fmt.Errorf("%q is not an HTTP method", parse.Cut(method, 32))
	case method == http.MethodConnect || method == http.MethodTrace:
		return fmt.Errorf("method %s is not supported", method)
	}
	return nil
}

// contentTypeOf returns the content type of the request: a caller's header goes before r.ContentType.
func contentTypeOf(r *Request) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			return h.Value
		}
	}
	return r.ContentType
}
