package rule

import (
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

const (
	// maxPredicates and maxPredicateDepth bound what a rule looks at.
	maxPredicates     = 64
	maxPredicateDepth = 8
	// maxOperands is how many values in and not_in may list; maxOperand, how long each may be, in characters.
	maxOperands = 100
	maxOperand  = 512
)

// predicates reads a list of them.
func (r *ruleReader) predicates(node int32, field string, depth int) Predicates {
	if depth > maxPredicateDepth {
		r.Fail(field, "is nested more than %d deep", maxPredicateDepth)
		return nil
	}
	elements := r.List(node, field, maxPredicates)
	if r.nodes += len(elements); r.nodes > maxPredicates {
		r.Fail(field, "makes it more than %d predicates", maxPredicates)
		return nil
	}
	list := make(Predicates, len(elements))
	for i, c := range elements {
		list[i] = r.predicate(c, parse.Indexed(field, i), depth)
	}
	return list
}

// predicate reads one.
func (r *ruleReader) predicate(node int32, field string, depth int) (p Predicate) {
	isObject := r.Members(node, field, func(key, at string, v int32) {
		switch look(key) {
		case lookPointer, lookXML, lookStatus, lookAll:
			if p.look != "" {
				r.Fail(at, "is a second thing to look at beside %s; give one", p.look)
				return
			}
			p.look = look(key)
			r.lookAt(&p, v, at, depth)
			return
		}
		switch operator(key) {
		case opEqual, opNotEqual, opIn, opNotIn, opExists, opMore, opLeast, opLess, opMost, opMatches:
			if p.operator != "" {
				r.Fail(at, "is a second operator beside %s; give one", p.operator)
				return
			}
			p.operator = operator(key)
			r.operand(&p, v, at)
		default:
			r.Unknown(at, "pointer", "xml", "status", "all", "eq", "ne", "in", "not_in", "exists", "gt", "ge", "lt", "le", "matches")
		}
	})
	if !isObject {
		return p
	}
	switch p.look {
	case "":
		r.Fail(field, "looks at nothing: give pointer, xml, status or all")
	case lookStatus, lookAll:
		if p.operator != "" {
			r.Fail(parse.Within(field, string(p.operator)), "does not go with %s", p.look)
		}
	default:
		if p.operator == "" {
			r.Fail(field, "has no operator: give eq, ne, in, not_in, exists, gt, ge, lt, le or matches")
		}
	}
	return p
}

// lookAt reads what a predicate looks at.
func (r *ruleReader) lookAt(p *Predicate, v int32, at string, depth int) {
	var why string
	switch p.look {
	case lookStatus:
		p.statuses = r.statuses(v, at)
		return
	case lookAll:
		p.all = r.predicates(v, at, depth+1)
		return
	case lookPointer:
		if r.Kind(v) == parse.String && r.Str(v) == "" {
			return // the whole document
		}
		if text, ok := r.TextOf(v, at, maxPointer); ok {
			p.pointer, why = parsePointer(text)
		}
	case lookXML:
		if text, ok := r.TextOf(v, at, maxXMLPath); ok {
			p.path, why = parseXMLPath(text)
		}
	}
	if why != "" {
		r.Fail(at, "%s", why)
	}
}

// operand reads what a predicate compares with.
func (r *ruleReader) operand(p *Predicate, v int32, at string) {
	switch p.operator {
	case opExists:
		p.there, _ = r.Boolean(v, at)
	case opMatches:
		p.pattern = r.pattern(v, at)
	case opIn, opNotIn:
		for i, c := range r.List(v, at, maxOperands) {
			if s, ok := r.scalar(c, parse.Indexed(at, i)); ok {
				p.operands = append(p.operands, s)
			}
		}
	default:
		s, ok := r.scalar(v, at)
		if !ok {
			return
		}
		p.operands = []scalar{s}
		if !s.numeric && !slices.Contains([]operator{opEqual, opNotEqual}, p.operator) {
			r.Fail(at, `is a number, or a text that is one such as "1.50"`)
		}
	}
}

// scalar reads an operand.
func (r *ruleReader) scalar(node int32, field string) (s scalar, ok bool) {
	s.kind = r.Kind(node)
	switch s.kind {
	case parse.Object, parse.Array:
		r.Fail(field, "is a text, a number, true, false or null")
		return scalar{}, false
	case parse.String:
		if r.Str(node) != "" { // an empty text is something to compare with
			if s.text, ok = r.TextOf(node, field, maxOperand); !ok {
				return scalar{}, false
			}
		}
	default:
		s.text = string(r.Raw(node))
	}
	if s.kind == parse.String || s.kind == parse.Number {
		s.number, s.numeric = parseDecimal(s.text)
	}
	if s.kind == parse.Number && (!s.numeric || len(s.text) > maxOperand) {
		r.Fail(field, "is a number beyond all measure")
		return scalar{}, false
	}
	return s, true
}
