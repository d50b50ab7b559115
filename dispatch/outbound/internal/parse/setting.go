// Package parse reads texts that others wrote: settings of callers, field by field, and bodies of receivers
// and callers as JSON and XML, in the charset that they declare. It bounds what it reads and names every
// mistake in a setting; what the texts mean is left to the packages that import it.
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
	// MaxSettingBytes is how long a rule or a signer may be as it is written.
	MaxSettingBytes = 16 << 10
	// maxFindings is how many mistakes are named.
	maxFindings = 50
)

// A Setting is one value of a text that a caller wrote (a rule, predicates, a signer) while it is read into a
// struct. encoding/json alone stops at the first mistake and takes a member that is given twice; here every
// mistake is named.
//
// The members of an object are the fields of the struct with a tag json. Further tags are for them alone:
//
//   - most: how many characters a text may have, or elements a list. Every text and list needs one.
//   - empty:"ok": the text may be empty, or the list.
//   - choice: the texts that there are, separated by spaces.
//   - range: least and most of a whole number, separated by a space.
//   - one: of the members with the same value only one is given.
type Setting struct {
	Raw json.RawMessage
	// At is the field that mistakes are named with; "" is the whole setting.
	At string
	// Shared is what Decode was given, for what is counted over the whole setting.
	Shared any

	tag   reflect.StructTag
	keys  []string
	wrong *[]store.FieldError
}

// A Reader is a value with a form of its own.
type Reader interface{ ReadSetting(s Setting) }

// A Checker looks at what was read when all members of its object have been.
type Checker interface{ CheckSetting(s Setting) }

// Decode reads a setting into what into points to and returns what is wrong with it; nil: nothing is.
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

// Encode returns a setting as compact JSON, with nothing escaped that need not be.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// EncodeChanged is Encode for a pointer to a struct without the fields that are as in another one of its
// type, but always with a first one. It also says whether there are others.
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
		encoded, _ := Encode(value.Interface()) // texts, lists and switches can be encoded
		text = append(append(append(text, Quote(key)...), ':'), encoded...)
	}
	return append(text, '}'), changed
}

// EncodeField is Encode for one field of what v points to, by its key.
func EncodeField(v any, key string) []byte {
	value := reflect.ValueOf(v).Elem()
	field, _ := fieldOf(value.Type(), key)
	text, _ := Encode(value.FieldByIndex(field.Index).Interface())
	return text
}

// Quote returns a text as JSON.
func Quote(text string) []byte {
	quoted, _ := Encode(text) // a string can be encoded
	return quoted
}

// Fail notes what is wrong with the value.
func (s Setting) Fail(format string, args ...any) {
	if len(*s.wrong) < maxFindings {
		*s.wrong = append(*s.wrong, store.FieldError{Field: s.At, Message: fmt.Sprintf(format, args...)})
	}
}

// Failed says whether anything was wrong so far.
func (s Setting) Failed() bool { return len(*s.wrong) > 0 }

// In is the member of a name, for mistakes that are its.
func (s Setting) In(key string) Setting {
	key = Cut(Clean([]byte(key)), 64)
	if s.At != "" {
		key = s.At + "." + key
	}
	s.At = key
	return s
}

// Tag is what the field that the value is read into says under a name.
func (s Setting) Tag(name string) string { return s.tag.Get(name) }

// Has says whether the object has a member of that name. It is for a Checker, as First and IsEmpty are.
func (s Setting) Has(key string) bool { return slices.Contains(s.keys, key) }

// First is the first member of the object that is one of these; "": none is.
func (s Setting) First(of ...string) string {
	i := slices.IndexFunc(s.keys, func(key string) bool { return slices.Contains(of, key) })
	if i < 0 {
		return ""
	}
	return s.keys[i]
}

// IsEmpty says whether the object has no member.
func (s Setting) IsEmpty() bool { return len(s.keys) == 0 }

// Member returns the object's first member of a name.
func (s Setting) Member(key string) (value Setting, ok bool) {
	for d := members(s.Raw); d.More(); {
		if m := s.next(d); m.key == key {
			return m.Setting, true
		}
	}
	return Setting{}, false
}

// IsText says whether the value is a text.
func (s Setting) IsText() bool { return s.Raw[0] == '"' }

// Text returns a text of 1 to most characters, none of them a control character; ok is false if it is
// something else, or empty where that is allowed.
func (s Setting) Text(most int) (text string, ok bool) {
	if !s.IsText() {
		s.Fail("is a text in quotes")
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
		s.Fail("has a control character")
	default:
		return text, true
	}
	return "", false
}

// Plain is what a text says, and anything else as it is written.
func (s Setting) Plain() string {
	if !s.IsText() {
		return string(s.Raw)
	}
	return Unquote(s.Raw)
}

// List returns the elements of a list that has 1 to most of them, or none where that is allowed; nil: it is
// none.
func (s Setting) List(most int) []Setting {
	var raw []json.RawMessage
	if s.Raw[0] != '[' || json.Unmarshal(s.Raw, &raw) != nil {
		s.Fail("is a list")
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

// Into reads the value into what v points to.
func (s Setting) Into(v any) { s.read(reflect.ValueOf(v).Elem()) }

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
			s.Fail("is true or false")
		}
	case reflect.Int:
		least, greatest, _ := strings.Cut(s.tag.Get("range"), " ")
		n, err := strconv.Atoi(string(s.Raw))
		if err != nil || n < number(least) || n > number(greatest) {
			s.Fail("is a whole number from %s to %s", least, greatest)
			return
		}
		v.SetInt(int64(n))
	default:
		v.SetString(s.text(most))
	}
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits) // it stands in a tag
	return n
}

// text reads a text, or the choice that it is.
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
	s.Fail("is one of %s", strings.Join(choices, ", "))
	return ""
}

// object reads an object member by member, in the order of the text.
func (s Setting) object(v reflect.Value) {
	if s.Raw[0] != '{' {
		s.Fail("is an object")
		return
	}
	given := make(map[string]string) // the first member of those of which one is given
	for d := members(s.Raw); d.More(); {
		m := s.next(d)
		if s.Has(m.key) {
			m.Fail("is given twice")
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
				m.Fail("is a second %s beside %s; give one", one, first)
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

// A member is a value and its name.
type member struct {
	Setting
	key string
}

// members begins to read an object, which is valid.
func members(raw []byte) *json.Decoder {
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token()
	return d
}

func (s Setting) next(d *json.Decoder) member {
	token, _ := d.Token()
	key, _ := token.(string)
	m := member{Setting: s.In(key), key: key}
	m.keys = nil
	m.Raw = nil
	_ = d.Decode(&m.Raw) // it is valid
	return m
}

// fieldOf returns the field for a member, or nil and what is known.
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
	return nil, "known are " + strings.Join(names, ", ")
}
