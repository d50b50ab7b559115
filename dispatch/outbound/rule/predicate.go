package rule

import (
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Predicates are a list of which any one suffices (SPEC §6). ParsePredicates makes them; they are read-only and safe for concurrent
// use. The nil one matches nothing.
//
// A predicate looks at one value of an answer: {"pointer": "/trade_state", "in": ["SUCCESS"]} at one of a JSON body, by JSON pointer (RFC
// 6901); {"xml": "/xml/trade_state", …} at the text of an XML element; {"status": [404, "500-599"]} at the status. {"all": […]} is true if
// all of its own are. What holds for each of them:
//
//   - A value that is not there satisfies nothing but "exists": false. null is there.
//   - A body that is not whole, not JSON (nested at most 10,000 deep), not well-formed XML, or that has a key twice in any object,
//     satisfies nothing, not even "exists": false. Nor does a path that several XML elements have.
//   - eq, ne, in and not_in compare numbers as decimals with all their digits (1.50 is 1.5), everything else by type and letter: the text
//     "1" is not the number 1. A value from XML has no type: a number there is compared as one.
//   - gt, ge, lt and le compare decimals; a text that is one, such as "1.50", counts as well.
//   - matches looks for a regular expression (RE2) anywhere in a text, a number or a word such as true.
//   - What a rule costs on one body is bounded (10 ms). Once that is used up, nothing is looked at any more.
type Predicates []Predicate

// A Predicate is one of Predicates.
type Predicate struct {
	look     look
	pointer  pointer
	path     xmlPath
	statuses statusSet
	all      []Predicate

	operator operator
	// operands are one, but for in and not_in.
	operands []scalar
	pattern  *pattern
	// there is what exists asks for.
	there bool
}

// A look is what a predicate looks at.
type look string

const (
	lookPointer look = "pointer"
	lookXML     look = "xml"
	lookStatus  look = "status"
	lookAll     look = "all"
)

// An operator compares what was found with the operands.
type operator string

const (
	opEqual    operator = "eq"
	opNotEqual operator = "ne"
	opIn       operator = "in"
	opNotIn    operator = "not_in"
	opExists   operator = "exists"
	opMore     operator = "gt"
	opLeast    operator = "ge"
	opLess     operator = "lt"
	opMost     operator = "le"
	opMatches  operator = "matches"
)

// A scalar is an operand: a text, a number, true, false or null.
type scalar struct {
	kind parse.Kind
	// text is what a string says; else how it is written.
	text string
	// number is what it is as a decimal, if numeric.
	number  decimal
	numeric bool
}

// ParsePredicates reads a list of 1 or more predicates. What is wrong is named relative to it, as
// "[1].pointer"; nil: nothing is. There are at most 64 predicates, those within "all" counted, nested at
// most 8 deep; a regular expression has at most 512 characters and repeats nothing more than 1,000 times,
// and all of them together take less than 10 ms on 64 KiB: they have 24 instructions (a literal character
// is one) but for those that begin with ^ and end; all of it is at most 16 KiB.
func ParsePredicates(raw []byte) (Predicates, []store.FieldError) {
	r := newRuleReader(raw)
	if len(r.Wrong) > 0 {
		return nil, r.Wrong
	}
	list := r.predicates(0, "", 1)
	if len(r.Wrong) > 0 {
		return nil, r.Wrong
	}
	return list, nil
}

// Match says whether any of them is true of the document.
func (ps Predicates) Match(d *Document) bool {
	for i := range ps {
		if ps[i].match(d) {
			return true
		}
	}
	return false
}

func (p *Predicate) match(d *Document) bool {
	switch p.look {
	case lookStatus:
		return p.statuses.has(d.Status)
	case lookAll:
		for i := range p.all {
			if !p.all[i].match(d) {
				return false
			}
		}
		return true
	}
	v, why := p.see(d)
	return why == "" && p.holds(d, v)
}

// see returns the value that the predicate looks at; why says why nothing can be found.
func (p *Predicate) see(d *Document) (v value, why string) {
	if d.spent() {
		return value{}, parse.TooCostly
	}
	if p.look == lookXML {
		return d.element(p.path)
	}
	return d.pointed(p.pointer)
}

// holds says whether the value is as the operator wants it.
func (p *Predicate) holds(d *Document, v value) bool {
	if p.operator == opExists {
		return v.found == p.there
	}
	if !v.found {
		return false
	}
	switch p.operator {
	case opEqual, opIn:
		return v.isOneOf(p.operands)
	case opNotEqual, opNotIn:
		return !v.isOneOf(p.operands)
	case opMatches:
		switch v.kind {
		case parse.String, parse.Number, parse.True, parse.False:
			return p.pattern.match(d, []byte(v.text))
		}
		return false
	}
	return p.inOrder(v)
}

// inOrder compares decimals.
func (p *Predicate) inOrder(v value) bool {
	if v.kind != parse.Number && v.kind != parse.String {
		return false
	}
	number, ok := parseDecimal(v.text)
	if !ok {
		return false
	}
	switch order := number.compare(p.operands[0].number); p.operator {
	case opMore:
		return order > 0
	case opLeast:
		return order >= 0
	case opLess:
		return order < 0
	default:
		return order <= 0
	}
}

// isOneOf says whether the value is one of the operands.
func (v value) isOneOf(operands []scalar) bool {
	untyped := v.untyped && v.kind == parse.String
	var number decimal
	numeric := v.kind == parse.Number || untyped
	if numeric {
		number, numeric = parseDecimal(v.text) // once, however many operands there are
	}
	for _, o := range operands {
		var same bool
		switch {
		case o.kind == parse.Number && (v.kind == parse.Number || untyped):
			same = numeric && o.numeric && number.compare(o.number) == 0
		case untyped && o.kind != parse.Null:
			same = v.text == o.text
		default:
			same = v.kind == o.kind && v.text == o.text
		}
		if same {
			return true
		}
	}
	return false
}
