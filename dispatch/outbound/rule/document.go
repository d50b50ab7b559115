package rule

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A Document is what predicates and body tests look at: an answer's status and its body as text. It is read
// as JSON or XML when the first of them asks for that, and then once. It is not for concurrent use.
type Document struct {
	Status int
	Text   []byte
	// broken says, in words, why nothing can be said of the body: it is not whole, or its bytes are not what
	// it is declared to be.
	Broken string
	// partial: the body broke off or could not be decoded, so that not even the status decides a poll.
	Partial bool
	// seen describes the body for people.
	Seen string
	// steps is what looking at it has cost so far, see maxSteps.
	steps int

	json              *parse.JSON
	xml               *parse.XML
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

// NewDocument returns the document of a whole body. The content type decides which encoding the body is in:
// UTF-8, or GBK, GB2312 or GB18030 if it, or else an XML declaration, says so. Body is used, not copied.
func NewDocument(status int, contentType string, body []byte) *Document {
	text, ok := parse.UTF8(contentType, body)
	d := &Document{Status: status, Text: text}
	if !ok {
		d.Broken = NotEncoded
	}
	return d
}

// NotEncoded says that of a body.
const NotEncoded = "the body is not in the encoding that it declares"

// asJSON returns the body as JSON, or why it cannot be used as such.
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
	case t.Doubled:
		return nil, keyTwice
	}
	return t, ""
}

// anyJSON returns the body as JSON whatever else is wrong with it; nil: it is none.
func (d *Document) anyJSON() *parse.JSON {
	if !d.jsonRead {
		d.json, d.jsonRead = parse.ReadJSON(d.Text), true
	}
	return d.json
}

const (
	// jsonSteps is what reading a byte of JSON costs.
	jsonSteps = 4

	notJSON = "the body is not JSON"
	// keyTwice is told with the key, see doubledKey.
	keyTwice = "the body has a key twice"
)

// doubledKey says for people which key it is that the body has twice. A receiver may echo a credential as a
// key, too.
func (d *Document) doubledKey(hidden []string) string {
	// Masked before it is cut: half a credential is one, too.
	key := parse.Scrub(parse.Clean([]byte(d.json.Twice)), hidden)
	return "the body has the key " + strconv.Quote(parse.Cut(key, SawBytes)) + " twice"
}

// asXML returns the body as XML, or why it cannot be used as such.
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

// A value is what a predicate found. Of objects, lists and elements with elements within only their kind is
// known.
type value struct {
	found bool
	kind  parse.Kind
	// text is what a string says, or a number or a word as it is written.
	text string
	// untyped values are from XML, where a number is a text.
	untyped bool
}

// pointed returns the value at a JSON pointer; why says why nothing can be found.
func (d *Document) pointed(p *pointer) (v value, why string) {
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

// element returns the text of an XML element, without white space around it; why says why nothing can be
// found.
func (d *Document) element(p *xmlPath) (v value, why string) {
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
		return value{}, "the body has several of " + p.text
	case count == 0:
		return value{}, ""
	case !e.Leaf:
		return value{found: true, kind: parse.Object, untyped: true}, ""
	}
	return value{found: true, kind: parse.String, text: strings.TrimSpace(e.Text), untyped: true}, ""
}
