package outbound

import "strings"

// A pointer is a JSON pointer (RFC 6901): where a value is in a document. The zero one is the whole document.
type pointer struct {
	text  string
	steps []string
}

// maxPointer is how long a pointer may be, in bytes.
const maxPointer = 512

// parsePointer reads one, or says what is wrong with it.
func parsePointer(text string) (p pointer, why string) {
	switch {
	case len(text) > maxPointer:
		return pointer{}, "is longer than 512 bytes"
	case text == "":
		return pointer{}, ""
	case text[0] != '/':
		return pointer{}, "is not a JSON pointer: it begins with / or is empty (RFC 6901)"
	}
	p.text, p.steps = text, strings.Split(text[1:], "/")
	for i, step := range p.steps {
		plain := strings.ReplaceAll(strings.ReplaceAll(step, "~1", ""), "~0", "")
		if strings.Contains(plain, "~") {
			return pointer{}, "is not a JSON pointer: ~ is followed by 0 or 1 (RFC 6901)"
		}
		p.steps[i] = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
	}
	return p, ""
}

// find returns the value that a pointer names, and what finding it has cost. "-", which stands for the
// element after the last, names none.
func (t *jsonTree) find(p pointer) (node int32, steps int, ok bool) {
	for _, step := range p.steps {
		cost := 0
		switch t.kind(node) {
		case jsonObject:
			node, cost = t.member(node, step)
		case jsonArray:
			node, cost = t.element(node, step)
		default:
			return 0, steps, false
		}
		if steps += cost; node == 0 {
			return 0, steps, false
		}
	}
	return node, steps, true
}

// member returns the value of a key; 0: there is none.
func (t *jsonTree) member(object int32, key string) (node int32, steps int) {
	for c := t.first(object); c != 0; c = t.next(c) {
		yes, cost := t.hasKey(c, key)
		if steps += cost; yes {
			return c, steps
		}
	}
	return 0, steps
}

// element returns an array's element by its index, which is written without leading zeros; 0: there is none.
func (t *jsonTree) element(array int32, index string) (node int32, steps int) {
	if !isDigits(index) || len(index) > 1 && index[0] == '0' || len(index) > 9 {
		return 0, 0
	}
	n := 0
	for i := range len(index) {
		n = 10*n + int(index[i]-'0')
	}
	c := t.first(array)
	for ; c != 0 && n > 0; n-- {
		c = t.next(c)
		steps++
	}
	return c, steps
}
