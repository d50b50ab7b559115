// Package parse parses texts from others: settings of callers, field by field, and bodies of receivers and
// callers as JSON and XML in their declared charset. It bounds what it reads and reports every mistake in a
// setting. It does not interpret the texts; the packages that import it do.
package parse

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// MaxSettingBytes is the maximum length of a rule or a signer as JSON.
	MaxSettingBytes = 16 << 10
	// maxErrors is the maximum of reported mistakes.
	maxErrors = 50
)

// A Setting is one value of a caller's JSON text (a rule, predicates, a signer) while it is parsed into a
// struct. encoding/json stops at the first mistake and accepts duplicate members. This parser reports every
// mistake.
//
// The members of an object are the fields of the struct with a tag json. Further tags:
//
//   - most: the maximum of characters of a text or of elements of a list. Every text and list needs it.
//   - empty:"ok": the text or the list may be empty.
//   - choice: the permitted texts, separated by spaces.
//   - range: the minimum and the maximum of a whole number, separated by a space.
//   - one: only one of the members with the same value may be given.
type Setting struct {
	Raw json.RawMessage
	// At is the field that errors name. "" is the whole setting.
	At string
	// Shared is the value that the caller passed to Decode, for counts over the whole setting.
	Shared any

	tag   reflect.StructTag
	keys  []string
	wrong *[]store.FieldError
}

// A Reader is a value that parses itself.
type Reader interface{ ReadSetting(s Setting) }

// A Checker is an object that checks itself after all its members have been parsed.
type Checker interface{ CheckSetting(s Setting) }

// Decode parses a setting into the value that into points to. It returns the mistakes, or nil if there are
// none.
func Decode(raw []byte, into, shared any) []store.FieldError {
	var wrong []store.FieldError
	s := Setting{Raw: bytes.TrimSpace(raw), Shared: shared, wrong: &wrong}
	switch {
	case len(raw) > MaxSettingBytes:
		s.Fail("is longer than 16 KiB")
	case !utf8.Valid(raw):
		s.Fail("is not valid UTF-8")
	case !json.Valid(raw):
		s.Fail("is not JSON")
	default:
		s.read(reflect.ValueOf(into).Elem())
	}
	return wrong
}

// Encode returns a setting as compact JSON with the fewest escapes.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// EncodeChanged encodes the fields of a struct that differ from those of another one, and always the first
// field. changed reports whether others differ. Both arguments are pointers to the same type.
func EncodeChanged(v, from any) (text []byte, changed bool) {
	a, b := reflect.ValueOf(v).Elem(), reflect.ValueOf(from).Elem()
	for _, f := range reflect.VisibleFields(a.Type()) {
		key, value := f.Tag.Get("json"), a.FieldByIndex(f.Index)
		switch {
		case key == "":
			continue
		case text == nil:
			text = []byte{'{'}
		case reflect.DeepEqual(value.Interface(), b.FieldByIndex(f.Index).Interface()):
			continue
		default:
			text, changed = append(text, ','), true
		}
		encoded, _ := Encode(value.Interface()) // cannot fail: texts, lists and booleans
		text = append(append(append(text, Quote(key)...), ':'), encoded...)
	}
	return append(text, '}'), changed
}

// EncodeField encodes one field, by its key, of the struct that v points to.
func EncodeField(v any, key string) []byte {
	value := reflect.ValueOf(v).Elem()
	field, _ := fieldOf(value.Type(), key)
	text, _ := Encode(value.FieldByIndex(field.Index).Interface())
	return text
}

// Quote returns a text as a JSON string.
func Quote(text string) []byte {
	quoted, _ := Encode(text) // cannot fail for a string
	return quoted
}

// Fail reports a mistake in the value.
func (s Setting) Fail(format string, args ...any) {
	if len(*s.wrong) < maxErrors {
		*s.wrong = append(*s.wrong, store.FieldError{Field: s.At, Message: fmt.Sprintf(format, args...)})
	}
}

// Failed reports whether there are mistakes so far.
func (s Setting) Failed() bool { return len(*s.wrong) > 0 }

// In returns the setting of a member, for reports about it. It has no value.
func (s Setting) In(key string) Setting {
	key = Cut(Clean([]byte(key)), 64)
	if s.At != "" {
		key = s.At + "." + key
	}
	s.At = key
	return s
}

// Tag returns a tag of the struct field that the value is parsed into.
func (s Setting) Tag(name string) string { return s.tag.Get(name) }

// Has reports whether the object has a member. It is for a Checker, as First and IsEmpty are.
func (s Setting) Has(key string) bool { return slices.Contains(s.keys, key) }

// First returns the first member of the object that is one of these, or "" if there is none.
func (s Setting) First(of ...string) string {
	i := slices.IndexFunc(s.keys, func(key string) bool { return slices.Contains(of, key) })
	if i < 0 {
		return ""
	}
	return s.keys[i]
}

// IsEmpty reports whether the object has no member.
func (s Setting) IsEmpty() bool { return len(s.keys) == 0 }

// Member returns the first member of the object with that name.
func (s Setting) Member(key string) (value Setting, ok bool) {
	for d := members(s.Raw); d.More(); {
		if m := s.next(d); m.key == key {
			return m.Setting, true
		}
	}
	return Setting{}, false
}

// IsText reports whether the value is a string.
func (s Setting) IsText() bool { return s.Raw[0] == '"' }

