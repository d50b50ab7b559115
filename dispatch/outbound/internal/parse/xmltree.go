package parse

import (
	"bytes"
	"encoding/xml"
	"io"
)

// An XML is an XML text that was read once: its elements in the order of the text. Attributes, comments and
// prefixes of names are left out; CDATA is text like any other. There is nothing that could expand: a
// document type, the place where entities are defined, makes it unreadable.
type XML struct {
	Elements []Element
}

// An Element is one element. Its text is all the text directly within it, white space included.
type Element struct {
	Name   string
	Text   string
	Parent int // -1: it is the root
	Depth  int // the root's is 0
	// leaf: there are no elements within.
	Leaf bool
	// end is where its end tag begins in the text, for what is to be put there.
	End int64
}

const (
	// maxXMLDepth is how deep elements may be nested.
	MaxXMLDepth = 256
	// tokenSteps is what reading a tag, an attribute or a text between tags costs in XML, beside a step for
	// each byte.
	TokenSteps = 32

	NotXML    = "the body is not well-formed XML"
	TooCostly = "the body is too much for the rule"
)

// ReadXML reads a text that has been turned into UTF-8. It returns why for what is not one well-formed
// element, and for what costs more steps than may be spent.
func ReadXML(text []byte, spend func(steps int) bool) (t *XML, why string) {
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // it is UTF-8 by now
	t = new(XML)
	open := -1
	var texts [][]byte // of the elements that are open
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

// begin adds an element. It says no to a second root, and to what is nested too deep.
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
