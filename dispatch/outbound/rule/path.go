package rule

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxPath is how long a pointer or a path may be, in bytes.
const maxPath = 512

// A path says where a value is in a document.
type path struct {
	text  string
	steps []string
}

// MarshalText returns the path as it was given.
func (p path) MarshalText() ([]byte, error) { return []byte(p.text), nil }

// readPath reads a text of a setting as a path.
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

// A pointer is a JSON pointer (RFC 6901). The zero one is the whole document.
type pointer struct{ path }

// ReadSetting reads a pointer.
func (p *pointer) ReadSetting(s parse.Setting) { p.path = readPath(s, parsePointer) }

// parsePointer reads one, or says what is wrong with it.
func parsePointer(text string) (p path, why string) {
	switch {
	case len(text) > maxPath:
		return path{}, "is longer than 512 bytes"
	case text == "":
		return path{}, ""
	case text[0] != '/':
		return path{}, "is not a JSON pointer: it begins with / or is empty (RFC 6901)"
	}
	p.text, p.steps = text, strings.Split(text[1:], "/")
	for i, step := range p.steps {
		plain := strings.ReplaceAll(strings.ReplaceAll(step, "~1", ""), "~0", "")
		if strings.Contains(plain, "~") {
			return path{}, "is not a JSON pointer: ~ is followed by 0 or 1 (RFC 6901)"
		}
		p.steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	return p, ""
}

// find returns the value that the pointer names, and what finding it has cost. "-", which stands for the
// element after the last, names none.
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

// member returns the value of a key; 0: there is none.
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

// element returns an array's element by its index, which is written without leading zeros; 0: there is none.
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

// An xmlPath says where an element is: "/xml/return_code", the root's name first. Names are without prefix.
type xmlPath struct{ path }

// ReadSetting reads a path.
func (p *xmlPath) ReadSetting(s parse.Setting) { p.path = readPath(s, parseXMLPath) }

// parseXMLPath reads one, or says what is wrong with it.
func parseXMLPath(text string) (p path, why string) {
	const form = "is the way to an element, the root's name first, such as /xml/return_code"
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

// find returns the element at the path, and how many there are of it: which of several is meant is not known.
// It looks at each element once.
func (p *xmlPath) find(t *parse.XML) (element *parse.Element, count int) {
	on := 0 // how many steps of the path the elements lead along in which the present one is
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
