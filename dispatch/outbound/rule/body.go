package rule

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
)

// A bodyTest is the one test of a body in a rule or a condition. A body that is empty, incomplete or not in
// its declared encoding passes no test. A nil bodyTest means that the body is not tested.
type bodyTest struct {
	Equals   string     `json:"equals,omitempty" one:"test" most:"512"`
	IEquals  string     `json:"iequals,omitempty" one:"test" most:"512"`
	Contains string     `json:"contains,omitempty" one:"test" most:"512"`
	Prefix   string     `json:"prefix,omitempty" one:"test" most:"512"`
	Regex    *pattern   `json:"regex,omitempty" one:"test"`
	JSON     Predicates `json:"json,omitempty" one:"test"`
	// Trim ignores white space around the body.
	Trim bool `json:"trim,omitempty"`
	// weChatV3 is the test of the preset wechat-v3, which callers cannot write: a JSON object with a code
	// other than "SUCCESS" fails, and any other body passes. Then JSON only serves to describe the code.
	weChatV3 bool
}

// CheckSetting requires one test and checks that trim fits it.
func (t *bodyTest) CheckSetting(s parse.Setting) {
	test, equal := s.First("equals", "iequals", "contains", "prefix", "regex", "json"), t.Equals+t.IEquals
	switch {
	case test == "":
		s.Fail("must have equals, iequals, contains, prefix, regex or json")
	case test == "json" && s.Has("trim"):
		s.In("trim").Fail("cannot be combined with json")
	case t.Trim && strings.TrimSpace(equal) != equal:
		s.In(test).Fail("must not begin or end with white space, because trim removes it from the body")
	}
}

// match reports whether the body passes the test. It is false if the body cannot be tested, except for
// wechat-v3.
func (t *bodyTest) match(d *Document) bool {
	if t.weChatV3 {
		return d.Broken != "" || !d.hasOtherCode()
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

// equalInAnyCase ignores the case of ASCII letters only. Unicode case folding would also accept other
// letters, such as ſ for s.
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

// hasOtherCode reports whether the body is a JSON object with a code other than "SUCCESS". If the code is a
// duplicate key, each must be "SUCCESS".
func (d *Document) hasOtherCode() bool {
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

// expected describes for people what the test wants.
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

// saw describes for people what the test found.
func (t *bodyTest) saw(d *Document, hidden []string) string {
	testable := d.Broken == "" && len(d.Text) > 0
	if testable && (!t.weChatV3 && t.JSON != nil || t.weChatV3 && d.anyJSON() != nil) {
		return t.JSON.saw(d, d.Seen, hidden)
	}
	if t.Regex != nil && d.spent() {
		return parse.TooCostly + ": " + d.Seen
	}
	return d.Seen
}

// SawBytes is the maximum of bytes of a body, or of a value in it, in a description.
const SawBytes = 64

func statusSeen(status int) string { return "status " + strconv.Itoa(status) }
