package trace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"

	oteltrace "go.opentelemetry.io/otel/trace"
)

// A Context names a span, as in a header traceparent: 16 bytes of trace id, 8 bytes of span id, and one byte
// of flags. A Context of another length names none, and its methods return zero values. It must not be
// changed.
type Context []byte

// The places in a Context, and its flags. Other flags are not kept.
const (
	spanAt, flagsAt, contextSize = 16, 24, 25

	flagSampled, flagRandom = 1, 2
)

// headerSize is the length of a traceparent of version 00.
const headerSize = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")

// Parse reads the values of the header traceparent of a request. It returns nil if there is no value, more
// than one, or one that is not valid by W3C Trace Context.
func Parse(values []string) Context {
	if len(values) != 1 {
		return nil
	}
	text := values[0]
	switch {
	case len(text) < headerSize || text[2] != '-' || text[35] != '-' || text[52] != '-':
		return nil
	case text[:2] == "00" && len(text) != headerSize, len(text) > headerSize && text[headerSize] != '-':
		return nil
	case strings.ContainsAny(text[:headerSize], "ABCDEF"): // hex.Decode accepts them, and W3C does not
		return nil
	}
	var fields [1 + contextSize]byte
	at := 0
	for _, field := range [...]string{text[:2], text[3:35], text[36:52], text[53:headerSize]} {
		n, err := hex.Decode(fields[at:], []byte(field))
		if err != nil {
			return nil
		}
		at += n
	}
	version, c := fields[0], Context(fields[1:])
	if version == 0xff || isZero(c[:spanAt]) || isZero(c[spanAt:flagsAt]) {
		return nil
	}
	c[flagsAt] &= flagSampled | flagRandom
	if version > 0 {
		c[flagsAt] &= flagSampled
	}
	return c
}

func isZero(id []byte) bool {
	for _, b := range id {
		if b != 0 {
			return false
		}
	}
	return true
}

// Header returns the value of a header traceparent, empty for no span.
func (c Context) Header() string {
	if len(c) != contextSize {
		return ""
	}
	var text [headerSize]byte
	copy(text[:], "00-")
	hex.Encode(text[3:], c[:spanAt])
	text[35] = '-'
	hex.Encode(text[36:], c[spanAt:flagsAt])
	text[52] = '-'
	hex.Encode(text[53:], c[flagsAt:])
	return string(text[:])
}

// Sampled returns whether the span is recorded.
func (c Context) Sampled() bool { return len(c) == contextSize && c[flagsAt]&flagSampled != 0 }

// spanContext returns the context for the SDK. remote: another process may have created the span.
func (c Context) spanContext(remote bool) oteltrace.SpanContext {
	if len(c) != contextSize {
		return oteltrace.SpanContext{}
	}
	return oteltrace.NewSpanContext(oteltrace.SpanContextConfig{
		TraceID: oteltrace.TraceID(c[:spanAt]), SpanID: oteltrace.SpanID(c[spanAt:flagsAt]),
		TraceFlags: oteltrace.TraceFlags(c[flagsAt]), Remote: remote,
	})
}

// contextOf returns the Context of a span of the SDK.
func contextOf(of oteltrace.SpanContext) Context {
	c := make(Context, 0, contextSize)
	trace, span := of.TraceID(), of.SpanID()
	return append(append(append(c, trace[:]...), span[:]...), byte(of.TraceFlags()))
}

// attemptContext returns the context of an attempt's span: a hash of the callback's creation and the number
// of the attempt. So a process knows the span of the attempt before, which another process made, and SQL
// keeps nothing for it. An attempt that is put back without a row in SQL leaves its number to the next one,
// and its spans must not be exported.
func attemptContext(created Context, id string, number int) Context {
	h := sha256.New()
	h.Write(created[:flagsAt])
	h.Write([]byte(id))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(number)))
	c := Context(h.Sum(nil)[:contextSize])
	c[flagsAt] = flagSampled
	return c
}

// A request is the trace of the API request that an accept belongs to.
type request struct {
	// creation is the context for callbacks that the request creates: that of its span, or of its caller.
	// Nil: none.
	creation Context
	span     *Span
}

type requestKey struct{}

// unrecorded is the trace of a request that is not recorded and whose caller has none.
var unrecorded = new(request)

// In returns a context that FromContext finds the span in.
func (s *Span) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, &request{creation: s.Context(), span: s})
}

// FromContext returns the span of the API request that ctx belongs to; nil: none is recorded.
func FromContext(ctx context.Context) *Span {
	if r, ok := ctx.Value(requestKey{}).(*request); ok {
		return r.span
	}
	return nil
}
