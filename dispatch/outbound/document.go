package outbound

import (
	"bytes"
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
	// steps is what looking at it has cost so far, see maxSteps.
	steps int

	json              *jsonTree
	xml               *xmlTree
	jsonRead, xmlRead bool
	// xmlFault says why there is no xml.
	xmlFault string
}

// spend takes steps of those that the rule has. It says whether there were as many; once there were not,
// nothing more is looked at, so that the same rule finds the same in the same body on any machine.
func (d *Document) spend(steps int) bool {
	d.steps = min(d.steps+steps, maxSteps+1)
	return !d.spent()
}

// spent says whether the steps are used up.
func (d *Document) spent() bool { return d.steps > maxSteps }

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
	if !d.jsonRead && !d.spend(jsonSteps*len(d.text)) {
		return nil, tooCostly
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
	// jsonSteps is what reading a byte of JSON costs; unquoteSteps, reading one of a text with escapes; and
	// escapeSteps, looking whether a key with escapes is the one. A plain byte costs a quarter of a step.
	jsonSteps, unquoteSteps, escapeSteps = 4, 2, 40
	// tokenSteps is what reading a tag, an attribute or a text between tags costs in XML, beside a step for
	// each byte.
	tokenSteps = 32

	tooCostly = "the body is too much for the rule"

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
		d.xml, d.xmlFault = readXML(d.text, d.spend)
		d.xmlRead = true
	}
	return d.xml, d.xmlFault
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
	node, steps, ok := t.find(p)
	if !d.spend(steps) {
		return value{}, tooCostly
	}
	if !ok {
		return value{}, ""
	}
	v = value{found: true, kind: t.kind(node)}
	if v.kind == jsonObject || v.kind == jsonArray {
		return v, ""
	}
	raw := t.raw(node)
	steps = len(raw) / 4
	if v.kind == jsonString && bytes.IndexByte(raw, '\\') >= 0 {
		steps = unquoteSteps * len(raw)
	}
	if !d.spend(steps) {
		return value{}, tooCostly
	}
	if v.kind == jsonString {
		v.text = unquote(raw)
	} else {
		v.text = string(raw)
	}
	return v, ""
}

// element returns the text of an XML element, without white space around it; why says why nothing can be found.
func (d *Document) element(p xmlPath) (v value, why string) {
	t, why := d.asXML()
	if t == nil {
		return value{}, why
	}
	if !d.spend(len(t.elements)) {
		return value{}, tooCostly
	}
	e, count := t.find(p)
	switch {
	case count == 1 && !d.spend(len(e.text)/4):
		return value{}, tooCostly
	case count > 1:
		return value{}, "the body has several of " + p.text
	case count == 0:
		return value{}, ""
	case !e.leaf:
		return value{found: true, kind: jsonObject, untyped: true}, ""
	}
	return value{found: true, kind: jsonString, text: strings.TrimSpace(e.text), untyped: true}, ""
}
