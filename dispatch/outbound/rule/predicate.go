package rule

import (
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// Predicates are a list of which any one suffices (SPEC §6). They are read-only and safe for concurrent use.
// The nil one matches nothing.
//
// A predicate looks at one value of an answer: {"pointer": "/trade_state", "in": ["SUCCESS"]} at one of a
// JSON body, by JSON pointer (RFC 6901); {"xml": "/xml/trade_state", …} at the text of an XML element;
// {"status": [404, "500-599"]} at the status. {"all": […]} is true if all of its own are. What holds for each
// of them:
//
//   - A value that is not there satisfies nothing but "exists": false. null is there.
//   - A body that is not whole, not JSON (nested at most 10,000 deep), not well-formed XML, or that has a key
//     twice in any object,
//     satisfies nothing, not even "exists": false. Nor does a path that several XML elements have.
//   - eq, ne, in and not_in compare numbers as decimals with all their digits (1.50 is 1.5), everything else
//     by type and letter: the text
//     "1" is not the number 1. A value from XML has no type: a number there is compared as one.
//   - gt, ge, lt and le compare decimals; a text that is one, such as "1.50", counts as well.
//   - matches looks for a regular expression (RE2) anywhere in a text, a number or a word such as true.
//   - What a rule costs on one body is bounded (10 ms). Once that is used up, nothing is looked at any more.
//
// A list has 1 or more predicates. There are at most 64 in a rule, those within "all" counted, nested at most
// 8 deep; a regular expression has at most 512 characters and repeats nothing more than 1,000 times, and all
// of them together take less than 10 ms on 64 KiB: they have 24 instructions (a literal character is one) but
// for those that begin with ^ and end.
type Predicates []Predicate

// A Predicate is one of Predicates.
type Predicate struct {
	Pointer *pointer   `json:"pointer,omitempty" one:"thing to look at" empty:"ok"`
	XML     *xmlPath   `json:"xml,omitempty" one:"thing to look at"`
	Status  statusSet  `json:"status,omitempty" one:"thing to look at"`
	All     Predicates `json:"all,omitempty" one:"thing to look at"`

	Equal    *scalar  `json:"eq,omitempty" one:"operator"`
	NotEqual *scalar  `json:"ne,omitempty" one:"operator"`
	In       []scalar `json:"in,omitempty" one:"operator" most:"100"`
	NotIn    []scalar `json:"not_in,omitempty" one:"operator" most:"100"`
	Exists   *bool    `json:"exists,omitempty" one:"operator"`
	More     *amount  `json:"gt,omitempty" one:"operator"`
	Least    *amount  `json:"ge,omitempty" one:"operator"`
	Less     *amount  `json:"lt,omitempty" one:"operator"`
	Most     *amount  `json:"le,omitempty" one:"operator"`
	Matches  *pattern `json:"matches,omitempty" one:"operator"`
}

const (
	// maxPredicates and maxPredicateDepth bound what a rule looks at.
	maxPredicates     = 64
	maxPredicateDepth = 8
	// maxOperand is how long an operand may be, in characters.
	maxOperand = 512
)

// limits count over a rule how many predicates it has, how deep they are nested, and what all regular
// expressions cost together on the longest body.
type limits struct{ predicates, depth, steps int }

// ReadSetting reads a list of predicates.
func (ps *Predicates) ReadSetting(s parse.Setting) {
	l := s.Shared.(*limits)
	if l.depth == maxPredicateDepth {
		s.Fail("is nested more than %d deep", maxPredicateDepth)
		return
	}
	l.depth++
	defer func() { l.depth-- }()
	elements := s.List(maxPredicates)
	l.predicates += len(elements)
	if l.predicates > maxPredicates {
		s.Fail("makes it more than %d predicates", maxPredicates)
		return
	}
	*ps = make(Predicates, len(elements))
	for i, e := range elements {
		e.Into(&(*ps)[i])
	}
}

// CheckSetting asks for one thing to look at and, where that is a value, for an operator.
func (p *Predicate) CheckSetting(s parse.Setting) {
	look := s.First("pointer", "xml", "status", "all")
	operator := s.First("eq", "ne", "in", "not_in", "exists", "gt", "ge", "lt", "le", "matches")
	switch {
	case look == "":
		s.Fail("looks at nothing: give pointer, xml, status or all")
	case look == "status" || look == "all":
		if operator != "" {
			s.In(operator).Fail("does not go with %s", look)
		}
	case operator == "":
		s.Fail("has no operator: give eq, ne, in, not_in, exists, gt, ge, lt, le or matches")
	}
}

// A scalar is an operand: a text, a number, true, false or null.
type scalar struct {
	kind parse.Kind
	// text is what a string says; else how it is written.
	text string
	// number is what it is as a decimal, if numeric.
	number  decimal
	numeric bool
}

// MarshalJSON writes it as it was given.
func (o scalar) MarshalJSON() ([]byte, error) {
	if o.kind == parse.String {
		return parse.Quote(o.text), nil
	}
	return []byte(o.text), nil
}

// ReadSetting reads an operand.
func (o *scalar) ReadSetting(s parse.Setting) { o.read(s) }

func (o *scalar) read(s parse.Setting) (ok bool) {
	o.kind, o.text = parse.KindOf(s.Raw), s.Plain()
	switch o.kind {
	case parse.Object, parse.Array:
		s.Fail("is a text, a number, true, false or null")
		return false
	case parse.String:
		if o.text != "" { // an empty text is something to compare with
			if _, ok := s.Text(maxOperand); !ok {
				return false
			}
		}
		o.number, o.numeric = parseDecimal(o.text)
	case parse.Number:
		o.number, o.numeric = parseDecimal(o.text)
		if !o.numeric || len(o.text) > maxOperand {
			s.Fail("is a number beyond all measure")
			return false
		}
	}
	return true
}

// An amount is an operand that is a decimal.
type amount struct{ scalar }

// ReadSetting reads an amount.
func (o *amount) ReadSetting(s parse.Setting) {
	if o.read(s) && !o.numeric {
		s.Fail(`is a number, or a text that is one such as "1.50"`)
	}
}

// A truth is what can be said of predicates where "not true" is not enough: that a failure was not seen does
// not mean that there is none. The order counts: a list is as true as the truest of its own, and "all" as the
// least true.
type truth int

const (
	isFalse truth = iota
	// isUnsure: the document does not tell. It is not whole or not what it is declared to be, has a key or
	// an element twice, or is too much for the rule.
	isUnsure
	isTrue
)

// Match says whether any of them is true of the document.
func (ps Predicates) Match(d *Document) bool { return ps.weigh(d, isUnsure) == isTrue }

// judge is Match, but tells what is not true from what cannot be known. It looks at more, so that it may be
// unsure where Match says true, not the other way round.
func (ps Predicates) judge(d *Document) truth { return ps.weigh(d, isFalse) }

// weigh says how true the list is. What "all" has within is looked at until it is no truer than enough.
func (ps Predicates) weigh(d *Document, enough truth) truth {
	most := isFalse
	for i := range ps {
		most = max(most, ps[i].weigh(d, enough))
		if most == isTrue {
			break
		}
	}
	return most
}

func (p *Predicate) weigh(d *Document, enough truth) truth {
	switch {
	case p.Status != nil:
		return truthOf(p.Status.has(d.Status))
	case p.All != nil:
		least := isTrue
		for i := range p.All {
			least = min(least, p.All[i].weigh(d, enough))
			if least <= enough {
				break
			}
		}
		return least
	}
	switch v, why := p.see(d); {
	case why == notJSON || why == parse.NotXML:
		return isFalse // what is looked for is not in there
	case why != "":
		return isUnsure
	case p.holds(d, v):
		return isTrue
	case p.Matches != nil && v.found && d.spent():
		return isUnsure
	}
	return isFalse
}

func truthOf(yes bool) truth {
	if yes {
		return isTrue
	}
	return isFalse
}

// see returns the value that the predicate looks at; why says why nothing can be found.
func (p *Predicate) see(d *Document) (v value, why string) {
	if d.spent() {
		return value{}, parse.TooCostly
	}
	if p.XML != nil {
		return d.element(p.XML)
	}
	return d.pointed(p.Pointer)
}

// holds says whether the value is as the operator wants it.
func (p *Predicate) holds(d *Document, v value) bool {
	switch {
	case p.Exists != nil:
		return v.found == *p.Exists
	case !v.found:
		return false
	case p.Equal != nil:
		return v.isOneOf(*p.Equal)
	case p.NotEqual != nil:
		return !v.isOneOf(*p.NotEqual)
	case p.In != nil:
		return v.isOneOf(p.In...)
	case p.NotIn != nil:
		return !v.isOneOf(p.NotIn...)
	case p.Matches != nil:
		return v.kind != parse.Object && v.kind != parse.Array && v.kind != parse.Null &&
			p.Matches.match(d, []byte(v.text))
	case v.kind != parse.Number && v.kind != parse.String:
		return false
	}
	switch number, ok := parseDecimal(v.text); {
	case !ok:
		return false
	case p.More != nil:
		return number.compare(p.More.number) > 0
	case p.Least != nil:
		return number.compare(p.Least.number) >= 0
	case p.Less != nil:
		return number.compare(p.Less.number) < 0
	default:
		return number.compare(p.Most.number) <= 0
	}
}

// isOneOf says whether the value is one of the operands.
func (v value) isOneOf(operands ...scalar) bool {
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
