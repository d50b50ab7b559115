package parse

import (
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Clean returns valid UTF-8 without control characters but newline and tab.
func Clean(b []byte) string {
	if IsPlain(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b))
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if !isControl(r) {
			out.WriteRune(r) // an invalid byte becomes U+FFFD
		}
		b = b[size:]
	}
	return out.String()
}

func IsPlain(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf || c == 0x7f || c < 0x20 && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// isControl names what is left out: the control characters of ASCII and Latin-1, and the marks that turn the
// direction of text or end its line.
func isControl(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < 0x20, r >= 0x7f && r < 0xa0:
		return true
	case r == 0x2028, r == 0x2029, r >= 0x202a && r <= 0x202e, r >= 0x2066 && r <= 0x2069:
		return true
	}
	return false
}

// Cut returns at most n bytes of s, ending at a whole rune.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func IsDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// IsPrintable says whether a text is printable ASCII.
func IsPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Scrub replaces, in text that came from a receiver, the credentials that were sent to it: some receivers
// echo the request in their answer. Where they do so in JSON, a credential may have escapes.
func Scrub(text string, values []string) string {
	escaped := len(values) > 0 && strings.IndexByte(text, '\\') >= 0
	for _, v := range values {
		if strings.Contains(text, v) {
			text = strings.ReplaceAll(text, v, store.Masked)
		}
		if escaped {
			text = scrubEscaped(text, v)
		}
	}
	return text
}

// scrubEscaped replaces a value as encoders of JSON write it: with the escapes that are needed, with those
// for HTML as Go has them, and with an escaped slash as PHP has it.
func scrubEscaped(text, value string) string {
	needed := string(Quote(value))
	needed = needed[1 : len(needed)-1]
	forHTML := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(needed)
	slashed := strings.ReplaceAll(needed, "/", `\/`)
	for _, v := range [...]string{needed, forHTML, slashed} {
		if v != value {
			text = strings.ReplaceAll(text, v, store.Masked)
		}
	}
	return text
}
