package outbound

import (
	"strconv"
	"strings"
)

// A Document is what predicates and body tests look at: an answer's status and its body as text. It is read as JSON or XML when the
// first of them asks for that, and then once. It is not for concurrent use.
type Document struct {
	status int
	text   []byte
	// broken says, in words, why nothing can be said of the body: it is not whole, or its bytes are not what it is declared to be.
	broken string
	// steps is what regular expressions have cost so far.
	steps int

	json              *jsonTree
	xml               *xmlTree
	jsonRead, xmlRead bool
}

// NewDocument returns the document of a whole body. The content type decides which encoding the body is in: UTF-8, or GBK, GB2312 or
// GB18030 if it, or else an XML declaration, says so. Body is used, not copied.
func NewDocument(status int, contentType string, body []byte) *Document {
	text, ok := decodeText(contentType, body)
	d := &Document{status: status, text: text}
	if !ok {
		d.broken = notEncoded
	}
	return d
}

const notEncoded = "the body is not in the encoding that it declares"

// asJSON returns the body as JSON, or why it cannot be used as such.
func (d *Document) asJSON() (t *jsonTree, why string) {
	if d.broken != "" {
		return nil, d.broken
	}
	switch t = d.anyJSON(); {
	case t == nil:
		return nil, notJSON
	case t.doubled:
		return nil, keyTwice
	}
	return t, ""
}

// anyJSON returns the body as JSON whatever else is wrong with it; nil: it is none.
func (d *Document) anyJSON() *jsonTree {
	if !d.jsonRead {
		d.json, d.jsonRead = readJSON(d.text), true
	}
	return d.json
}

const (
	notJSON = "the body is not JSON"
	notXML  = "the body is not well-formed XML"
	// keyTwice is told with the key, see doubledKey.
	keyTwice = "the body has a key twice"
)

// doubledKey says for people which key it is that the body has twice. A receiver may echo a credential as a key, too.
func (d *Document) doubledKey(hidden []string) string {
	// Masked before it is cut: half a credential is one, too.
	key := scrub(cleanText([]byte(d.json.twice)), hidden)
	return "the body has the key " + strconv.Quote(cut(key, sawBytes)) + " twice"
}

// asXML returns the body as XML, or why it cannot be used as such.
func (d *Document) asXML() (t *xmlTree, why string) {
	if d.broken != "" {
		return nil, d.broken
	}
	if !d.xmlRead {
		d.xml, d.xmlRead = readXML(d.text), true
	}
	if d.xml == nil {
		return nil, notXML
	}
	return d.xml, ""
}

// A value is what a predicate found. Of objects, lists and elements with elements within only their kind is known.
type value struct {
	found bool
	kind  jsonKind
	// text is what a string says, or a number or a word as it is written.
	text string
	// untyped values are from XML, where a number is a text.
	untyped bool
}

// pointed returns the value at a JSON pointer; why says why nothing can be found.
func (d *Document) pointed(p pointer) (v value, why string) {
	t, why := d.asJSON()
	if t == nil {
		return value{}, why
	}
	node, ok := t.find(p)
	if !ok {
		return value{}, ""
	}
	v = value{found: true, kind: t.kind(node)}
	switch v.kind {
	case jsonObject, jsonArray:
	case jsonString:
		v.text = t.str(node)
	default:
		v.text = string(t.raw(node))
	}
	return v, ""
}

// element returns the text of an XML element, without white space around it; why says why nothing can be found.
func (d *Document) element(p xmlPath) (v value, why string) {
	t, why := d.asXML()
	if t == nil {
		return value{}, why
	}
	e, count := t.find(p)
	switch {
	case count > 1:
		return value{}, "the body has several of " + p.text
	case count == 0:
		return value{}, ""
	case !e.leaf:
		return value{found: true, kind: jsonObject, untyped: true}, ""
	}
	return value{found: true, kind: jsonString, text: strings.TrimSpace(e.text), untyped: true}, ""
}
