package rule

import (
	"bytes"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A bodyOp is what a body test does.
type bodyOp string

const (
	bodyNone     bodyOp = ""
	bodyEquals   bodyOp = "equals"
	bodyIEquals  bodyOp = "iequals"
	bodyContains bodyOp = "contains"
	bodyPrefix   bodyOp = "prefix"
	bodyRegex    bodyOp = "regex"
	bodyJSON     bodyOp = "json"
	// bodyWeChatV3 is no part of the language: the preset's body may be anything but a JSON object with a code that is no success. Its
	// predicates are only told of.
	bodyWeChatV3 bodyOp = "wechat-v3"
)

// A bodyTest is what a rule or a condition wants of a body. The zero one wants nothing. An empty body, one that was not read whole, and
// one that is not in its declared encoding satisfy no test.
type bodyTest struct {
	op   bodyOp
	text string
	// trim: white space around the body does not count.
	trim       bool
	pattern    *pattern
	predicates Predicates
}

func (t *bodyTest) match(d *Document) bool {
	if t.op == bodyWeChatV3 {
		return d.Broken != "" || !d.saysNo()
	}
	if d.Broken != "" || len(d.Text) == 0 {
		return false
	}
	text := d.Text
	if t.trim {
		text = bytes.TrimSpace(text)
	}
	switch t.op {
	case bodyEquals:
		return string(text) == t.text
	case bodyIEquals:
		return equalInAnyCase(text, t.text)
	case bodyContains:
		return bytes.Contains(text, []byte(t.text))
	case bodyPrefix:
		return bytes.HasPrefix(text, []byte(t.text))
	case bodyRegex:
		return t.pattern.match(d, text)
	case bodyJSON:
		return t.predicates.Match(d)
	}
	return false
}

// equalInAnyCase compares without regard to the case of ASCII letters only: Unicode takes more for the same letter (ſ for s) than a
// receiver that says success does.
func equalInAnyCase(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		if parse.Lower(b[i]) != parse.Lower(s[i]) {
			return false
		}
	}
	return true
}

// saysNo says whether the body is a JSON object with a code other than "SUCCESS". Of a code that comes twice each must be that.
func (d *Document) saysNo() bool {
	t := d.anyJSON()
	if t == nil || t.Kind(0) != parse.Object {
		return false
	}
	for c := t.First(0); c != 0; c = t.Next(c) {
		isCode, _ := t.HasKey(c, "code")
		if isCode && (t.Kind(c) != parse.String || t.Str(c) != "SUCCESS") {
			return true
		}
	}
	return false
}

// expected says for people what the test wants.
func (t *bodyTest) expected() string {
	quoted := strconv.Quote(shorten(t.text, SawBytes))
	switch t.op {
	case bodyEquals:
		return "the body to be " + quoted
	case bodyIEquals:
		return "the body to be " + quoted + " in any case"
	case bodyContains:
		return "the body to contain " + quoted
	case bodyPrefix:
		return "the body to begin with " + quoted
	case bodyRegex:
		return "the body to match " + strconv.Quote(shorten(t.pattern.String(), maxPattern))
	case bodyJSON:
		return t.predicates.Expected()
	}
	return ""
}

// saw says for people what the test found.
func (t *bodyTest) saw(d *Document, hidden []string) string {
	body := d.Seen
	judged := d.Broken == "" && len(d.Text) > 0
	if judged && (t.op == bodyJSON || t.op == bodyWeChatV3 && d.anyJSON() != nil) {
		return t.predicates.saw(d, body, hidden)
	}
	if t.op == bodyRegex && d.spent() {
		return parse.TooCostly + ": " + body
	}
	return body
}

// sawBytes is how much of a body, or of a value in it, a rule shows of what it saw.
const SawBytes = 64

func statusSeen(status int) string { return "status " + strconv.Itoa(status) }
