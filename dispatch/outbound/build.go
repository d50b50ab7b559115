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

// prepared is a request that is ready, and how it is to be shown.
type prepared struct {
	header http.Header
	// shown are the headers with credentials masked.
	shown []store.Header
	// hidden are values that must not be shown, not even when the receiver echoes them.
	hidden []string
	// keyID names the secrets that signed.
	keyID string
}

// prepare signs the request and sets its headers. now is the timestamp that is signed. A signer that puts its
// signature elsewhere changes the body of r or the query of u.
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
		header: make(http.Header, len(r.Headers)+8),
		values: make([]string, 0, len(r.Headers)+8),
		shown:  make([]store.Header, 0, len(r.Headers)+8),
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
	b.set("Traceparent", "traceparent", traceparent())
	b.set("User-Agent", "user-agent", c.userAgent)
	if r.ContentType != "" && r.Body != nil {
		if err := sign.CheckContentType(r.ContentType); err != nil {
			return prepared{}, &requestError{err}
		}
		b.set("Content-Type", "content-type", r.ContentType)
	}
	p := prepared{hidden: append(r.hiddenQuery(u.RawQuery), signed.Hidden...), keyID: signed.KeyID}
	p.addCallers(&b, r.Headers, &signed)
	p.header, p.shown = b.header, b.shown
	if signed.Body != nil {
		r.Body = signed.Body
	}
	if signed.Query != "" {
		u.RawQuery = signed.Query
	}
	return p, nil
}

// addCallers adds the caller's headers, but those that the signer sets, and hides the credentials among them.
func (p *prepared) addCallers(b *headerBuilder, headers []store.Header, signed *sign.Signature) {
	for _, h := range headers {
		if signed.Owns(h.Name) {
			continue
		}
		b.add(h)
		if store.IsSensitiveHeader(h.Name) {
			b.mask()
			p.hidden = hide(p.hidden, h.Value)
			if _, credential, ok := strings.Cut(h.Value, " "); ok { // Bearer and its like
				p.hidden = hide(p.hidden, credential)
			}
		}
	}
}

// A headerBuilder fills a header map, with all its values in one slice, and the list that is shown.
type headerBuilder struct {
	header http.Header
	values []string
	shown  []store.Header
}

// set sets one of our own headers; key is its canonical name, as written in the list.
func (b *headerBuilder) set(key, name, value string) {
	n := len(b.values)
	b.values = append(b.values, value)
	b.header[key] = b.values[n : n+1 : n+1]
	b.shown = append(b.shown, store.Header{Name: name, Value: value})
}

// add adds one of the caller's. A name that is given twice is sent twice; Content-Type replaces ours.
func (b *headerBuilder) add(h store.Header) {
	key := textproto.CanonicalMIMEHeaderKey(h.Name)
	if key == "Content-Type" {
		delete(b.header, key)
		b.shown = slices.DeleteFunc(b.shown, func(s store.Header) bool { return s.Name == "content-type" })
	}
	if present, ok := b.header[key]; ok {
		b.header[key] = append(present, h.Value)
		b.shown = append(b.shown, h)
		return
	}
	b.set(key, h.Name, h.Value)
}

// mask hides the value that was added last.
func (b *headerBuilder) mask() { b.shown[len(b.shown)-1].Value = store.Masked }

// traceparent returns a new trace of W3C Trace Context: one for each attempt, marked as sampled so that a
// receiver that follows its parent's decision keeps it.
func traceparent() string {
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
	copy(text[52:], "-01")
	return string(text[:])
}

// newHTTPRequest returns the request for one attempt. The URL is taken as it was parsed.
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

// A requestError is a request that cannot be sent as it is.
type requestError struct{ err error }

// Error returns the sentence.
func (e *requestError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *requestError) Unwrap() error { return e.err }

// CheckMethod says whether a method can be sent: nil, or one sentence. The method is as it would be sent, in
// upper case.
func CheckMethod(method string) error {
	switch {
	case method == "":
		return fmt.Errorf("method is empty")
	case len(method) > 32 || !sign.IsToken(method):
		return fmt.Errorf("%q is not an HTTP method", parse.Cut(method, 32))
	case method == http.MethodConnect || method == http.MethodTrace:
		return fmt.Errorf("%s cannot be sent", method)
	}
	return nil
}

// contentTypeOf returns the content type that a request is sent with.
func contentTypeOf(r *Request) string {
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, "Content-Type") {
			return h.Value
		}
	}
	return r.ContentType
}
