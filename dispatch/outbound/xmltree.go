package outbound

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"
)

// An xmlTree is an XML text that was read once: its elements in the order of the text. Attributes, comments and prefixes of names are
// left out; CDATA is text like any other. There is nothing that could expand: a document type, the place where entities are
// defined, makes it unreadable.
type xmlTree struct {
	elements []xmlElement
}

// An xmlElement is one element. Its text is all the text directly within it, white space included.
type xmlElement struct {
	name   string
	text   string
	parent int // -1: it is the root
	depth  int // the root's is 0
	// leaf: there are no elements within.
	leaf bool
	// end is where its end tag begins in the text, for what is to be put there.
	end int64
}

const (
	// maxXMLDepth is how deep elements may be nested.
	maxXMLDepth = 256
	// maxXMLPath is how long a path may be, in bytes.
	maxXMLPath = 512
)

var (
	errXMLShape = errors.New("there is something beside a single root element")
	errXMLDepth = errors.New("elements are nested too deep")
)

// readXML reads a text that has been turned into UTF-8. It returns why for what is not one well-formed
// element, and for what costs more steps than may be spent.
func readXML(text []byte, spend func(steps int) bool) (t *xmlTree, why string) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // it is UTF-8 by now
	t = new(xmlTree)
	open := -1
	var texts [][]byte // of the elements that are open
	for {
		before := d.InputOffset()
		token, err := d.Token()
		switch {
		case err == io.EOF && len(t.elements) > 0:
			return t, ""
		case err != nil:
			return nil, notXML
		}
		cost := tokenSteps + int(d.InputOffset()-before)
		if start, ok := token.(xml.StartElement); ok {
			cost += tokenSteps * len(start.Attr)
		}
		if !spend(cost) {
			return nil, tooCostly
		}
		switch token := token.(type) {
		case xml.StartElement:
			if err := t.begin(token.Name.Local, open); err != nil {
				return nil, notXML
			}
			open = len(t.elements) - 1
			texts = append(texts, nil)
		case xml.EndElement:
			e := &t.elements[open]
			e.text = string(texts[len(texts)-1])
			e.end = before
			texts = texts[:len(texts)-1]
			open = e.parent
		case xml.CharData:
			if open >= 0 {
				texts[len(texts)-1] = append(texts[len(texts)-1], token...)
			} else if len(bytes.TrimSpace(token)) > 0 {
				return nil, notXML
			}
		case xml.Directive:
			return nil, notXML
		}
	}
}

func (t *xmlTree) begin(name string, parent int) error {
	e := xmlElement{name: name, parent: parent, leaf: true}
	if parent < 0 {
		if len(t.elements) > 0 {
			return errXMLShape
		}
	} else {
		t.elements[parent].leaf = false
		if e.depth = t.elements[parent].depth + 1; e.depth > maxXMLDepth {
			return errXMLDepth
		}
	}
	t.elements = append(t.elements, e)
	return nil
}

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
func (t *xmlTree) find(p xmlPath) (element *xmlElement, count int) {
	on := 0 // how many steps of the path the elements lead along in which the present one is
	for i := range t.elements {
		e := &t.elements[i]
		on = min(on, e.depth)
		if on < e.depth || on == len(p.steps) || e.name != p.steps[on] {
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
