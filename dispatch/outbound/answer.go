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
	// MaxResponseBytes is the most that is read of a receiver's body, decoded.
	MaxResponseBytes = rule.MaxBodyBytes
	// MaxKeptBytes is the most that is kept of it, as text.
	MaxKeptBytes = 4 << 10
	// maxKeptHeader is the most that is kept of one response header.
	maxKeptHeader = 1 << 10
	// maxLeftover is how much behind what is no gzip is read to make the connection reusable.
	maxLeftover = 4 << 10
	// maxPackedBytes is the most that is read of a compressed body as it comes in: what unpacks to nothing
	// is work, too.
	maxPackedBytes = 128 << 10
)

// An answer is what a receiver said, read up to the limits.
type answer struct {
	status int
	header http.Header
	// body is the decoded body, at most MaxResponseBytes. It is valid until release.
	body []byte
	// plain is the body as UTF-8, without byte order mark; garbled: it is not what it is declared to be.
	// Valid as long as body.
	plain   []byte
	garbled bool
	// text is the sanitised start of the body, without echoed credentials.
	text      string
	truncated bool
	// tooLarge: there was more. decodeErr: it could not be decoded. readErr: it ended before its end.
	tooLarge           bool
	decodeErr, readErr error

	buffer *bytes.Buffer
}

// buffers are for response bodies: most are a few bytes long and none is longer than MaxResponseBytes.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// Why a body cannot be decoded.
var (
	errEncoding    = errors.New("the body has an encoding that was not asked for")
	errNotGzip     = errors.New("the body is not valid gzip")
	errGzipLarge   = errors.New("the body is more than 128 KiB of gzip")
	errGzipMembers = errors.New("the body is more than one gzip member")
)

// read takes the body in, and closes it. Reading to the end makes the connection reusable; a body over the
// limit costs the connection.
func (a *answer) read(resp *http.Response, hidden []string) {
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return // the body is the connection itself: reading would wait for a peer that waits for us
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
	a.text, a.truncated = kept(a.plain, MaxKeptBytes, hidden)
	a.truncated = a.truncated || a.tooLarge || a.readErr != nil
}

// release gives the buffer back; body is invalid from then on.
func (a *answer) release() {
	if a.buffer != nil {
		buffers.Put(a.buffer)
		a.buffer, a.body, a.plain = nil, nil, nil
	}
}

// fault says, in words, why no test of the body can hold; "": it was read whole, and is what it is declared
// to be.
func (a *answer) fault() string {
	switch {
	case a.decodeErr != nil:
		return a.decodeErr.Error()
	case a.tooLarge:
		return "too_large: more than 64 KiB of body"
	case a.readErr != nil:
		return "truncated: the body ended early"
	case a.garbled:
		return rule.NotEncoded
	}
	return ""
}

// document returns what rules look at of the answer, with its body if that matters.
func (a *answer) document(readsBody bool) rule.Document {
	d := rule.Document{Status: a.status}
	if readsBody {
		d.Text, d.Broken, d.Seen = a.plain, a.fault(), bodySeen(a)
	}
	return d
}

// bodySeen describes a body for people: quoted, cut, or why it could not be judged. It shows the sanitised
// text, in which echoed credentials are masked.
func bodySeen(a *answer) string {
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

// fill reads one byte more than the limit, to know whether there is one.
func (a *answer) fill(from io.Reader) {
	limited := io.LimitedReader{R: from, N: MaxResponseBytes + 1}
	if _, err := a.buffer.ReadFrom(&limited); err != nil {
		a.readErr = err
	}
}

// fillGzip decodes a body that is one gzip member. More of them could all be empty: work without end.
func (a *answer) fillGzip(from io.Reader) {
	source := &markedReader{r: from}
	limited := &io.LimitedReader{R: source, N: maxPackedBytes + 1}
	err := a.unpack(bufio.NewReader(limited))
	switch {
	case err != nil && source.err != nil && source.err != io.EOF:
		a.readErr = source.err
	case limited.N <= 0:
		a.decodeErr = errGzipLarge
	case err == errGzipMembers:
		a.decodeErr = err
	case err != nil:
		a.decodeErr = errNotGzip
		_, _ = io.CopyN(io.Discard, limited, maxLeftover) // only the connection's reuse depends on it
	}
}

// unpack decodes the first member. It reads on to the end of the body, which makes the connection reusable.
func (a *answer) unpack(packed *bufio.Reader) error {
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

// A markedReader remembers the error of its source, to tell a broken encoding from a broken connection.
type markedReader struct {
	r   io.Reader
	err error
}

// Read reads.
func (m *markedReader) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	if err != nil {
		m.err = err
	}
	return n, err
}

// kept returns the start of what came from a receiver as text that is safe to store and to show, and whether
// something is missing.
func kept(raw []byte, most int, hidden []string) (string, bool) {
	start := raw
	if len(start) > most && len(hidden) == 0 {
		start = start[:most]
	}
	text := parse.Scrub(parse.Clean(start), hidden)
	if len(text) > most {
		return parse.Cut(text, most), true
	}
	return text, len(start) < len(raw)
}

// keptHeaders returns the response headers that are kept.
func keptHeaders(h http.Header, hidden []string) []store.Header {
	out := make([]store.Header, 0, 4)
	for _, k := range [...]struct{ key, name string }{
		{"Content-Type", "content-type"}, {"Date", "date"}, {"Retry-After", "retry-after"},
		{"Server", "server"},
		{"X-Request-Id", "x-request-id"},
	} {
		if values := h[k.key]; len(values) > 0 {
			out = append(out, store.Header{Name: k.name, Value: keptHeader(values[0], hidden)})
		}
	}
	return out
}

func keptHeader(value string, hidden []string) string {
	text, _ := kept([]byte(value), maxKeptHeader, hidden)
	return strings.ReplaceAll(text, "\n", " ")
}
