package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxSentence is the maximum length in bytes of a description of what a rule expected or found.
const maxSentence = 512

// Expected describes the predicates for people, such as `/trade_state to be one of "SUCCESS", "CLOSED"`. It
// has at most 512 bytes.
func (ps Predicates) Expected() string {
	return shorten(join(ps, " or "), maxSentence)
}

func join(ps Predicates, word string) string {
	texts := make([]string, len(ps))
	for i := range ps {
		texts[i] = ps[i].expected()
	}
	return strings.Join(texts, word)
}

// shorten cuts a text and marks the cut.
func shorten(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return parse.Cut(s, n-len("…")) + "…"
}

func (p *Predicate) expected() string {
	switch {
	case p.Status != nil:
		return "status " + p.Status.String()
	case p.All != nil:
		return join(p.All, " and ")
	}
	return p.subject() + " " + p.wanted()
}

// wanted describes the operator.
func (p *Predicate) wanted() string {
	switch {
	case p.Exists != nil && *p.Exists:
		return "to exist"
	case p.Exists != nil:
		return "not to exist"
	case p.Equal != nil:
		return "to be " + p.Equal.String()
	case p.In != nil:
		return "to be one of " + joinOperands(p.In)
	case p.NotEqual != nil:
		return "to be other than " + p.NotEqual.String()
	case p.NotIn != nil:
		return "to be none of " + joinOperands(p.NotIn)
	case p.More != nil:
		return "to be more than " + p.More.String()
	case p.Least != nil:
		return "to be at least " + p.Least.String()
	case p.Less != nil:
		return "to be less than " + p.Less.String()
	case p.Most != nil:
		return "to be at most " + p.Most.String()
	}
	return "to match " + strconv.Quote(p.Matches.String())
}

func joinOperands(operands []scalar) string {
	texts := make([]string, len(operands))
	for i, o := range operands {
		texts[i] = o.String()
	}
	return strings.Join(texts, ", ")
}

// subject names the value that the predicate looks at.
func (p *Predicate) subject() string {
	switch {
	case p.XML != nil:
		return p.XML.text
	case p.Pointer.text == "":
		return "the body"
	}
	return p.Pointer.text
}

// String returns the operand for people.
func (s scalar) String() string {
	if s.kind == parse.String {
		return strconv.Quote(shorten(s.text, SawBytes))
	}
	return shorten(s.text, SawBytes)
}

// maxFound is the maximum of values that a description lists.
const maxFound = 4

// saw describes for people what the predicates found, such as `/trade_state is "USERPAYING"`. Credentials
// that the receiver echoes are masked. body describes the body; it is used if the body cannot be parsed.
func (ps Predicates) saw(d *Document, body string, hidden []string) string {
	var found []string
	spent := d.spent()
	ps.describe(d, body, hidden, &found)
	text := cmp.Or(strings.Join(found, ", "), body)
	if spent {
		text = parse.TooCostly + ": " + text
	}
	return shorten(text, maxSentence)
}

// describe appends what the predicates found to found, without duplicates and up to maxFound.
func (ps Predicates) describe(d *Document, body string, hidden []string, found *[]string) {
	for i := range ps {
		p := &ps[i]
		if len(*found) == maxFound {
			return
		}
		var text string
		switch {
		case p.All != nil:
			p.All.describe(d, body, hidden, found)
			continue
		case p.Status != nil:
			text = statusSeen(d.Status)
		default:
			switch v, why := p.lookup(d); why {
			case "":
				text = p.subject() + " " + v.describe(hidden)
			case notJSON, parse.NotXML:
				text = why + ": " + body
			case duplicateKey:
				text = d.describeDuplicateKey(hidden)
			case parse.TooCostly:
				return
			default:
				text = why
			}
		}
		if !slices.Contains(*found, text) {
			*found = append(*found, text)
		}
	}
}

// describe describes a value for people.
func (v value) describe(hidden []string) string {
	if !v.found {
		return "is missing"
	}
	switch {
	case v.kind == parse.Object && v.untyped:
		return "has child elements"
	case v.kind == parse.Object:
		return "is an object"
	case v.kind == parse.Array:
		return "is a list"
	}
	// Mask before the cut: half a credential would not be found.
	text := parse.Scrub(parse.Clean([]byte(v.text)), hidden)
	if v.kind != parse.String {
		return "is " + shorten(text, SawBytes)
	}
	if len(text) > SawBytes {
		return "is " + strconv.Quote(parse.Cut(text, SawBytes)) + "…"
	}
	return "is " + strconv.Quote(text)
}
