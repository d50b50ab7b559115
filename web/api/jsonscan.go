package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
)

// This file splits JSON without copying it. checkJSON validates a request once, as a whole. All later code
// works on sub-slices of the request's bytes, so a payload keeps its bytes and an accept builds no maps. The
// functions below require JSON that checkJSON has accepted.

// checkJSON returns nil if body is one valid JSON value, or ErrBadJSON with the position of the error.
func checkJSON(body []byte) error {
	if json.Valid(body) {
		return nil
	}
	var raw json.RawMessage
	err := json.Unmarshal(body, &raw)
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Errorf("%w: %s at byte %d", httperr.ErrBadJSON, syntax, syntax.Offset)
	}
	return httperr.ErrBadJSON
}

// members yields the members of a valid JSON object in order: the unescaped key, and the value's bytes
// without surrounding space. A key with half of a surrogate pair is yielded as it is written.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		i := skipSpace(object, skipSpace(object, 0)+1)
		for object[i] != '}' {
			end := skipString(object, i)
			key := object[i+1 : end-1]
			if bytes.IndexByte(key, '\\') >= 0 {
				if plain, ok := unescape(key); ok {
					key = plain
				}
			}
			i = skipSpace(object, skipSpace(object, end)+1)
			end = skipValue(object, i)
			if !yield(key, object[i:end:end]) {
				return
			}
			i = skipSpace(object, end)
			if object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

// elements yields the elements of a valid JSON array, without surrounding space.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		i := skipSpace(array, skipSpace(array, 0)+1)
		for array[i] != ']' {
			end := skipValue(array, i)
			if !yield(array[i:end:end]) {
				return
			}
			i = skipSpace(array, end)
			if array[i] == ',' {
				i = skipSpace(array, i+1)
			}
		}
	}
}

// skipSpace returns the index of the first byte at or after i that is not JSON white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// skipValue returns the index after the value that begins at i. It does not recurse, so deep nesting needs no
// stack.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
				if depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// unescape decodes the escapes inside a JSON string. It returns false for half of a surrogate pair, which is
// not a character.
func unescape(inner []byte) ([]byte, bool) {
	out := make([]byte, 0, len(inner))
	for i := 0; i < len(inner); {
		if inner[i] != '\\' {
			out = append(out, inner[i])
			i++
			continue
		}
		if inner[i+1] != 'u' {
			out = append(out, plainEscape(inner[i+1]))
			i += 2
			continue
		}
		r := hex4(inner[i+2:])
		i += 6
		if utf16.IsSurrogate(r) {
			if len(inner) < i+6 || inner[i] != '\\' || inner[i+1] != 'u' {
				return nil, false
			}
			r = utf16.DecodeRune(r, hex4(inner[i+2:]))
			if r == unicode.ReplacementChar {
				return nil, false
			}
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return out, true
}

// plainEscape returns the character for a backslash and c.
func plainEscape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hex4 returns the rune of four hexadecimal digits.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c <= '9':
			c -= '0'
		case c <= 'F':
			c -= 'A' - 10
		default:
			c -= 'a' - 10
		}
		r = r<<4 | rune(c)
	}
	return r
}

// A keySet finds duplicate keys. Its cost is linear in the length of all keys. The first keys are in an
// array, which needs no allocation; a map takes over when there are more.
type keySet struct {
	small [24][]byte
	n     int
	large map[string]struct{}
}

// add returns false for a duplicate key.
func (s *keySet) add(key []byte) bool {
	if s.large == nil {
		for _, k := range s.small[:s.n] {
			if bytes.Equal(k, key) {
				return false
			}
		}
		if s.n < len(s.small) {
			s.small[s.n] = key
			s.n++
			return true
		}
		s.large = make(map[string]struct{}, 4*len(s.small))
		for _, k := range s.small {
			s.large[string(k)] = struct{}{}
		}
	}
	if _, twice := s.large[string(key)]; twice {
		return false
	}
	s.large[string(key)] = struct{}{}
	return true
}
