package rule

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

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
func findValue(t *parse.JSON, p pointer) (node int32, steps int, ok bool) {
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
		if steps += cost; node == 0 {
			return 0, steps, false
		}
	}
	return node, steps, true
}

// member returns the value of a key; 0: there is none.
func member(t *parse.JSON, object int32, key string) (node int32, steps int) {
	for c := t.First(object); c != 0; c = t.Next(c) {
		yes, cost := t.HasKey(c, key)
		if steps += cost; yes {
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
