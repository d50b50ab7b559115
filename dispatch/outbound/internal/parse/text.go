package parse

import (
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Clean returns valid UTF-8 without control characters. Newline and tab stay.
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

// IsPlain reports whether all bytes are ASCII without control characters, newline and tab excepted. Clean
// leaves such a text as it is, and some others too.
func IsPlain(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf || c == 0x7f || c < 0x20 && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// isControl reports whether Clean removes a character: control characters of ASCII and Latin-1, and Unicode
// marks that change the direction of text or end a line.
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

// Cut returns the first n bytes of s at most, without a partial character at the end.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// IsDigits reports whether s is one or more ASCII digits.
func IsDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// IsPrintable reports whether a text is printable ASCII.
func IsPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
}

// Lower returns the lower case of an ASCII letter and any other byte unchanged.
func Lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Scrub masks the values in a text from a receiver. Some receivers echo the request and its credentials in
// their answer. In JSON a credential may have escapes, so these forms are masked too.
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

// scrubEscaped masks the forms of a value in JSON: with the necessary escapes, with the escapes for HTML that
// Go adds, and with an escaped slash as PHP writes it.
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
