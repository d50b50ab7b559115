package rule

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxXMLPath is how long a path may be, in bytes.
const maxXMLPath = 512

// An xmlPath says where an element is: "/xml/return_code", the root's name first. Names are without prefix.
type xmlPath struct {
	text  string
	steps []string
}

// parseXMLPath reads one, or says what is wrong with it.
func parseXMLPath(text string) (p xmlPath, why string) {
	const form = "is the way to an element, the root's name first, such as /xml/return_code"
	if len(text) > maxXMLPath {
		return xmlPath{}, "is longer than 512 bytes"
	}
	if len(text) < 2 || text[0] != '/' {
		return xmlPath{}, form
	}
	p.text, p.steps = text, strings.Split(text[1:], "/")
	for _, step := range p.steps {
		if step == "" || strings.ContainsAny(step, "<>&\"'@:[]()*= \t\r\n") {
			return xmlPath{}, form
		}
	}
	return p, ""
}

// find returns the element at a path, and how many there are of it: of several nobody knows which is meant.
// It looks at each element once.
func findElement(t *parse.XML, p xmlPath) (element *parse.Element, count int) {
	on := 0 // how many steps of the path the elements lead along in which the present one is
	for i := range t.Elements {
		e := &t.Elements[i]
		on = min(on, e.Depth)
		if on < e.Depth || on == len(p.steps) || e.Name != p.steps[on] {
			continue
		}
		if on++; on < len(p.steps) {
			continue
		}
		if count++; count == 1 {
			element = e
		}
	}
	return element, count
}
