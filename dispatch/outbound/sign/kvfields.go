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

// A kvForm is how a body writes its fields.
type kvForm int

const (
	kvURLEncoded kvForm = iota
	kvJSON
	kvXML
)

// A kvField is one field of a body or a query, with what its value says.
type kvField struct{ name, value string }

// kvFields are the fields of a body or of a query, in its order.
type kvFields struct {
	form   kvForm
	fields []kvField
	// end is where in the body a further field goes.
	end int
}

var (
	errKVForm = errors.New("the body has no fields that could be signed: it is a form, a JSON object or " +
		"an XML element")
	errKVTwice = errors.New("the body has a field twice, which cannot be signed")
)

// readFields reads the fields of a body: as its content type says, or, where that says nothing, as it begins.
func readFields(contentType string, body []byte) (*kvFields, error) {
	if !utf8.Valid(body) {
		return nil, errors.New("the body is not UTF-8 and cannot be signed field by field")
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
			return nil, errKVTwice
		}
		seen[field.name] = struct{}{}
	}
	return f, nil
}

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

// formFields reads a form, or a query: values are what is meant, not how it is escaped.
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

// jsonFields reads a flat object. A text stands for what it says, anything else for how it is written,
// without white space; null is empty.
func jsonFields(body []byte) (*kvFields, error) {
	t := parse.ReadJSON(body)
	if t == nil || t.Kind(0) != parse.Object {
		return nil, errKVForm
	}
	if t.Doubled {
		return nil, errKVTwice
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
			_ = json.Compact(&compact, t.Raw(c)) // it is valid
			field.value = compact.String()
		default:
			field.value = string(t.Raw(c))
		}
		f.fields = append(f.fields, field)
	}
	return f, nil
}

// xmlFields reads an element whose children have nothing but text.
func xmlFields(body []byte) (*kvFields, error) {
	// the caller's own, which accepting has bounded
	t, _ := parse.ReadXML(body, func(int) bool { return true })
	if t == nil || declaredElsewise(body) {
		return nil, errKVForm
	}
	root := t.Elements[0]
	if strings.TrimSpace(root.Text) != "" {
		return nil, errKVForm
	}
	if !bytes.HasPrefix(body[root.End:], []byte("</")) {
		return nil, errors.New("the body's element has no end tag: there is no place for a signature")
	}
	f := &kvFields{form: kvXML, end: int(root.End)}
	for _, e := range t.Elements[1:] {
		if !e.Leaf || e.Depth != 1 {
			return nil, errors.New("the body's fields have elements of their own, which cannot be signed")
		}
		f.fields = append(f.fields, kvField{e.Name, e.Text})
	}
	return f, nil
}

// declaredElsewise says whether an XML body declares that it is not UTF-8.
func declaredElsewise(body []byte) bool {
	name := parse.DeclaredEncoding(body)
	return name != "" && !strings.EqualFold(name, "utf-8")
}

// has says whether there is a field of that name.
func (f *kvFields) has(name string) bool {
	return slices.ContainsFunc(f.fields, func(field kvField) bool { return field.name == name })
}

// with returns the body with fields added behind its own, and every other byte as it was. Their names and
// values need no escapes but those of a form.
func (f *kvFields) with(body []byte, added []kvField) []byte {
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

// value returns the value of a field; "": it is empty, or there is none.
func (f *kvFields) value(name string) string {
	for _, field := range f.fields {
		if field.name == name {
			return field.value
		}
	}
	return ""
}
