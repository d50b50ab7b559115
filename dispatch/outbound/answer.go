package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/rule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// MaxResponseBytes is the maximum of bytes read from a response body, after decoding.
	MaxResponseBytes = rule.MaxBodyBytes
	// MaxStoredBytes is the maximum of bytes of the body that are stored, as text.
	MaxStoredBytes = 4 << 10
	// maxStoredHeader is the maximum of bytes stored of one response header.
	maxStoredHeader = 1 << 10
	// maxDrain is how many bytes are read after invalid gzip. If the body ends within them, the connection
	// can be reused.
	maxDrain = 4 << 10
	// maxGzipBytes is the maximum of compressed bytes read. Without it, gzip blocks that decode to nothing
	// would be read for ever.
	maxGzipBytes = 128 << 10
)

// An answer is a receiver's response, read up to the limits.
type answer struct {
	status int
	header http.Header
	// body is the decoded body, at most MaxResponseBytes. It is valid until release.
	body []byte
	// plain is the body as UTF-8, without byte order mark, valid as long as body. garbled means that the
	// bytes do not match the declared encoding.
	plain   []byte
	garbled bool
	// text is the start of the body for storage and display: control characters are removed and echoed
	// credentials are masked.
	text      string
	truncated bool
	// tooLarge means that the body is longer than MaxResponseBytes. decodeErr is the error of its
	// Content-Encoding. readErr is the connection's error before the end of the body.
	tooLarge           bool
	decodeErr, readErr error

	buffer *bytes.Buffer
}

// buffers holds buffers for response bodies. Most bodies are a few bytes long, and none is longer than
// MaxResponseBytes + 1.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// The reasons why a body cannot be decoded.
var (
	errEncoding    = errors.New("the body has an unsupported Content-Encoding")
	errNotGzip     = errors.New("the body is not valid gzip")
	errGzipLarge   = errors.New("the compressed body is larger than 128 KiB")
	errGzipMembers = errors.New("the body has more than one gzip member")
)

// read reads the body up to the limits and closes it. hidden are the credentials to mask in the stored text.
//
// A body that is read to its end leaves the connection reusable. A longer body costs the connection.
func (a *answer) read(resp *http.Response, hidden []string) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // the body is the connection: a read would wait for a receiver that waits for this client
	}
	encoding := resp.Header.Get("Content-Encoding")
	if resp.ContentLength == 0 || resp.Body == http.NoBody {
		encoding = ""
	}
	a.buffer = buffers.Get().(*bytes.Buffer)
	a.buffer.Reset()
	switch strings.ToLower(encoding) {
	case "", "identity":
		a.fill(resp.Body)
	case "gzip", "x-gzip":
		a.fillGzip(resp.Body)
	default:
		a.decodeErr = errEncoding
		a.fill(resp.Body)
	}
	a.body = a.buffer.Bytes()
	if len(a.body) > MaxResponseBytes {
		a.tooLarge = true
		a.body = a.body[:MaxResponseBytes]
	}
	a.plain = a.body
	if !parse.IsASCII(a.body) {
		text, ok := parse.UTF8(resp.Header.Get("Content-Type"), a.body)
		a.plain, a.garbled = text, !ok
	}
	a.text, a.truncated = storedText(a.plain, MaxStoredBytes, hidden)
	a.truncated = a.truncated || a.tooLarge || a.readErr != nil
}

// release returns the buffer to the pool. body and plain are invalid afterwards.
func (a *answer) release() {
	if a.buffer != nil {
		buffers.Put(a.buffer)
		a.buffer, a.body, a.plain = nil, nil, nil
	}
}

// fault returns why the body cannot be tested, as text for people. It is empty if the whole body was read and
// decoded.
func (a *answer) fault() string {
	switch {
	case a.decodeErr != nil:
		return a.decodeErr.Error()
	case a.tooLarge:
		return "too_large: the body is larger than 64 KiB"
	case a.readErr != nil:
		return "truncated: the body ended early"
	case a.garbled:
		return rule.NotEncoded
	}
	return ""
}

