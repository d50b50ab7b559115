package rule

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A bodyTest is what a rule or a condition wants of a body: one test. An empty body, one that was not read
// whole, and one that is not in its declared encoding satisfy no test. The nil one is for rules that want
// nothing.
type bodyTest struct {
	Equals   string     `json:"equals,omitempty" one:"test" most:"512"`
	IEquals  string     `json:"iequals,omitempty" one:"test" most:"512"`
	Contains string     `json:"contains,omitempty" one:"test" most:"512"`
	Prefix   string     `json:"prefix,omitempty" one:"test" most:"512"`
	Regex    *pattern   `json:"regex,omitempty" one:"test"`
	JSON     Predicates `json:"json,omitempty" one:"test"`
	// Trim: white space around the body does not count.
	Trim bool `json:"trim,omitempty"`
	// weChatV3 is no part of the language: the preset's body may be anything but a JSON object with a code
	// that is no success. Its predicates are only told of.
	weChatV3 bool
}

// CheckSetting looks for the test, and at trim beside it.
func (t *bodyTest) CheckSetting(s parse.Setting) {
	test, equal := s.First("equals", "iequals", "contains", "prefix", "regex", "json"), t.Equals+t.IEquals
	switch {
	case test == "":
		s.Fail("tests nothing: give equals, iequals, contains, prefix, regex or json")
	case test == "json" && s.Has("trim"):
		s.In("trim").Fail("does not go with json")
	case t.Trim && strings.TrimSpace(equal) != equal:
		s.In(test).Fail("has white space at its ends, which trim takes away from the body")
	}
}

func (t *bodyTest) match(d *Document) bool {
	if t.weChatV3 {
		return d.Broken != "" || !d.saysNo()
	}
	if d.Broken != "" || len(d.Text) == 0 {
		return false
	}
	text := d.Text
	if t.Trim {
		text = bytes.TrimSpace(text)
	}
	switch {
	case t.Equals != "":
		return string(text) == t.Equals
	case t.IEquals != "":
		return equalInAnyCase(text, t.IEquals)
	case t.Contains != "":
		return bytes.Contains(text, []byte(t.Contains))
	case t.Prefix != "":
		return bytes.HasPrefix(text, []byte(t.Prefix))
	case t.Regex != nil:
		return t.Regex.match(d, text)
	}
	return t.JSON.Match(d)
}

// equalInAnyCase compares without regard to the case of ASCII letters only: Unicode takes more for the same
// letter (ſ for s) than a receiver that says success does.
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

// saysNo says whether the body is a JSON object with a code other than "SUCCESS". Of a code that comes twice
// each must be that.
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
	if t == nil {
		return ""
	}
	quoted := func(text string) string { return strconv.Quote(shorten(text, SawBytes)) }
	switch {
	case t.Equals != "":
		return "the body to be " + quoted(t.Equals)
	case t.IEquals != "":
		return "the body to be " + quoted(t.IEquals) + " in any case"
	case t.Contains != "":
		return "the body to contain " + quoted(t.Contains)
	case t.Prefix != "":
		return "the body to begin with " + quoted(t.Prefix)
	case t.Regex != nil:
		return "the body to match " + strconv.Quote(shorten(t.Regex.String(), maxPattern))
	}
	return t.JSON.Expected()
}

// saw says for people what the test found.
func (t *bodyTest) saw(d *Document, hidden []string) string {
	judged := d.Broken == "" && len(d.Text) > 0
	if judged && (!t.weChatV3 && t.JSON != nil || t.weChatV3 && d.anyJSON() != nil) {
		return t.JSON.saw(d, d.Seen, hidden)
	}
	if t.Regex != nil && d.spent() {
		return parse.TooCostly + ": " + d.Seen
	}
	return d.Seen
}

// SawBytes is how much of a body, or of a value in it, a rule shows of what it saw.
const SawBytes = 64

func statusSeen(status int) string { return "status " + strconv.Itoa(status) }
