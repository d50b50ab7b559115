package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// maxFindings is the most wrong fields that one answer names, so that a request cannot make its own answer
// long.
const maxFindings = 100

// fields collects what is wrong with the fields of one request while they are decoded. Each method decodes
// one field into its destination, leaves the destination alone when the value is null or wrong, and names the
// field as the caller spelled it.
type fields struct {
	invalid []store.FieldError
	// prefix stands before every name while the members of a nested object are decoded: see within.
	prefix string
}

// add notes that a field is wrong.
func (f *fields) add(field, message string) {
	if len(f.invalid) < maxFindings {
		f.invalid = append(f.invalid, store.FieldError{Field: f.prefix + field, Message: message})
	}
}

// err returns nil, or the *store.InvalidError of everything that was added.
func (f *fields) err() error {
	if len(f.invalid) == 0 {
		return nil
	}
	return &store.InvalidError{Fields: f.invalid}
}

// request is the name of a request's body as a whole, where no field of it can be named.
const request = "request"

// object walks the members of what should be an object named name (with "." after it where its members are
// fields of a nested object), refuses keys that come twice, and gives each member once to member, which says
// whether it knows the key.
func (f *fields) object(name, prefix string, raw []byte, member func(key, value []byte) bool) {
	if raw[skipSpace(raw, 0)] != '{' {
		f.add(name, notAnObject)
		return
	}
	var seen keySet
	for key, value := range members(raw) {
		switch {
		case len(f.invalid) >= maxFindings:
			return
		case !seen.add(key):
			f.add(prefix+query.Printable(string(key)), "stands here twice")
		case !member(key, value):
			f.add(prefix+query.Printable(string(key)), "is not known here")
		}
	}
}

// nested is object for a nested one whose members are decoded by what knows them at the top of a request too:
// what is wrong with them is named with the object's name before it. Null is no object, and nothing is wrong
// with it.
func (f *fields) nested(name string, raw []byte, member func(key, value []byte) bool) {
	if isNull(raw) {
		return
	}
	if raw[0] != '{' {
		f.add(name, notAnObject)
		return
	}
	outer := f.prefix
	f.prefix = outer + name + "."
	f.object(name, "", raw, member)
	f.prefix = outer
}

// texts gives the members of what should be an object of texts, such as headers, to text. Null has none.
func (f *fields) texts(name string, raw []byte, text func(name, value string)) {
	if isNull(raw) {
		return
	}
	f.object(name, name+".", raw, func(key, value []byte) bool {
		wrong := query.CheckText(string(key), false)
		if wrong != "" {
			f.add(name+"."+query.Printable(string(key)), "the name "+wrong)
			return true
		}
		s, wrong := decodeLine(value)
		if wrong != "" {
			f.add(name+"."+query.Printable(string(key)), wrong)
			return true
		}
		text(string(key), s)
		return true
	})
}

// notAnObject is what is wrong with a value that is none.
const notAnObject = "must be a JSON object"

// isNull says whether a value is null, which every field takes as "not given".
func isNull(raw []byte) bool { return raw[0] == 'n' }

// set decodes a value into its destination, which null and what is wrong leave alone.
func set[T any](f *fields, name string, raw []byte, to *T, decode func(raw []byte) (v T, wrong string)) {
	if isNull(raw) {
		return
	}
	v, wrong := decode(raw)
	if wrong != "" {
		f.add(name, wrong)
		return
	}
	*to = v
}

// setPointer is take for what is nil where none is given.
func setPointer[T any](f *fields, name string, raw []byte, to **T, decode func(raw []byte) (v T, wrong string)) {
	set(f, name, raw, to, func(raw []byte) (*T, string) {
		v, wrong := decode(raw)
		return &v, wrong
	})
}

// text decodes one line of text.
func (f *fields) text(name string, raw []byte, to *string) { set(f, name, raw, to, decodeLine) }

// line is text for what is nil where none is given.
func (f *fields) line(name string, raw []byte, to **string) { setPointer(f, name, raw, to, decodeLine) }

// arrayOf decodes an array of which at most so many elements are taken. It returns nil for null only.
func arrayOf[T any](
	f *fields, name string, raw []byte, most int, decode func(raw []byte) (v T, wrong string),
) []T {
	if isNull(raw) {
		return nil
	}
	all := []T{}
	f.array(name, raw, func(i int, value []byte) {
		if i == most {
			f.add(name, "are too many")
		} else if i < most {
			v, wrong := decode(value)
			if wrong != "" {
				f.add(indexed(name, i), wrong)
			}
			all = append(all, v)
		}
	})
	return all
}

// lines decodes an array of lines of text, of which at most is taken.
func (f *fields) lines(name string, raw []byte, most int, to *[]string) {
	if isNull(raw) {
		return
	}
	lines := []string{}
	f.array(name, raw, func(i int, value []byte) {
		switch s, wrong := decodeLine(value); {
		case wrong != "":
			f.add(indexed(name, i), wrong)
		case i == most:
			f.add(name, "are too many")
		case i < most:
			lines = append(lines, s)
		}
	})
	*to = lines
}

