package rule

import (
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// Predicates are a list of conditions. The list matches if one of them matches (SPEC §6). It is read-only and
// safe for concurrent use. A nil list matches nothing.
//
// A predicate looks at one value of an answer:
//
//   - {"pointer": "/trade_state", "in": ["SUCCESS"]} looks at a value of a JSON body, by JSON pointer
//     (RFC 6901).
//   - {"xml": "/xml/trade_state", …} looks at the text of an XML element.
//   - {"status": [404, "500-599"]} looks at the status.
//   - {"all": […]} matches if all its predicates match.
//
// These rules hold for each predicate:
//
//   - A missing value matches only "exists": false. null is not missing.
//   - A body matches nothing, not even "exists": false, if it is incomplete, not JSON (nested at most 10,000
//     deep), not well-formed XML, or has a duplicate key in any object. The same holds for an XML path that
//     several elements have.
//   - eq, ne, in and not_in compare numbers as decimals with all their digits: 1.50 is equal to 1.5. They
//     compare everything else by type and text: the text "1" is not the number 1. A value from XML has no
//     type: if its text is a number, it is compared as one.
//   - gt, ge, lt and le compare decimals. A text that is a decimal, such as "1.50", counts as one.
//   - matches searches for a regular expression (RE2) in a text, a number or a word such as true.
//   - The check of one body may cost 10 ms. When the rule has used that up, no further predicate matches.
//
// A list has 1 or more predicates. A rule has at most 64, those in "all" included, nested at most 8 deep. A
// regular expression has at most 512 characters and repeats nothing more than 1,000 times. All regular
// expressions of a rule together may cost less than 10 ms on 64 KiB: they have at most 24 instructions (a
// literal character is one), except those that begin with ^ and have a bounded length.
type Predicates []Predicate

// A Predicate is one of Predicates. It has one of the first four fields, and one operator for the first two.
type Predicate struct {
	Pointer *pointer   `json:"pointer,omitempty" one:"value to look at" empty:"ok"`
	XML     *xmlPath   `json:"xml,omitempty" one:"value to look at"`
	Status  statusSet  `json:"status,omitempty" one:"value to look at"`
	All     Predicates `json:"all,omitempty" one:"value to look at"`

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
	// maxPredicates and maxPredicateDepth are the limits of a rule.
	maxPredicates     = 64
	maxPredicateDepth = 8
	// maxOperand is the maximum length of an operand in characters.
	maxOperand = 512
)

// limits counts the predicates of a rule, their present depth, and the cost in steps of all regular
// expressions on the longest body.
type limits struct{ predicates, depth, steps int }

// ReadSetting parses a list of predicates.
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
		s.Fail("exceeds the limit of %d predicates in a rule", maxPredicates)
		return
	}
	*ps = make(Predicates, len(elements))
	for i, e := range elements {
		e.Into(&(*ps)[i])
	}
}

// CheckSetting requires one value to look at. A pointer or an XML path also requires an operator.
func (p *Predicate) CheckSetting(s parse.Setting) {
	look := s.First("pointer", "xml", "status", "all")
	operator := s.First("eq", "ne", "in", "not_in", "exists", "gt", "ge", "lt", "le", "matches")
	switch {
	case look == "":
		s.Fail("must have pointer, xml, status or all")
	case look == "status" || look == "all":
		if operator != "" {
			s.In(operator).Fail("cannot be combined with %s", look)
		}
	case operator == "":
		s.Fail("must have an operator: eq, ne, in, not_in, exists, gt, ge, lt, le or matches")
	}
}

// A scalar is an operand: a text, a number, true, false or null.
type scalar struct {
	kind parse.Kind
	// text is the content of a string, or the JSON text of anything else.
	text string
	// number is the value as a decimal if numeric is true.
	number  decimal
	numeric bool
}

// MarshalJSON returns the operand as the caller wrote it.
func (o scalar) MarshalJSON() ([]byte, error) {
	if o.kind == parse.String {
		return parse.Quote(o.text), nil
	}
	return []byte(o.text), nil
}

