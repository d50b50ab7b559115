package sign

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http/httpguts"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxHeaderBytes is the most that a callback's own headers may take, names, values and separators counted.
const MaxHeaderBytes = 16 << 10

// CheckHeaders judges a callback's own headers and names each one that cannot be sent, as "headers.NAME".
// Nil: all can.
func CheckHeaders(headers []store.Header) []store.FieldError {
	var wrong []store.FieldError
	total := 0
	for _, h := range headers {
		total += len(h.Name) + len(h.Value) + len(": \r\n")
		if message := CheckHeader(h); message != "" {
			wrong = append(wrong, store.FieldError{Field: headerField(h.Name), Message: message})
		}
	}
	if total > MaxHeaderBytes {
		wrong = append(wrong, store.FieldError{
			Field: "headers",
			Message: fmt.Sprintf("headers take %d bytes together; at most %d are allowed", total,
				MaxHeaderBytes),
		})
	}
	return wrong
}

func headerField(name string) string {
	if !IsToken(name) || len(name) > 128 {
		return "headers"
	}
	return "headers." + name
}

// checkHeader returns what is wrong with one header, or "". It allocates nothing for one that is right.
func CheckHeader(h store.Header) string {
	if h.Name == "" {
		return "a header name is empty"
	}
	if !IsToken(h.Name) {
		return fmt.Sprintf("%q is not a header name: letters, digits and !#$%%&'*+-.^_`|~ only",
			parse.Cut(h.Name, 64))
	}
	if why := forbidden(h.Name); why != "" {
		return why
	}
	for i := range len(h.Value) {
		if c := h.Value[i]; c < 0x20 || c == 0x7f {
			return "the value contains a control character"
		}
	}
	if !utf8.ValidString(h.Value) {
		return "the value is not valid UTF-8"
	}
	return ""
}

// forbidden returns why a caller may not set a header, or "".
func forbidden(name string) string {
	if len(name) >= 8 && strings.EqualFold(name[:8], "webhook-") {
		return "webhook-* headers are set by the dispatcher"
	}
	if len(name) >= 6 && strings.EqualFold(name[:6], "proxy-") {
		return "headers of a single connection cannot be set"
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host":
		return "Host follows from the url"
	case "Content-Length":
		return "Content-Length follows from the body"
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect":
		return "headers of a single connection cannot be set"
	case "Content-Encoding":
		return "the body is sent as it is, without content encoding"
	case "User-Agent":
		return "User-Agent is set by the dispatcher"
	case "Traceparent", "Tracestate":
		return "trace headers are set by the dispatcher, anew for each attempt"
	}
	return ""
}

// IsToken says whether s is a token of RFC 9110: what names of headers and methods are made of.
func IsToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// CheckContentType says whether a content type can be sent: nil, or one sentence. What it means is the
// receiver's.
func CheckContentType(value string) error {
	if why := CheckHeader(store.Header{Name: "Content-Type", Value: value}); why != "" {
		return fmt.Errorf("content type: %s", why)
	}
	return nil
}