// decodeText decodes a JSON string and says what is wrong with it, or nothing. Line ends and tabs are allowed
// where the text may have several lines, other control characters never.
func decodeText(raw []byte, lines bool) (s, wrong string) {
	if raw[0] != '"' {
		return "", "must be text"
	}
	inner := raw[1 : len(raw)-1]
	plain := true
	for _, c := range inner {
		if c == '\\' || c >= 0x7f {
			plain = false
			break
		}
	}
	if plain {
		return string(inner), ""
	}
	if bytes.IndexByte(inner, '\\') >= 0 {
		var ok bool
		inner, ok = unescape(inner)
		if !ok {
			return "", "has half of a surrogate pair, which is no character"
		}
	}
	s = string(inner)
	wrong = query.CheckText(s, lines)
	if wrong != "" {
		return "", wrong
	}
	return s, ""
}

func decodeLine(raw []byte) (s, wrong string) { return decodeText(raw, false) }

// boolean decodes true or false.
func (f *fields) boolean(name string, raw []byte, to *bool) { set(f, name, raw, to, decodeBoolean) }

func decodeBoolean(raw []byte) (yes bool, wrong string) {
	if raw[0] != 't' && raw[0] != 'f' {
		wrong = "must be true or false"
	}
	return raw[0] == 't', wrong
}

// decodeInteger decodes a whole number of 64 bits.
func decodeInteger(raw []byte) (n int64, wrong string) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		wrong = "must be a whole number"
	}
	return n, wrong
}

// maxCount is the most that is counted to.
const maxCount = 1_000_000

// decodeCount decodes a whole number from 1 on.
func decodeCount(raw []byte) (int, string) {
	n, wrong := decodeInteger(raw)
	if isNull(raw) || wrong == "" && (n < 1 || n > maxCount) {
		wrong = "must be a whole number from 1 on"
	}
	return int(n), wrong
}

// decodeFromZero decodes a whole number from 0 on.
func decodeFromZero(raw []byte) (n int, wrong string) {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 0 || n > maxCount {
		wrong = "must be a whole number from 0 on"
	}
	return n, wrong
}

// decodeNumber decodes a number with a fraction.
func decodeNumber(raw []byte) (n float64, wrong string) {
	n, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || raw[0] == '"' {
		wrong = "must be a number"
	}
	return n, wrong
}

// duration decodes a duration that is not negative.
func (f *fields) duration(name string, raw []byte, to **time.Duration) {
	setPointer(f, name, raw, to, decodeDuration)
}

func decodeDuration(raw []byte) (time.Duration, string) {
	const form = `must be a duration in text, such as "15s", "1h30m" or "2d"`
	s, wrong := decodeLine(raw)
	if wrong != "" {
		return 0, form
	}
	d, err := schedule.ParseDuration(s)
	if err != nil {
		return 0, form
	}
	if d < 0 {
		return 0, "must not be negative"
	}
	return d, ""
}

// decodeInstant decodes a time into Unix milliseconds, rounded up.
func decodeInstant(raw []byte) (int64, string) {
	if s, wrong := decodeLine(raw); wrong == "" {
		if ms, ok := query.ParseTime(s); ok {
			return ms, ""
		}
	}
	return 0, query.BadTime
}

// decodeBase64 decodes standard base64 with its padding and nothing else.
func decodeBase64(raw []byte) (body []byte, wrong string) {
	s, wrong := decodeLine(raw)
	if wrong != "" {
		return nil, wrong
	}
	body, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		wrong = "must be standard base64 with padding"
	}
	return body, wrong
}

// The values that verbatim takes, by the byte that they begin with.
const (
	anyJSON  byte = 0
	anObject byte = '{'
	anArray  byte = '['
)

// verbatim takes a value as it stands in the request, for somebody else to read.
func (f *fields) verbatim(name string, raw []byte, kind byte, to *[]byte) {
	switch {
	case isNull(raw):
	case kind == anObject && raw[0] != kind:
		f.add(name, notAnObject)
	case kind == anArray && raw[0] != kind:
		f.add(name, notAnArray)
	case !utf8.Valid(raw):
		f.add(name, notUTF8)
	default:
		*to = raw
	}
}

const (
	notAnArray = "must be an array"
	notUTF8    = "is not valid UTF-8, so it is not JSON"
)

// array yields the elements of what should be an array, or says that it is none.
func (f *fields) array(name string, raw []byte, element func(i int, value []byte)) {
	if raw[0] != '[' {
		f.add(name, notAnArray)
		return
	}
	i := 0
	for value := range elements(raw) {
		element(i, value)
		i++
	}
}

// indexed names an element of an array.
func indexed(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }
