package parse

import (
	"bytes"
	"encoding/xml"
	"io"
)

// An XML is a parsed XML text: its elements in the order of the text. Attributes, comments and prefixes of
// names are omitted. CDATA is text like any other. Entities cannot expand: a text with a document type, which
// could define them, is refused.
type XML struct {
	Elements []Element
}

// An Element is one element. Text is the text directly inside of it, white space included.
type Element struct {
	Name   string
	Text   string
	Parent int // -1 for the root
	Depth  int // 0 for the root
	// Leaf means that it contains no elements.
	Leaf bool
	// End is the offset of its end tag, where further elements can be inserted.
	End int64
}

const (
	// MaxXMLDepth is the maximum depth of elements.
	MaxXMLDepth = 256
	// TokenSteps is the cost in steps of a tag, an attribute or a text, in addition to one step per byte.
	TokenSteps = 32

	NotXML    = "the body is not well-formed XML"
	TooCostly = "the body takes too long to check"
)

// ReadXML parses a text in UTF-8. It fails if the text is not one well-formed element or if spend refuses the
// cost; why is then NotXML or TooCostly.
func ReadXML(text []byte, spend func(steps int) bool) (t *XML, why string) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // already UTF-8
	t = new(XML)
	open := -1
	var texts [][]byte // of the open elements
	for {
		before := d.InputOffset()
		token, err := d.Token()
		switch {
		case err == io.EOF && len(t.Elements) > 0:
			return t, ""
		case err != nil:
			return nil, NotXML
		}
		cost := TokenSteps + int(d.InputOffset()-before)
		if start, ok := token.(xml.StartElement); ok {
			cost += TokenSteps * len(start.Attr)
		}
		if !spend(cost) {
			return nil, TooCostly
		}
		switch token := token.(type) {
		case xml.StartElement:
			if !t.begin(token.Name.Local, open) {
				return nil, NotXML
			}
			open = len(t.Elements) - 1
			texts = append(texts, nil)
		case xml.EndElement:
			e := &t.Elements[open]
			e.Text = string(texts[len(texts)-1])
			e.End = before
			texts = texts[:len(texts)-1]
			open = e.Parent
		case xml.CharData:
			if open >= 0 {
				texts[len(texts)-1] = append(texts[len(texts)-1], token...)
			} else if len(bytes.TrimSpace(token)) > 0 {
				return nil, NotXML
			}
		case xml.Directive:
			return nil, NotXML
		}
	}
}

// begin adds an element. It returns false for a second root and for one that is nested too deep.
func (t *XML) begin(name string, parent int) bool {
	e := Element{Name: name, Parent: parent, Leaf: true}
	if parent < 0 && len(t.Elements) > 0 {
		return false
	}
	if parent >= 0 {
		t.Elements[parent].Leaf = false
		e.Depth = t.Elements[parent].Depth + 1
	}
	t.Elements = append(t.Elements, e)
	return e.Depth <= MaxXMLDepth
}
