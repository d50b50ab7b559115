package outbound

import "slices"

const (
	// maxPredicates and maxPredicateDepth bound what a rule looks at.
	maxPredicates     = 64
	maxPredicateDepth = 8
	// maxOperands is how many values in and not_in may list; maxOperand, how long each may be, in characters.
	maxOperands = 100
	maxOperand  = 512
)

// predicates reads a list of them.
func (r *jsonReader) predicates(node int32, field string, depth int) Predicates {
	if depth > maxPredicateDepth {
		r.fail(field, "is nested more than %d deep", maxPredicateDepth)
		return nil
	}
	elements := r.list(node, field, maxPredicates)
	if r.nodes += len(elements); r.nodes > maxPredicates {
		r.fail(field, "makes it more than %d predicates", maxPredicates)
		return nil
	}
	list := make(Predicates, len(elements))
	for i, c := range elements {
		list[i] = r.predicate(c, indexed(field, i), depth)
	}
	return list
}

// predicate reads one.
func (r *jsonReader) predicate(node int32, field string, depth int) (p Predicate) {
	isObject := r.members(node, field, func(key, at string, v int32) {
		switch look(key) {
		case lookPointer, lookXML, lookStatus, lookAll:
			if p.look != "" {
				r.fail(at, "is a second thing to look at beside %s; give one", p.look)
				return
			}
			p.look = look(key)
			r.lookAt(&p, v, at, depth)
			return
		}
		switch operator(key) {
		case opEqual, opNotEqual, opIn, opNotIn, opExists, opMore, opLeast, opLess, opMost, opMatches:
			if p.operator != "" {
				r.fail(at, "is a second operator beside %s; give one", p.operator)
				return
			}
			p.operator = operator(key)
			r.operand(&p, v, at)
		default:
			r.unknown(at, "pointer", "xml", "status", "all", "eq", "ne", "in", "not_in", "exists", "gt", "ge", "lt", "le", "matches")
		}
	})
	if !isObject {
		return p
	}
	switch p.look {
	case "":
		r.fail(field, "looks at nothing: give pointer, xml, status or all")
	case lookStatus, lookAll:
		if p.operator != "" {
			r.fail(within(field, string(p.operator)), "does not go with %s", p.look)
		}
	default:
		if p.operator == "" {
			r.fail(field, "has no operator: give eq, ne, in, not_in, exists, gt, ge, lt, le or matches")
		}
	}
	return p
}

// lookAt reads what a predicate looks at.
func (r *jsonReader) lookAt(p *Predicate, v int32, at string, depth int) {
	var why string
	switch p.look {
	case lookStatus:
		p.statuses = r.statuses(v, at)
		return
	case lookAll:
		p.all = r.predicates(v, at, depth+1)
		return
	case lookPointer:
		if r.kind(v) == jsonString && r.str(v) == "" {
			return // the whole document
		}
		if text, ok := r.textOf(v, at, maxPointer); ok {
			p.pointer, why = parsePointer(text)
		}
	case lookXML:
		if text, ok := r.textOf(v, at, maxXMLPath); ok {
			p.path, why = parseXMLPath(text)
		}
	}
	if why != "" {
		r.fail(at, "%s", why)
	}
}

// operand reads what a predicate compares with.
func (r *jsonReader) operand(p *Predicate, v int32, at string) {
	switch p.operator {
	case opExists:
		p.there, _ = r.boolean(v, at)
	case opMatches:
		p.pattern = r.pattern(v, at)
	case opIn, opNotIn:
		for i, c := range r.list(v, at, maxOperands) {
			if s, ok := r.scalar(c, indexed(at, i)); ok {
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
			r.fail(at, `is a number, or a text that is one such as "1.50"`)
		}
	}
}

// scalar reads an operand.
func (r *jsonReader) scalar(node int32, field string) (s scalar, ok bool) {
	s.kind = r.kind(node)
	switch s.kind {
	case jsonObject, jsonArray:
		r.fail(field, "is a text, a number, true, false or null")
		return scalar{}, false
	case jsonString:
		if r.str(node) != "" { // an empty text is something to compare with
			if s.text, ok = r.textOf(node, field, maxOperand); !ok {
				return scalar{}, false
			}
		}
	default:
		s.text = string(r.raw(node))
	}
	if s.kind == jsonString || s.kind == jsonNumber {
		s.number, s.numeric = parseDecimal(s.text)
	}
	if s.kind == jsonNumber && (!s.numeric || len(s.text) > maxOperand) {
		r.fail(field, "is a number beyond all measure")
		return scalar{}, false
	}
	return s, true
}
