package rule

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// maxSentence is how long what a rule expected, or saw, may be for people, in bytes.
const maxSentence = 512

// Expected returns what they want, for people: `/trade_state to be one of "SUCCESS", "CLOSED"`, at most 512
// bytes.
func (ps Predicates) Expected() string {
	return shorten(joined(ps, " or "), maxSentence)
}

func joined(ps Predicates, word string) string {
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
	switch {
	case p.Status != nil:
		return "status " + p.Status.String()
	case p.All != nil:
		return joined(p.All, " and ")
	}
	return p.place() + " " + p.wanted()
}

// wanted is what the operator wants.
func (p *Predicate) wanted() string {
	switch {
	case p.Exists != nil && *p.Exists:
		return "to be there"
	case p.Exists != nil:
		return "not to be there"
	case p.Equal != nil:
		return "to be " + p.Equal.String()
	case p.In != nil:
		return "to be one of " + listed(p.In)
	case p.NotEqual != nil:
		return "to be other than " + p.NotEqual.String()
	case p.NotIn != nil:
		return "to be none of " + listed(p.NotIn)
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

func listed(operands []scalar) string {
	texts := make([]string, len(operands))
	for i, o := range operands {
		texts[i] = o.String()
	}
	return strings.Join(texts, ", ")
}

// place names what the predicate looks at.
func (p *Predicate) place() string {
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

// maxSeen is how many values are told of what predicates saw.
const maxSeen = 4

// saw returns what they found, for people: `/trade_state is "USERPAYING"`. Credentials that the receiver
// echoes are masked. body describes the body, for where it could not be read.
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
		switch {
		case p.All != nil:
			p.All.tell(d, body, hidden, told)
			continue
		case p.Status != nil:
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
