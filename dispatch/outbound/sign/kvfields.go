package sign

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A kvForm is the format of the fields in a body.
type kvForm int

const (
	kvURLEncoded kvForm = iota
	kvJSON
	kvXML
)

// A kvField is one field of a body or a query, with its decoded value.
type kvField struct{ name, value string }

// kvFields are the fields of a body or a query, in their order.
type kvFields struct {
	form   kvForm
	fields []kvField
	// end is the offset in the body at which further fields are inserted.
	end int
}

var (
	errKVForm = errors.New("the body has no fields to sign: " +
		"it must be a form, a JSON object or an XML element")
	errKVDuplicate = errors.New("the body has a duplicate field, which cannot be signed")
)

// readFields reads the fields of a body. The content type decides the format; if it is unknown, the start of
// the body does. Duplicate fields are an error.
func readFields(contentType string, body []byte) (*kvFields, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not UTF-8, so its fields cannot be signed")
	}
	var f *kvFields
	var err error
	switch kvFormOf(contentType, body) {
	case kvJSON:
		f, err = jsonFields(body)
	case kvXML:
		f, err = xmlFields(body)
	default:
		f, err = formFields(string(body))
	}
	if err != nil {
		return nil, err
	}
	seen := make(map[string]struct{}, len(f.fields))
	for _, field := range f.fields {
		if _, ok := seen[field.name]; ok {
			return nil, errKVDuplicate
		}
		seen[field.name] = struct{}{}
	}
	return f, nil
}

// kvFormOf returns the format of a body by its content type, or by its first character if the type is
// unknown.
func kvFormOf(contentType string, body []byte) kvForm {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.ToLower(strings.TrimSpace(mediaType))
	start := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case mediaType == "application/x-www-form-urlencoded":
		return kvURLEncoded
	case mediaType == "application/json", strings.HasSuffix(mediaType, "+json"):
		return kvJSON
	case mediaType == "application/xml", mediaType == "text/xml", strings.HasSuffix(mediaType, "+xml"):
		return kvXML
	case bytes.HasPrefix(start, []byte("{")):
		return kvJSON
	case bytes.HasPrefix(start, []byte("<")):
		return kvXML
	}
	return kvURLEncoded
}

// formFields reads a form or a query. Names and values are unescaped.
func formFields(text string) (*kvFields, error) {
	f := &kvFields{form: kvURLEncoded, end: len(text)}
	for part := range strings.SplitSeq(text, "&") {
		if part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, errKVForm
		}
		var err, err2 error
		name, err = url.QueryUnescape(name)
		value, err2 = url.QueryUnescape(value)
		if err != nil || err2 != nil {
			return nil, errKVForm
		}
		f.fields = append(f.fields, kvField{name, value})
	}
	return f, nil
}

// jsonFields reads the fields of a JSON object. The value of a string is its content. Any other value is its
// JSON text without white space, and null is empty.
func jsonFields(body []byte) (*kvFields, error) {
	t := parse.ReadJSON(body)
	if t == nil || t.Kind(0) != parse.Object {
		return nil, errKVForm
	}
	if t.Duplicate {
		return nil, errKVDuplicate
	}
	f := &kvFields{form: kvJSON, end: int(t.Nodes[0].To) - 1}
	for c := t.First(0); c != 0; c = t.Next(c) {
		field := kvField{name: t.Key(c)}
		switch t.Kind(c) {
		case parse.Null:
		case parse.String:
			field.value = t.Str(c)
		case parse.Object, parse.Array:
			var compact bytes.Buffer
			_ = json.Compact(&compact, t.Raw(c)) // cannot fail: ReadJSON has validated it
			field.value = compact.String()
		default:
			field.value = string(t.Raw(c))
		}
		f.fields = append(f.fields, field)
	}
	return f, nil
}

// xmlFields reads an element whose children contain only text.
func xmlFields(body []byte) (*kvFields, error) {
	// No limit of steps: this is the sender's body, whose size was limited when it was accepted.
	t, _ := parse.ReadXML(body, func(int) bool { return true })
	if t == nil || declaresOtherEncoding(body) {
		return nil, errKVForm
	}
	root := t.Elements[0]
	if strings.TrimSpace(root.Text) != "" {
		return nil, errKVForm
	}
	if !bytes.HasPrefix(body[root.End:], []byte("</")) {
		return nil, errors.New("the body's root element has no end tag, so a signature cannot be added")
	}
	f := &kvFields{form: kvXML, end: int(root.End)}
	for _, e := range t.Elements[1:] {
		if !e.Leaf || e.Depth != 1 {
			return nil, errors.New("the body has nested elements, which cannot be signed")
		}
		f.fields = append(f.fields, kvField{e.Name, e.Text})
	}
	return f, nil
}

// declaresOtherEncoding reports whether an XML body declares an encoding other than UTF-8.
func declaresOtherEncoding(body []byte) bool {
	name := parse.DeclaredEncoding(body)
	return name != "" && !strings.EqualFold(name, "utf-8")
}

// has reports whether a field exists.
func (f *kvFields) has(name string) bool {
	return slices.ContainsFunc(f.fields, func(field kvField) bool { return field.name == name })
}

// appendTo returns the body or query that f was read from, with fields added after its own. All other bytes
// stay unchanged. The added names must need no escapes, nor their values in JSON and XML; in a form values
// are escaped.
func (f *kvFields) appendTo(body []byte, added []kvField) []byte {
	var b bytes.Buffer
	b.Grow(len(body) + 512)
	b.Write(body[:f.end])
	empty := len(f.fields) == 0
	for _, field := range added {
		switch f.form {
		case kvJSON:
			if !empty {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `"%s":"%s"`, field.name, field.value)
		case kvXML:
			fmt.Fprintf(&b, "<%s>%s</%s>", field.name, field.value, field.name)
		default:
			if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("&")) {
				b.WriteByte('&')
			}
			b.WriteString(field.name + "=" + url.QueryEscape(field.value))
		}
		empty = false
	}
	b.Write(body[f.end:])
	return b.Bytes()
}

// value returns the value of a field. It is empty if the field is missing.
func (f *kvFields) value(name string) string {
	for _, field := range f.fields {
		if field.name == name {
			return field.value
		}
	}
	return ""
}