// Text returns a text of 1 to most characters without control characters. ok is false if the value is
// anything else, or an empty text that is permitted. Only the first case is reported as a mistake.
func (s Setting) Text(most int) (text string, ok bool) {
	if !s.IsText() {
		s.Fail("must be text in quotes")
		return "", false
	}
	text = s.Plain()
	switch n := utf8.RuneCountInString(text); {
	case text == "" && s.tag.Get("empty") != "":
	case text == "":
		s.Fail("is empty")
	case n > most:
		s.Fail("is %d characters long; at most %d are allowed", n, most)
	case strings.IndexFunc(text, unicode.IsControl) >= 0:
		s.Fail("contains a control character")
	default:
		return text, true
	}
	return "", false
}

// Plain returns the content of a string, and the JSON text of any other value.
func (s Setting) Plain() string {
	if !s.IsText() {
		return string(s.Raw)
	}
	return Unquote(s.Raw)
}

// List returns the elements of a list of 1 to most elements, or of none if that is permitted. It is nil if
// the value is invalid.
func (s Setting) List(most int) []Setting {
	var raw []json.RawMessage
	if s.Raw[0] != '[' || json.Unmarshal(s.Raw, &raw) != nil {
		s.Fail("must be a list")
		return nil
	}
	if n := len(raw); n == 0 && s.tag.Get("empty") == "" || n > most {
		s.Fail("has %d elements; 1 to %d are allowed", n, most)
		return nil
	}
	elements := make([]Setting, len(raw))
	for i := range raw {
		elements[i] = s
		elements[i].Raw, elements[i].At, elements[i].tag = raw[i], s.At+"["+strconv.Itoa(i)+"]", ""
	}
	return elements
}

// Into parses the value into the value that v points to.
func (s Setting) Into(v any) { s.read(reflect.ValueOf(v).Elem()) }

// read parses the value into v. A Reader parses itself; any other value is parsed by its Go kind.
func (s Setting) read(v reflect.Value) {
	if r, ok := v.Addr().Interface().(Reader); ok {
		r.ReadSetting(s)
		return
	}
	most, _ := strconv.Atoi(s.tag.Get("most"))
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.read(v.Elem())
	case reflect.Struct:
		s.object(v)
	case reflect.Slice:
		elements := s.List(most)
		v.Set(reflect.MakeSlice(v.Type(), len(elements), len(elements)))
		for i, e := range elements {
			e.read(v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(s.Raw[0] == 't')
		if s.Raw[0] != 't' && s.Raw[0] != 'f' {
			s.Fail("must be true or false")
		}
	case reflect.Int:
		least, greatest, _ := strings.Cut(s.tag.Get("range"), " ")
		n, err := strconv.Atoi(string(s.Raw))
		if err != nil || n < number(least) || n > number(greatest) {
			s.Fail("must be a whole number from %s to %s", least, greatest)
			return
		}
		v.SetInt(int64(n))
	default:
		v.SetString(s.text(most))
	}
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // cannot fail: it comes from a struct tag
	return n
}

// text parses a text or a choice.
func (s Setting) text(most int) string {
	choice := s.tag.Get("choice")
	if choice == "" {
		text, _ := s.Text(most)
		return text
	}
	choices := strings.Fields(choice)
	if s.IsText() && slices.Contains(choices, s.Plain()) {
		return s.Plain()
	}
	s.Fail("must be one of %s", strings.Join(choices, ", "))
	return ""
}

// object parses the members of an object, in the order of the text.
func (s Setting) object(v reflect.Value) {
	if s.Raw[0] != '{' {
		s.Fail("must be an object")
		return
	}
	given := make(map[string]string) // by the tag one, its first member
	for d := members(s.Raw); d.More(); {
		m := s.next(d)
		if s.Has(m.key) {
			m.Fail("is a duplicate field")
			continue
		}
		s.keys = append(s.keys, m.key)
		field, known := fieldOf(v.Type(), m.key)
		if field == nil {
			if k, ok := v.Addr().Interface().(interface{ Known() string }); ok {
				known = k.Known()
			}
			m.Fail("is unknown; %s", known)
			continue
		}
		if one := field.Tag.Get("one"); one != "" {
			if first, ok := given[one]; ok {
				m.Fail("cannot be combined with %s: give one %s", first, one)
				continue
			}
			given[one] = m.key
		}
		m.tag = field.Tag
		m.read(v.FieldByIndex(field.Index))
	}
	if c, ok := v.Addr().Interface().(Checker); ok {
		c.CheckSetting(s)
	}
}

// A member is a value with its name.
type member struct {
	Setting
	key string
}

// members returns a decoder that is inside of a valid object.
func members(raw []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	return d
}

// next returns the next member of an object.
func (s Setting) next(d *json.Decoder) member {
	token, _ := d.Token()
	key, _ := token.(string)
	m := member{Setting: s.In(key), key: key}
	m.keys = nil
	m.Raw = nil
	_ = d.Decode(&m.Raw) // cannot fail: the object is valid
	return m
}

// fieldOf returns the struct field of a member. If there is none, known lists the known members for people.
func fieldOf(t reflect.Type, key string) (field *reflect.StructField, known string) {
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == key && name != "" {
			return &f, ""
		}
		if name != "" {
			names = append(names, name)
		}
	}
	return nil, "known fields: " + strings.Join(names, ", ")
}
