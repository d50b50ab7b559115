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

// maxFindings is the maximum number of invalid fields in a response, so that a request cannot make its
// response long.
const maxFindings = 100

// fields collects the invalid fields of one request while they are decoded. Each method decodes one field
// into a destination. If the value is null or invalid, it leaves the destination unchanged. It names an
// invalid field as the caller spelled it.
type fields struct {
	invalid []store.FieldError
	// prefix comes before every field name while the members of a nested object are decoded; see nested.
	prefix string
}

// add records an invalid field.
func (f *fields) add(field, message string) {
	if len(f.invalid) < maxFindings {
		f.invalid = append(f.invalid, store.FieldError{Field: f.prefix + field, Message: message})
	}
}

// err returns nil, or the *store.InvalidError of all recorded fields.
func (f *fields) err() error {
	if len(f.invalid) == 0 {
		return nil
	}
	return &store.InvalidError{Fields: f.invalid}
}

// request is the field name of an error about the whole body.
const request = "request"

// object calls member once for each member of an object. It rejects duplicate keys, and keys for which member
// returns false. name is the object's name in errors. prefix comes before the names of members in errors; for
// a nested object it ends with ".".
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
			f.add(prefix+query.Printable(string(key)), "is a duplicate field")
		case !member(key, value):
			f.add(prefix+query.Printable(string(key)), "is an unknown field")
		}
	}
}

// nested is object for a nested object whose member function also serves the top level of a request: error
// messages get the object's name as a prefix. Null is ignored.
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

// texts calls text for each member of an object of strings, such as headers. Null is ignored.
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

const notAnObject = "must be a JSON object"

// isNull reports whether a value is null, which every field takes as not given.
func isNull(raw []byte) bool { return raw[0] == 'n' }

// set decodes a value into its destination. Null and invalid values leave the destination unchanged.
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

// setPointer is set for a destination that is nil if the value is not given.
func setPointer[T any](
	f *fields, name string, raw []byte, to **T, decode func(raw []byte) (v T, wrong string),
) {
	set(f, name, raw, to, func(raw []byte) (*T, string) {
		v, wrong := decode(raw)
		return &v, wrong
	})
}

// text decodes a single-line string.
func (f *fields) text(name string, raw []byte, to *string) { set(f, name, raw, to, decodeLine) }

// line is text for a destination that is nil if the value is not given.
func (f *fields) line(name string, raw []byte, to **string) { setPointer(f, name, raw, to, decodeLine) }

// arrayOf decodes an array of at most most elements. It returns nil only for null.
func arrayOf[T any](
	f *fields, name string, raw []byte, most int, decode func(raw []byte) (v T, wrong string),
) []T {
	if isNull(raw) {
		return nil
	}
	all := []T{}
	f.array(name, raw, func(i int, value []byte) {
		if i == most {
			f.add(name, tooMany(most))
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

// lines decodes an array of at most most single-line strings.
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
			f.add(name, tooMany(most))
		case i < most:
			lines = append(lines, s)
		}
	})
	*to = lines
}

// decodeText decodes a JSON string, and returns what is wrong with it, or "". If lines is true, the string
// may have line ends and tabs. It must not have other control characters.
func decodeText(raw []byte, lines bool) (s, wrong string) {
	if raw[0] != '"' {
		return "", "must be a string"
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
			return "", "has an incomplete surrogate pair"
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

// decodeInteger decodes a 64-bit integer.
func decodeInteger(raw []byte) (n int64, wrong string) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		wrong = "must be a whole number"
	}
	return n, wrong
}

// maxCount is the maximum value of a count.
const maxCount = 1_000_000

// decodeCount decodes an integer from 1 to maxCount.
func decodeCount(raw []byte) (int, string) {
	n, wrong := decodeInteger(raw)
	if isNull(raw) || wrong == "" && (n < 1 || n > maxCount) {
		wrong = fmt.Sprintf("must be a whole number from 1 to %d", maxCount)
	}
	return int(n), wrong
}

// decodeFromZero decodes an integer from 0 to maxCount.
func decodeFromZero(raw []byte) (n int, wrong string) {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 0 || n > maxCount {
		wrong = fmt.Sprintf("must be a whole number from 0 to %d", maxCount)
	}
	return n, wrong
}

// decodeNumber decodes a number that may have a fraction.
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

// decodeDuration decodes a duration that is not negative.
func decodeDuration(raw []byte) (time.Duration, string) {
	const form = `must be a duration, such as "15s", "1h30m" or "2d"`
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

// decodeBase64 decodes standard base64 with padding. It rejects line ends.
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

// Kinds of values for verbatim. A kind is the first byte of the value; anyJSON allows all.
const (
	anyJSON  byte = 0
	anObject byte = '{'
	anArray  byte = '['
)

// verbatim keeps a value as it is in the request, for another reader.
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
	notUTF8    = "is not valid UTF-8"
)

func tooMany(most int) string { return fmt.Sprintf("has more than %d elements", most) }

// array calls element for each element of an array, and rejects other values.
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

// indexed returns the field name of an array's element.
func indexed(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }
