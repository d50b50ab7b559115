package rule

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A Document is what rules check: an answer's status and its body as text. The body is parsed as JSON or XML
// once, when a predicate first needs it. It is not for concurrent use.
type Document struct {
	Status int
	Text   []byte
	// Broken is the reason, for people, why the body cannot be tested: it is incomplete, or its bytes do not
	// match the declared encoding. Empty means that it can be tested.
	Broken string
	// Partial means that the body is incomplete or could not be decoded, so that not even the status decides
	// a poll.
	Partial bool
	// Seen describes the body for people, with credentials masked.
	Seen string
	// steps is the cost of all checks so far, see maxSteps.
	steps int

	json              *parse.JSON
	xml               *parse.XML
	jsonRead, xmlRead bool
	// xmlFault is the reason why the body is not XML.
	xmlFault string
}

// spend adds steps to the cost and reports whether the rule may still look at the document. Once the steps
// are used up no further predicate matches, so the same rule and body have the same result on every machine.
func (d *Document) spend(steps int) bool {
	d.steps = min(d.steps+steps, maxSteps+1)
	return !d.spent()
}

// spent reports whether the steps are used up.
func (d *Document) spent() bool { return d.steps > maxSteps }

// NewDocument returns the document of a complete body, which it does not copy. The content type declares the
// encoding, else an XML declaration: UTF-8, GBK, GB2312 or GB18030.
func NewDocument(status int, contentType string, body []byte) *Document {
	text, ok := parse.UTF8(contentType, body)
	d := &Document{Status: status, Text: text}
	if !ok {
		d.Broken = NotEncoded
	}
	return d
}

// NotEncoded is the text for a body whose bytes do not match its declared encoding.
const NotEncoded = "the body is not in the encoding that it declares"

// asJSON returns the body as JSON, or why predicates cannot use it.
func (d *Document) asJSON() (t *parse.JSON, why string) {
	if d.Broken != "" {
		return nil, d.Broken
	}
	if !d.jsonRead && !d.spend(jsonSteps*len(d.Text)) {
		return nil, parse.TooCostly
	}
	t = d.anyJSON()
	switch {
	case t == nil:
		return nil, notJSON
	case t.Duplicate:
		return nil, duplicateKey
	}
	return t, ""
}

// anyJSON returns the body as JSON even if it has duplicate keys. It is nil if the body is not JSON.
func (d *Document) anyJSON() *parse.JSON {
	if !d.jsonRead {
		d.json, d.jsonRead = parse.ReadJSON(d.Text), true
	}
	return d.json
}

const (
	// jsonSteps is the cost in steps of a byte of JSON.
	jsonSteps = 4

	notJSON = "the body is not JSON"
	// duplicateKey is replaced by describeDuplicateKey in descriptions.
	duplicateKey = "the body has a duplicate key"
)

// describeDuplicateKey names the duplicate key for people. A receiver may echo a credential as a key, so it
// is masked.
func (d *Document) describeDuplicateKey(hidden []string) string {
	// Mask before the cut: half a credential would not be found.
	key := parse.Scrub(parse.Clean([]byte(d.json.DuplicateKey)), hidden)
	return "the body has the duplicate key " + strconv.Quote(parse.Cut(key, SawBytes))
}

// asXML returns the body as XML, or why predicates cannot use it.
func (d *Document) asXML() (t *parse.XML, why string) {
	if d.Broken != "" {
		return nil, d.Broken
	}
	if !d.xmlRead {
		d.xml, d.xmlFault = parse.ReadXML(d.Text, d.spend)
		d.xmlRead = true
	}
	return d.xml, d.xmlFault
}

// A value is what a predicate looks at. Of objects, arrays and elements with child elements only the kind is
// known.
type value struct {
	found bool
	kind  parse.Kind
	// text is the content of a string, or the JSON text of a number or a word.
	text string
	// untyped values are from XML, where a number is a text.
	untyped bool
}

// valueAt returns the value at a JSON pointer. If it is unknown, why is the reason.
func (d *Document) valueAt(p *pointer) (v value, why string) {
	t, why := d.asJSON()
	if t == nil {
		return value{}, why
	}
	node, steps, ok := p.find(t)
	if !d.spend(steps) {
		return value{}, parse.TooCostly
	}
	if !ok {
		return value{}, ""
	}
	v = value{found: true, kind: t.Kind(node)}
	if v.kind == parse.Object || v.kind == parse.Array {
		return v, ""
	}
	raw := t.Raw(node)
	steps = len(raw) / 4
	if v.kind == parse.String && bytes.IndexByte(raw, '\\') >= 0 {
		steps = parse.UnquoteSteps * len(raw)
	}
	if !d.spend(steps) {
		return value{}, parse.TooCostly
	}
	if v.kind == parse.String {
		v.text = parse.Unquote(raw)
	} else {
		v.text = string(raw)
	}
	return v, ""
}

// elementText returns the text of an XML element without white space around it. If it is unknown, why is the
// reason.
func (d *Document) elementText(p *xmlPath) (v value, why string) {
	t, why := d.asXML()
	if t == nil {
		return value{}, why
	}
	if !d.spend(len(t.Elements)) {
		return value{}, parse.TooCostly
	}
	e, count := p.find(t)
	switch {
	case count == 1 && !d.spend(len(e.Text)/4):
		return value{}, parse.TooCostly
	case count > 1:
		return value{}, "the body has several elements " + p.text
	case count == 0:
		return value{}, ""
	case !e.Leaf:
		return value{found: true, kind: parse.Object, untyped: true}, ""
	}
	return value{found: true, kind: parse.String, text: strings.TrimSpace(e.Text), untyped: true}, ""
}
