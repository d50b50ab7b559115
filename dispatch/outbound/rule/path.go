package rule

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxPath is the maximum length of a pointer or a path in bytes.
const maxPath = 512

// A path is the way to a value in a document.
type path struct {
	text  string
	steps []string
}

// MarshalText returns the path as the caller wrote it.
func (p path) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// readPath parses a text as a path.
func readPath(s parse.Setting, parse func(text string) (path, string)) (p path) {
	if text, ok := s.Text(maxPath); ok {
		var why string
		p, why = parse(text)
		if why != "" {
			s.Fail("%s", why)
		}
	}
	return p
}

// A pointer is a JSON pointer (RFC 6901). The zero value is the whole document.
type pointer struct{ path }

// ReadSetting parses a pointer.
func (p *pointer) ReadSetting(s parse.Setting) { p.path = readPath(s, parsePointer) }

// parsePointer parses a pointer. If it is invalid, why is the error for people.
func parsePointer(text string) (p path, why string) {
	switch {
	case len(text) > maxPath:
		return path{}, "is longer than 512 bytes"
	case text == "":
		return path{}, ""
	case text[0] != '/':
		return path{}, "is not a JSON pointer: it must begin with / or be empty (RFC 6901)"
	}
	p.text, p.steps = text, strings.Split(text[1:], "/")
	for i, step := range p.steps {
		plain := strings.ReplaceAll(strings.ReplaceAll(step, "~1", ""), "~0", "")
		if strings.Contains(plain, "~") {
			return path{}, "is not a JSON pointer: ~ must be followed by 0 or 1 (RFC 6901)"
		}
		p.steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	return p, ""
}

// find returns the value at the pointer and the cost in steps. "-", the element after the last one, is never
// found.
func (p *pointer) find(t *parse.JSON) (node int32, steps int, ok bool) {
	for _, step := range p.steps {
		cost := 0
		switch t.Kind(node) {
		case parse.Object:
			node, cost = member(t, node, step)
		case parse.Array:
			node, cost = element(t, node, step)
		default:
			return 0, steps, false
		}
		steps += cost
		if node == 0 {
			return 0, steps, false
		}
	}
	return node, steps, true
}

// member returns the value of a key, or 0 if there is none.
func member(t *parse.JSON, object int32, key string) (node int32, steps int) {
	for c := t.First(object); c != 0; c = t.Next(c) {
		yes, cost := t.HasKey(c, key)
		steps += cost
		if yes {
			return c, steps
		}
	}
	return 0, steps
}

// element returns an array's element by its index, or 0 if there is none. The index has no leading zeros.
func element(t *parse.JSON, array int32, index string) (node int32, steps int) {
	if !parse.IsDigits(index) || len(index) > 1 && index[0] == '0' || len(index) > 9 {
		return 0, 0
	}
	n := 0
	for i := range len(index) {
		n = 10*n + int(index[i]-'0')
	}
	c := t.First(array)
	for ; c != 0 && n > 0; n-- {
		c = t.Next(c)
		steps++
	}
	return c, steps
}

// An xmlPath is the way to an element from the root, such as "/xml/return_code". Names have no prefix.
type xmlPath struct{ path }

// ReadSetting parses a path.
func (p *xmlPath) ReadSetting(s parse.Setting) { p.path = readPath(s, parseXMLPath) }

// parseXMLPath parses a path. If it is invalid, why is the error for people.
func parseXMLPath(text string) (p path, why string) {
	const form = "must be a path from the root element, such as /xml/return_code"
	if len(text) > maxPath {
		return path{}, "is longer than 512 bytes"
	}
	if len(text) < 2 || text[0] != '/' {
		return path{}, form
	}
	p.text, p.steps = text, strings.Split(text[1:], "/")
	for _, step := range p.steps {
		if step == "" || strings.ContainsAny(step, "<>&\"'@:[]()*= \t\r\n") {
			return path{}, form
		}
	}
	return p, ""
}

// find returns the first element at the path and the number of elements there. It visits each element once.
func (p *xmlPath) find(t *parse.XML) (element *parse.Element, count int) {
	on := 0 // the number of steps of the path that the open elements match
	for i := range t.Elements {
		e := &t.Elements[i]
		on = min(on, e.Depth)
		if on < e.Depth || on == len(p.steps) || e.Name != p.steps[on] {
			continue
		}
		on++
		if on < len(p.steps) {
			continue
		}
		count++
		if count == 1 {
			element = e
		}
	}
	return element, count
}
