package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Text returns the predicates as compact JSON, in one spelling for all that mean the same in the same order; ParsePredicates reads it.
func (ps Predicates) Text() store.JSONText { return store.JSONText(ps.appendJSON(nil)) }

func (ps Predicates) appendJSON(out []byte) []byte {
	out = append(out, '[')
	for i := range ps {
		if i > 0 {
			out = append(out, ',')
		}
		out = ps[i].appendJSON(out)
	}
	return append(out, ']')
}

func (p *Predicate) appendJSON(out []byte) []byte {
	w := parse.Writer{Out: append(out, '{')}
	w.Name(string(p.look))
	switch p.look {
	case lookStatus:
		w.Out = p.statuses.appendJSON(w.Out)
		return w.End()
	case lookAll:
		w.Out = Predicates(p.all).appendJSON(w.Out)
		return w.End()
	case lookXML:
		w.Out = parse.Quote(w.Out, p.path.text)
	default:
		w.Out = parse.Quote(w.Out, p.pointer.text)
	}
	w.Name(string(p.operator))
	switch p.operator {
	case opExists:
		w.Out = strconv.AppendBool(w.Out, p.there)
	case opMatches:
		w.Out = parse.Quote(w.Out, p.pattern.String())
	case opIn, opNotIn:
		for i, o := range p.operands {
			w.Out = o.appendJSON(append(w.Out, "[,"[min(i, 1)]))
		}
		w.Out = append(w.Out, ']')
	default:
		w.Out = p.operands[0].appendJSON(w.Out)
	}
	return w.End()
}

func (s scalar) appendJSON(out []byte) []byte {
	if s.kind == parse.String {
		return parse.Quote(out, s.text)
	}
	return append(out, s.text...)
}

// maxSentence is how long what a rule expected, or saw, may be for people, in bytes.
const maxSentence = 512

// Expected returns what they want, for people: `/trade_state to be one of "SUCCESS", "CLOSED"`, at most 512 bytes.
func (ps Predicates) Expected() string {
	return shorten(joined(ps, " or "), maxSentence)
}

func joined(ps []Predicate, word string) string {
	texts := make([]string, len(ps))
	for i := range ps {
		texts[i] = ps[i].expected()
	}
	return strings.Join(texts, word)
}

// shorten cuts a text and shows that it did.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return parse.Cut(s, n-len("…")) + "…"
}

func (p *Predicate) expected() string {
	switch p.look {
	case lookStatus:
		return "status " + p.statuses.String()
	case lookAll:
		return joined(p.all, " and ")
	}
	operands := make([]string, len(p.operands))
	for i, o := range p.operands {
		operands[i] = o.String()
	}
	list := strings.Join(operands, ", ")
	var verb string
	switch p.operator {
	case opExists:
		if verb = "to be there"; !p.there {
			verb = "not to be there"
		}
	case opEqual:
		verb = "to be " + list
	case opIn:
		verb = "to be one of " + list
	case opNotEqual:
		verb = "to be other than " + list
	case opNotIn:
		verb = "to be none of " + list
	case opMore:
		verb = "to be more than " + list
	case opLeast:
		verb = "to be at least " + list
	case opLess:
		verb = "to be less than " + list
	case opMost:
		verb = "to be at most " + list
	case opMatches:
		verb = "to match " + strconv.Quote(p.pattern.String())
	}
	return p.place() + " " + verb
}

// place names what the predicate looks at.
func (p *Predicate) place() string {
	switch {
	case p.look == lookXML:
		return p.path.text
	case p.pointer.text == "":
		return "the body"
	}
	return p.pointer.text
}

// String returns the operand for people.
func (s scalar) String() string {
	if s.kind == parse.String {
		return strconv.Quote(shorten(s.text, SawBytes))
	}
	return shorten(s.text, SawBytes)
}

// maxSeen is how many values are told of what predicates saw.
const maxSeen = 4

// saw returns what they found, for people: `/trade_state is "USERPAYING"`. Credentials that the receiver echoes are masked. body describes the
// body, for where it could not be read.
func (ps Predicates) saw(d *Document, body string, hidden []string) string {
	var told []string
	spent := d.spent()
	ps.tell(d, body, hidden, &told)
	text := cmp.Or(strings.Join(told, ", "), body)
	if spent {
		text = parse.TooCostly + ": " + text
	}
	return shorten(text, maxSentence)
}

func (ps Predicates) tell(d *Document, body string, hidden []string, told *[]string) {
	for i := range ps {
		p := &ps[i]
		if len(*told) == maxSeen {
			return
		}
		var text string
		switch p.look {
		case lookAll:
			Predicates(p.all).tell(d, body, hidden, told)
			continue
		case lookStatus:
			text = statusSeen(d.Status)
		default:
			switch v, why := p.see(d); why {
			case "":
				text = p.place() + " " + v.seen(hidden)
			case notJSON, parse.NotXML:
				text = why + ": " + body
			case keyTwice:
				text = d.doubledKey(hidden)
			case parse.TooCostly:
				return
			default:
				text = why
			}
		}
		if !slices.Contains(*told, text) {
			*told = append(*told, text)
		}
	}
}

// seen describes a value for people.
func (v value) seen(hidden []string) string {
	if !v.found {
		return "is not there"
	}
	switch v.kind {
	case parse.Object:
		return "has values of its own"
	case parse.Array:
		return "is a list"
	}
	// Masked before it is cut: half a credential is one, too.
	text := parse.Scrub(parse.Clean([]byte(v.text)), hidden)
	if v.kind != parse.String {
		return "is " + shorten(text, SawBytes)
	}
	if len(text) > SawBytes {
		return "is " + strconv.Quote(parse.Cut(text, SawBytes)) + "…"
	}
	return "is " + strconv.Quote(text)
}
