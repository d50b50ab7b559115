package rule

import (
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// minDeferAfter and maxDeferAfter bound defer_after; mostDefers bounds max_defers.
	minDeferAfter = time.Second
	maxDeferAfter = time.Hour
	MostDefers    = 10_000
	// maxBodyText is how long the text of a body test may be, in characters.
	maxBodyText = 512
)

// A ruleReader reads rules and predicates.
type ruleReader struct {
	*parse.Reader
	// nodes is how many predicates there were, steps what all regular expressions cost together on the
	// longest body.
	nodes, steps int
}

func newRuleReader(raw []byte) *ruleReader { return &ruleReader{Reader: parse.NewReader(raw)} }

// A writtenRule is a rule as a caller wrote it: what was left out is zero.
type writtenRule struct {
	status               statusSet
	body                 bodyTest
	permanentIf, deferIf condition
	deferAfter           time.Duration
	maxDefers            int
}

// ParseRule reads a success rule that is given whole (SPEC §5) and returns it as compact JSON with its members in a fixed order, which
// ParseRule returns unchanged. What is wrong is named relative to the rule, as "status[0]" or "permanent_if.body.json[1].pointer"; the
// field "" is the rule itself. Without "status" it wants 200 to 299; "defer_after" is 1s to 1h (DefaultDeferAfter), "max_defers" 1 to
// 10,000 (DefaultMaxDefers). No status of 1xx or 3xx can be a success: the one is no answer yet, the other never followed. For the limits
// of predicates and regular expressions, see ParsePredicates: they are for the rule as a whole.
func Parse(raw []byte) (store.JSONText, []store.FieldError) {
	w, wrong := readRule(raw)
	if len(wrong) > 0 {
		return "", wrong
	}
	return written(w.text())
}

// written refuses a text that cannot be read again: a few characters are longer in it than a caller may write them.
func written(text store.JSONText) (store.JSONText, []store.FieldError) {
	if len(text) > parse.MaxSettingBytes {
		return "", []store.FieldError{{Message: "is longer than 16 KiB as JSON writes it"}}
	}
	return text, nil
}

// compileRule reads a rule and fills in what it leaves out.
func Compile(raw []byte) (*Rule, []store.FieldError) {
	w, wrong := readRule(raw)
	if len(wrong) > 0 {
		return nil, wrong
	}
	r := &Rule{
		status: w.status, body: w.body, permanentIf: w.permanentIf, deferIf: w.deferIf, DeferAfter: w.deferAfter, MaxDefers: w.maxDefers,
	}
	if r.status == nil {
		r.status = statusSet{{200, 299}}
	}
	if r.DeferAfter == 0 {
		r.DeferAfter = DefaultDeferAfter
	}
	if r.MaxDefers == 0 {
		r.MaxDefers = DefaultMaxDefers
	}
	r.expectedStatus = "status " + r.status.String()
	r.expectedBody = shorten(r.body.expected(), maxSentence)
	r.ReadsBody = r.body.op != bodyNone || r.permanentIf.body.op != bodyNone || r.deferIf.body.op != bodyNone
	return r, nil
}

func readRule(raw []byte) (w writtenRule, wrong []store.FieldError) {
	r := newRuleReader(raw)
	if len(r.Wrong) > 0 {
		return w, r.Wrong
	}
	empty := true
	isObject := r.Members(0, "", func(key, at string, v int32) {
		empty = false
		switch key {
		case "status":
			w.status = r.finalStatuses(v, at, "a success")
		case "body":
			w.body = r.bodyTest(v, at)
		case "permanent_if":
			w.permanentIf = r.condition(v, at)
		case "defer_if":
			w.deferIf = r.condition(v, at)
		case "defer_after":
			w.deferAfter = r.deferAfter(v, at)
		case "max_defers":
			w.maxDefers, _ = r.Integer(v, at, 1, MostDefers)
		default:
			r.Unknown(at, "status", "body", "permanent_if", "defer_if", "defer_after", "max_defers")
		}
	})
	if isObject && empty {
		r.Fail("", "is empty: give status, body, permanent_if or defer_if")
	}
	return w, r.Wrong
}

// finalStatuses reads the statuses of answers that count; what says what others never are.
func (r *ruleReader) finalStatuses(v int32, at, what string) statusSet {
	set := r.statuses(v, at)
	for _, s := range set {
		if s.from < 200 || s.from < 400 && s.to >= 300 {
			r.Fail(at, "%s has statuses of 1xx or 3xx, which are never %s: redirects are not followed", s, what)
		}
	}
	return set
}

// bodyTest reads the test of a body.
func (r *ruleReader) bodyTest(node int32, field string) (t bodyTest) {
	trimAt := ""
	isObject := r.Members(node, field, func(key, at string, v int32) {
		switch op := bodyOp(key); op {
		case bodyEquals, bodyIEquals, bodyContains, bodyPrefix, bodyRegex, bodyJSON:
			if t.op != bodyNone {
				r.Fail(at, "is a second test beside %s; give one", t.op)
				return
			}
			switch t.op = op; op {
			case bodyJSON:
				t.predicates = r.predicates(v, at, 1)
			case bodyRegex:
				t.pattern = r.pattern(v, at)
			default:
				t.text, _ = r.TextOf(v, at, maxBodyText)
			}
		case "trim":
			t.trim, _ = r.Boolean(v, at)
			trimAt = at
		default:
			r.Unknown(at, "equals", "iequals", "contains", "prefix", "regex", "json", "trim")
		}
	})
	switch {
	case !isObject:
	case t.op == bodyNone:
		r.Fail(field, "tests nothing: give equals, iequals, contains, prefix, regex or json")
	case t.op == bodyJSON && trimAt != "":
		r.Fail(trimAt, "does not go with json")
	case t.trim && (t.op == bodyEquals || t.op == bodyIEquals) && strings.TrimSpace(t.text) != t.text:
		r.Fail(parse.Within(field, string(t.op)), "has white space at its ends, which trim takes away from the body")
	}
	return t
}

// condition reads a condition.
func (r *ruleReader) condition(node int32, field string) (c condition) {
	isObject := r.Members(node, field, func(key, at string, v int32) {
		switch key {
		case "status":
			c.status = r.statuses(v, at)
		case "body":
			c.body = r.bodyTest(v, at)
		default:
			r.Unknown(at, "status", "body")
		}
	})
	if isObject && r.First(node) == 0 {
		r.Fail(field, "is empty: give status, body or both")
	}
	return c
}

func (r *ruleReader) deferAfter(v int32, at string) time.Duration {
	if r.Kind(v) == parse.String {
		if d, ok := parseWait(r.Str(v)); ok && d >= minDeferAfter && d <= maxDeferAfter {
			return d
		}
	}
	r.Fail(at, `is a duration from 1s to 1h such as "3s"`)
	return 0
}

// parseWait reads a Go duration that may also have days as its first unit.
func parseWait(s string) (time.Duration, bool) {
	var days float64
	if n, rest, ok := strings.Cut(s, "d"); ok {
		var err error
		if days, err = strconv.ParseFloat(n, 64); err != nil || strings.Trim(n, "0123456789.") != "" || days > 1000 {
			return 0, false
		}
		if s = rest; s == "" {
			s = "0"
		}
	}
	d, err := time.ParseDuration(s)
	return d + time.Duration(days*24*float64(time.Hour)), err == nil
}
