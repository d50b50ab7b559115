package outbound

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A jsonReader reads what a caller wrote (a rule, predicates, a signer) field by field, and names everything that is wrong with it and
// not just the first of it.
type jsonReader struct {
	*jsonTree
	wrong []store.FieldError
	// nodes is how many predicates there were, steps what all regular expressions cost together on the
	// longest body.
	nodes, steps int
}

// maxSettingBytes is how long a rule or a signer may be as it is written.
const maxSettingBytes = 16 << 10

// newJSONReader returns a reader; if it finds anything wrong, there is nothing to read.
func newJSONReader(raw []byte) *jsonReader {
	r := new(jsonReader)
	switch {
	case len(raw) > maxSettingBytes:
		r.fail("", "is longer than 16 KiB")
	case !utf8.Valid(raw):
		r.fail("", "is not valid UTF-8")
	default:
		if r.jsonTree = readJSON(raw); r.jsonTree == nil {
			r.fail("", "is not JSON")
		}
	}
	return r
}

// maxFindings is how much is told of what is wrong.
const maxFindings = 50

// fail notes what is wrong with a field; "" is the whole.
func (r *jsonReader) fail(field, format string, args ...any) {
	if len(r.wrong) == maxFindings {
		return
	}
	r.wrong = append(r.wrong, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// within names a member of a field.
func within(field, key string) string {
	key = cut(cleanText([]byte(key)), 64)
	if field == "" {
		return key
	}
	return field + "." + key
}

func indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// members calls f for each member of an object. It says whether it is one.
func (r *jsonReader) members(node int32, field string, f func(key, field string, value int32)) bool {
	if r.kind(node) != jsonObject {
		r.fail(field, "is an object")
		return false
	}
	var seen []string
	for c := r.first(node); c != 0; c = r.next(c) {
		key := r.key(c)
		if slices.Contains(seen, key) {
			r.fail(within(field, key), "is given twice")
			continue
		}
		seen = append(seen, key)
		f(key, within(field, key), c)
	}
	return true
}

// unknown refuses a member that means nothing here.
func (r *jsonReader) unknown(field string, known ...string) {
	r.fail(field, "is unknown; known are %s", strings.Join(known, ", "))
}

// list returns the elements of an array that has 1 to most of them; nil: it is none.
func (r *jsonReader) list(node int32, field string, most int) []int32 {
	if r.kind(node) != jsonArray {
		r.fail(field, "is a list")
		return nil
	}
	var elements []int32
	for c := r.first(node); c != 0; c = r.next(c) {
		elements = append(elements, c)
	}
	if n := len(elements); n == 0 || n > most {
		r.fail(field, "has %d elements; 1 to %d are allowed", n, most)
		return nil
	}
	return elements
}

// textOf returns a string of 1 to most characters, none of them a control character; ok is false if it is something else.
func (r *jsonReader) textOf(node int32, field string, most int) (text string, ok bool) {
	if r.kind(node) != jsonString {
		r.fail(field, "is a text in quotes")
		return "", false
	}
	text = r.str(node)
	switch n := utf8.RuneCountInString(text); {
	case text == "":
		r.fail(field, "is empty")
	case n > most:
		r.fail(field, "is %d characters long; at most %d are allowed", n, most)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		r.fail(field, "has a control character")
	default:
		return text, true
	}
	return "", false
}

// boolean returns true or false; ok is false if it is something else.
func (r *jsonReader) boolean(node int32, field string) (value, ok bool) {
	switch r.kind(node) {
	case jsonTrue:
		return true, true
	case jsonFalse:
		return false, true
	}
	r.fail(field, "is true or false")
	return false, false
}

// integer returns a whole number from least to most; ok is false if it is something else.
func (r *jsonReader) integer(node int32, field string, least, most int) (n int, ok bool) {
	if r.kind(node) == jsonNumber {
		n, err := strconv.Atoi(string(r.raw(node)))
		if err == nil && n >= least && n <= most {
			return n, true
		}
	}
	r.fail(field, "is a whole number from %d to %d", least, most)
	return 0, false
}

// one returns the value if it is one of the choices, in its spelling; ok is false otherwise.
func (r *jsonReader) one(node int32, field string, choices ...string) (choice string, ok bool) {
	if r.kind(node) == jsonString {
		if text := r.str(node); slices.Contains(choices, text) {
			return text, true
		}
	}
	r.fail(field, "is one of %s", strings.Join(choices, ", "))
	return "", false
}
