package client

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// An appender writes itself as JSON.
type appender interface {
	appendJSON(b []byte) ([]byte, error)
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// AppendJSON appends v, a value of a type of this package, as the API writes it. It differs from
// encoding/json: the bytes of a json.RawMessage stay as they are, only what must be escaped is escaped, times
// have milliseconds, a slice or map is null only if its field has the tag, and bytes that are not UTF-8
// become U+FFFD.
func AppendJSON(b []byte, v any) ([]byte, error) { return appendValue(b, reflect.ValueOf(v)) }

// appendValue appends a value by its type, or calls its appendJSON.
func appendValue(b []byte, v reflect.Value) ([]byte, error) {
	if !v.IsValid() {
		return append(b, "null"...), nil
	}
	switch v.Type() {
	case timeType:
		return appendTime(b, v.Interface().(time.Time)), nil
	case rawType:
		if v.Len() == 0 {
			return append(b, "null"...), nil
		}
		return append(b, v.Bytes()...), nil
	}
	if v.CanInterface() {
		if a, ok := v.Interface().(appender); ok {
			return a.appendJSON(b)
		}
	}
	switch v.Kind() {
	case reflect.String:
		return AppendString(b, v.String()), nil
	case reflect.Bool:
		return strconv.AppendBool(b, v.Bool()), nil
	case reflect.Int, reflect.Int64:
		return strconv.AppendInt(b, v.Int(), 10), nil
	case reflect.Float64:
		if f := v.Float(); math.IsNaN(f) || math.IsInf(f, 0) {
			return append(b, "null"...), nil
		}
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 64), nil
	case reflect.Pointer, reflect.Interface:
		return appendValue(b, v.Elem())
	case reflect.Slice:
		return appendSlice(b, v)
	case reflect.Map:
		return appendMap(b, v)
	case reflect.Struct:
		return appendStruct(b, v)
	}
	return b, fmt.Errorf("client: %s cannot be written as JSON", v.Type())
}

// checkRaw checks that each json.RawMessage in a value is JSON: any other text could add fields to a request.
// AppendJSON does not check it, because the server knows that its own texts are JSON. The name is that of the
// field, for the error.
func checkRaw(v reflect.Value, name string) error {
	if !v.IsValid() || v.Type() == timeType {
		return nil
	}
	if v.Type() == rawType {
		if v.Len() > 0 && !json.Valid(v.Bytes()) {
			return fmt.Errorf("%s is not JSON", name)
		}
		return nil
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return checkRaw(v.Elem(), name)
	case reflect.Struct:
		for i := range v.NumField() {
			inner := name
			if f := v.Type().Field(i); f.IsExported() {
				inner = f.Name
			}
			if err := checkRaw(v.Field(i), inner); err != nil {
				return err
			}
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if err := checkRaw(value, key.String()); err != nil {
				return err
			}
		}
	case reflect.Slice:
		for i := 0; i < v.Len() && v.Type().Elem().Kind() != reflect.Uint8; i++ {
			if err := checkRaw(v.Index(i), name); err != nil {
				return err
			}
		}
	}
	return nil
}

// appendSlice appends an array. Bytes become base64.
func appendSlice(b []byte, v reflect.Value) (_ []byte, err error) {
	if v.Type().Elem().Kind() == reflect.Uint8 {
		return append(base64.StdEncoding.AppendEncode(append(b, '"'), v.Bytes()), '"'), nil
	}
	b = append(b, '[')
	for i := range v.Len() {
		if i > 0 {
			b = append(b, ',')
		}
		b, err = appendValue(b, v.Index(i))
		if err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// appendMap writes the members sorted by name.
func appendMap(b []byte, v reflect.Value) (_ []byte, err error) {
	members := make(map[string]reflect.Value, v.Len())
	for key, value := range v.Seq2() {
		members[key.String()] = value
	}
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			b = append(b, ',')
		}
		b, err = appendValue(append(AppendString(b, name), ':'), members[name])
		if err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendStruct appends the fields of Fields. A field without a value is left out or null, as its tags say.
func appendStruct(b []byte, v reflect.Value) (_ []byte, err error) {
	b = append(b, '{')
	first := true
	for _, f := range Fields(v.Type()) {
		value, err := v.FieldByIndexErr(f.Index)
		absent := err != nil // an embedded pointer on the way to the field is nil
		if absent || f.Omit && isEmpty(value) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(AppendString(b, f.Name), ':')
		if f.Null && isEmpty(value) {
			b = append(b, "null"...)
			continue
		}
		b, err = appendValue(b, value)
		if err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// isEmpty reports whether a field has no value, so that it is left out or null. A pointer, slice or map has
// no value only if it is nil.
func isEmpty(v reflect.Value) bool {
	if z, ok := v.Interface().(interface{ IsZero() bool }); ok {
		return z.IsZero()
	}
	return v.IsZero()
}

// A Field is one member of the JSON object for a struct of this package.
type Field struct {
	// Name is the member's name. Index is the position of its field for reflect.Value.FieldByIndex.
	Name  string
	Index []int
	Type  reflect.Type
	// Omit: a field without a value is left out. Null: a field without a value is null. Required: a request
	// must have it.
	Omit, Null, Required bool
	// Lines: the text may have line ends. Most is the maximum number of elements of an array; zero: no limit.
	Lines bool
	Most  int
	// Schema is the field's constraints in the OpenAPI document. Of is the name of the struct that declares
	// the field, Go the name of the field.
	Schema string
	Of, Go string
}

// fieldsOf caches the fields of each type. The fields of a type never change, so the cache needs no eviction.
var fieldsOf sync.Map

// Fields returns the members of the JSON object for a struct, in order, including those of embedded structs.
func Fields(t reflect.Type) []Field {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]Field)
	}
	var fields []Field
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			embedded := f.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			for _, inner := range Fields(embedded) {
				inner.Index = append([]int{i}, inner.Index...)
				fields = append(fields, inner)
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		field := Field{
			Name: name, Index: []int{i}, Type: f.Type, Omit: options != "",
			Schema: f.Tag.Get("schema"), Of: t.Name(), Go: f.Name,
		}
		for word := range strings.SplitSeq(f.Tag.Get("api"), ",") {
			switch key, value, _ := strings.Cut(word, "="); key {
			case "null":
				field.Null = true
			case "required":
				field.Required = true
			case "lines":
				field.Lines = true
			case "most":
				field.Most, _ = strconv.Atoi(value)
			}
		}
		fields = append(fields, field)
	}
	fieldsOf.Store(t, fields)
	return fields
}

// appendTime writes RFC 3339 in UTC with milliseconds, or null for the zero time.
func appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, "null"...)
	}
	return t.UTC().AppendFormat(b, `"2006-01-02T15:04:05.000Z"`)
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become U+FFFD, because a response must
// always be valid JSON.
func AppendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, size := utf8.DecodeRuneInString(s[i:]); r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		b = append(b, s[start:i]...)
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c >= utf8.RuneSelf:
			b = append(b, `\ufffd`...)
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