// document returns the view of the answer that rules test. The body is included only if the rule reads it.
func (a *answer) document(readsBody bool) rule.Document {
	d := rule.Document{Status: a.status}
	if readsBody {
		d.Text, d.Broken, d.Seen = a.plain, a.fault(), bodySummary(a)
	}
	return d
}

// bodySummary describes the body for people: its start in quotes, or why it cannot be tested. It is made from
// the sanitised text, so that echoed credentials stay masked.
func bodySummary(a *answer) string {
	switch why := a.fault(); {
	case why != "":
		return why
	case len(a.body) == 0:
		return "an empty body"
	case len(a.text) <= rule.SawBytes:
		return strconv.Quote(a.text)
	}
	return strconv.Quote(parse.Cut(a.text, rule.SawBytes)) + "…"
}

// fill reads up to one byte more than the limit. That byte shows that the body is too large.
func (a *answer) fill(from io.Reader) {
	limited := io.LimitedReader{R: from, N: MaxResponseBytes + 1}
	if _, err := a.buffer.ReadFrom(&limited); err != nil {
		a.readErr = err
	}
}

// fillGzip decodes a body that is one gzip member. It refuses further members: they may all be empty, and
// then decoding would never reach a limit.
func (a *answer) fillGzip(from io.Reader) {
	source := &errorRecorder{r: from}
	limited := &io.LimitedReader{R: source, N: maxGzipBytes + 1}
	err := a.gunzip(bufio.NewReader(limited))
	switch {
	case err != nil && source.err != nil && source.err != io.EOF:
		a.readErr = source.err
	case limited.N <= 0:
		a.decodeErr = errGzipLarge
	case err == errGzipMembers:
		a.decodeErr = err
	case err != nil:
		a.decodeErr = errNotGzip
		_, _ = io.CopyN(io.Discard, limited, maxDrain) // on error the connection is only not reused
	}
}

// gunzip decodes the first member. It then reads one byte more, to reach the end of the body: only then can
// the connection be reused. The returned error may come from gzip or from the connection; fillGzip
// distinguishes them.
func (a *answer) gunzip(packed *bufio.Reader) error {
	z, err := gzip.NewReader(packed)
	if err != nil {
		return err
	}
	z.Multistream(false)
	a.fill(z)
	err, a.readErr = a.readErr, nil
	if err != nil || a.buffer.Len() > MaxResponseBytes {
		return err
	}
	_, err = packed.ReadByte()
	if err == nil {
		return errGzipMembers
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// An errorRecorder keeps the error of its source. fillGzip needs it to distinguish a broken connection from
// invalid gzip.
type errorRecorder struct {
	r   io.Reader
	err error
}

// Read implements io.Reader.
func (e *errorRecorder) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil {
		e.err = err
	}
	return n, err
}

// storedText returns the start of a text from a receiver, safe to store and to display, and whether it is
// incomplete. If there are credentials to mask, it masks the whole text before it cuts: half a credential
// would not be found.
func storedText(raw []byte, limit int, hidden []string) (string, bool) {
	start := raw
	if len(start) > limit && len(hidden) == 0 {
		start = start[:limit]
	}
	text := parse.Scrub(parse.Clean(start), hidden)
	if len(text) > limit {
		return parse.Cut(text, limit), true
	}
	return text, len(start) < len(raw)
}

// storedHeaders returns the response headers that are stored: these five names, the first value of each.
func storedHeaders(h http.Header, hidden []string) []store.Header {
	out := make([]store.Header, 0, 4)
	for _, k := range [...]struct{ key, name string }{
		{"Content-Type", "content-type"}, {"Date", "date"}, {"Retry-After", "retry-after"},
		{"Server", "server"}, {"X-Request-Id", "x-request-id"},
	} {
		if values := h[k.key]; len(values) > 0 {
			out = append(out, store.Header{Name: k.name, Value: storedHeader(values[0], hidden)})
		}
	}
	return out
}

func storedHeader(value string, hidden []string) string {
	text, _ := storedText([]byte(value), maxStoredHeader, hidden)
	return strings.ReplaceAll(text, "\n", " ")
}
