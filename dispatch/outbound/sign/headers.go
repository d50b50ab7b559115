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

// MaxHeaderBytes is the maximum size of a callback's own headers: names, values and separators.
const MaxHeaderBytes = 16 << 10

// CheckHeaders returns an error for each of a callback's headers that cannot be sent, with the field
// "headers.NAME". Nil means that all can be sent.
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

// CheckHeader returns what is wrong with one header, or "". It does not allocate for a valid header.
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
		return "connection headers cannot be set"
	}
	switch http.CanonicalHeaderKey(name) {
	case "Host":
		return "Host is set from the url"
	case "Content-Length":
		return "Content-Length is set from the body"
	case "Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect":
		return "connection headers cannot be set"
	case "Content-Encoding":
		return "Content-Encoding cannot be set: the body is sent unchanged"
	case "User-Agent":
		return "User-Agent is set by the dispatcher"
	case "Traceparent", "Tracestate":
		return "trace headers are set by the dispatcher for each attempt"
	}
	return ""
}

// IsToken reports whether s is a token of RFC 9110, the form of header names and methods.
func IsToken(s string) bool { return httpguts.ValidHeaderFieldName(s) }

// CheckContentType returns nil if a content type can be sent as a header, else an error of one sentence. It
// does not check the media type itself.
func CheckContentType(value string) error {
	if why := CheckHeader(store.Header{Name: "Content-Type", Value: value}); why != "" {
		return fmt.Errorf("content type: %s", why)
	}
	return nil
}