// ReadSetting parses an operand.
func (o *scalar) ReadSetting(s parse.Setting) { o.read(s) }

// read parses an operand and reports whether it is valid. Numbers are kept as decimals with all their
// digits.
func (o *scalar) read(s parse.Setting) (ok bool) {
	o.kind, o.text = parse.KindOf(s.Raw), s.Plain()
	switch o.kind {
	case parse.Object, parse.Array:
		s.Fail("must be text, a number, true, false or null")
		return false
	case parse.String:
		if o.text != "" { // an empty text is a valid operand
			if _, ok := s.Text(maxOperand); !ok {
				return false
			}
		}
		o.number, o.numeric = parseDecimal(o.text)
	case parse.Number:
		o.number, o.numeric = parseDecimal(o.text)
		if !o.numeric || len(o.text) > maxOperand {
			s.Fail("is a number that is too large or too long")
			return false
		}
	}
	return true
}

// An amount is an operand that must be a decimal.
type amount struct{ scalar }

// ReadSetting parses an amount.
func (o *amount) ReadSetting(s parse.Setting) {
	if o.read(s) && !o.numeric {
		s.Fail(`must be a number, or text with a number such as "1.50"`)
	}
}

// A truth is the value of a predicate in three-valued logic. Polls need it: a failure that could not be
// checked may be true. The order matters: a list is the maximum of its predicates, and "all" is the minimum.
type truth int

const (
	isFalse truth = iota
	// isUnknown means that the document does not decide: it is incomplete or not in its declared encoding,
	// has a duplicate key or element, or costs too much to check.
	isUnknown
	isTrue
)

// Match reports whether any predicate is true.
func (ps Predicates) Match(d *Document) bool { return ps.eval(d, isUnknown) == isTrue }

// evaluate is Match with three values: it distinguishes false from unknown. It checks more predicates and may
// use up the steps, so it may be unknown where Match is true. It is never true where Match is false.
func (ps Predicates) evaluate(d *Document) truth { return ps.eval(d, isFalse) }

// eval returns the truth of the list. An "all" stops at the first predicate that is at most enough. Match
// passes isUnknown, because it only needs to know whether the list is true. evaluate passes isFalse, so that
// false wins over unknown.
func (ps Predicates) eval(d *Document, enough truth) truth {
	most := isFalse
	for i := range ps {
		most = max(most, ps[i].eval(d, enough))
		if most == isTrue {
			break
		}
	}
	return most
}

// eval returns the truth of one predicate, see Predicates.eval.
func (p *Predicate) eval(d *Document, enough truth) truth {
	switch {
	case p.Status != nil:
		return truthOf(p.Status.has(d.Status))
	case p.All != nil:
		least := isTrue
		for i := range p.All {
			least = min(least, p.All[i].eval(d, enough))
			if least <= enough {
				break
			}
		}
		return least
	}
	switch v, why := p.lookup(d); {
	case why == notJSON || why == parse.NotXML:
		return isFalse // a body of another format does not have the value
	case why != "":
		return isUnknown
	case p.satisfies(d, v):
		return isTrue
	case p.Matches != nil && v.found && d.spent():
		return isUnknown
	}
	return isFalse
}

func truthOf(yes bool) truth {
	if yes {
		return isTrue
	}
	return isFalse
}

// lookup returns the value that the predicate looks at. If it is unknown, why is the reason.
func (p *Predicate) lookup(d *Document) (v value, why string) {
	if d.spent() {
		return value{}, parse.TooCostly
	}
	if p.XML != nil {
		return d.elementText(p.XML)
	}
	return d.valueAt(p.Pointer)
}

// satisfies reports whether the value satisfies the operator.
func (p *Predicate) satisfies(d *Document, v value) bool {
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

// isOneOf reports whether the value is equal to one of the operands.
func (v value) isOneOf(operands ...scalar) bool {
	untyped := v.untyped && v.kind == parse.String
	var number decimal
	numeric := v.kind == parse.Number || untyped
	if numeric {
		number, numeric = parseDecimal(v.text) // once for all operands
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
