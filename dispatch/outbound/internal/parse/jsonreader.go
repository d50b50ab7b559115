// Package parse reads texts that others wrote: settings of callers, field by field, and bodies of receivers and callers
// as JSON and XML, in the charset that they declare. It bounds what it reads and names every mistake in a setting; what
// the texts mean is left to the packages that import it.
package parse

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
type Reader struct {
	*JSON
	Wrong []store.FieldError
}

// maxSettingBytes is how long a rule or a signer may be as it is written.
const MaxSettingBytes = 16 << 10

// newJSONReader returns a reader; if it finds anything wrong, there is nothing to read.
func NewReader(raw []byte) *Reader {
	r := new(Reader)
	switch {
	case len(raw) > MaxSettingBytes:
		r.Fail("", "is longer than 16 KiB")
	case !utf8.Valid(raw):
		r.Fail("", "is not valid UTF-8")
	default:
		if r.JSON = ReadJSON(raw); r.JSON == nil {
			r.Fail("", "is not JSON")
		}
	}
	return r
}

// maxFindings is how much is told of what is wrong.
const maxFindings = 50

// fail notes what is wrong with a field; "" is the whole.
func (r *Reader) Fail(field, format string, args ...any) {
	if len(r.Wrong) == maxFindings {
		return
	}
	r.Wrong = append(r.Wrong, store.FieldError{Field: field, Message: fmt.Sprintf(format, args...)})
}

// within names a member of a field.
func Within(field, key string) string {
	key = Cut(Clean([]byte(key)), 64)
	if field == "" {
		return key
	}
	return field + "." + key
}

func Indexed(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

// members calls f for each member of an object. It says whether it is one.
func (r *Reader) Members(node int32, field string, f func(key, field string, value int32)) bool {
	if r.Kind(node) != Object {
		r.Fail(field, "is an object")
		return false
	}
	var seen []string
	for c := r.First(node); c != 0; c = r.Next(c) {
		key := r.Key(c)
		if slices.Contains(seen, key) {
			r.Fail(Within(field, key), "is given twice")
			continue
		}
		seen = append(seen, key)
		f(key, Within(field, key), c)
	}
	return true
}

// unknown refuses a member that means nothing here.
func (r *Reader) Unknown(field string, known ...string) {
	r.Fail(field, "is unknown; known are %s", strings.Join(known, ", "))
}

// list returns the elements of an array that has 1 to most of them; nil: it is none.
func (r *Reader) List(node int32, field string, most int) []int32 {
	if r.Kind(node) != Array {
		r.Fail(field, "is a list")
		return nil
	}
	var elements []int32
	for c := r.First(node); c != 0; c = r.Next(c) {
		elements = append(elements, c)
	}
	if n := len(elements); n == 0 || n > most {
		r.Fail(field, "has %d elements; 1 to %d are allowed", n, most)
		return nil
	}
	return elements
}

// textOf returns a string of 1 to most characters, none of them a control character; ok is false if it is something else.
func (r *Reader) TextOf(node int32, field string, most int) (text string, ok bool) {
	if r.Kind(node) != String {
		r.Fail(field, "is a text in quotes")
		return "", false
	}
	text = r.Str(node)
	switch n := utf8.RuneCountInString(text); {
	case text == "":
		r.Fail(field, "is empty")
	case n > most:
		r.Fail(field, "is %d characters long; at most %d are allowed", n, most)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		r.Fail(field, "has a control character")
	default:
		return text, true
	}
	return "", false
}

// boolean returns true or false; ok is false if it is something else.
func (r *Reader) Boolean(node int32, field string) (value, ok bool) {
	switch r.Kind(node) {
	case True:
		return true, true
	case False:
		return false, true
	}
	r.Fail(field, "is true or false")
	return false, false
}

// integer returns a whole number from least to most; ok is false if it is something else.
func (r *Reader) Integer(node int32, field string, least, most int) (n int, ok bool) {
	if r.Kind(node) == Number {
		n, err := strconv.Atoi(string(r.Raw(node)))
		if err == nil && n >= least && n <= most {
			return n, true
		}
	}
	r.Fail(field, "is a whole number from %d to %d", least, most)
	return 0, false
}

// one returns the value if it is one of the choices, in its spelling; ok is false otherwise.
func (r *Reader) One(node int32, field string, choices ...string) (choice string, ok bool) {
	if r.Kind(node) == String {
		if text := r.Str(node); slices.Contains(choices, text) {
			return text, true
		}
	}
	r.Fail(field, "is one of %s", strings.Join(choices, ", "))
	return "", false
}
