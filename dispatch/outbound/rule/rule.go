// Package rule judges answers: success rules (a preset or one that was given whole), the rules of polls, and
// the small language of predicates that both are written in.
//
//   - Parse and ParsePoll read a rule, name everything that is wrong with it, and return its one spelling,
//     which is kept.
//   - Compile and CompilePoll make of that text what concludes. What is compiled is read-only.
//   - A conclusion costs at most 10 ms of CPU time, whatever the rule and the body.
//
// The package sees a status and a body as text. It knows no HTTP, keeps nothing, and does not decide what
// follows.
package rule

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// DefaultDeferAfter is the least wait for a receiver that is busy with the same business key, unless its
	// rule says otherwise.
	DefaultDeferAfter = 3 * time.Second
	// DefaultMaxDefers is how often a callback is put off for it, uncharged, unless its rule says otherwise.
	DefaultMaxDefers = 100
	// MostDefers is the greatest max_defers.
	MostDefers = 10_000

	// minDeferAfter and maxDeferAfter bound defer_after.
	minDeferAfter = time.Second
	maxDeferAfter = time.Hour
)

// A Rule is a success rule: what a caller wrote, or, once compiled, with what was left out. It is read-only
// then.
type Rule struct {
	Status statusSet `json:"status,omitempty" final:"a success"`
	Body   *bodyTest `json:"body,omitempty"`
	// PermanentIf ends the callback, DeferIf puts it off.
	PermanentIf *condition `json:"permanent_if,omitempty"`
	DeferIf     *condition `json:"defer_if,omitempty"`
	// DeferAfter and MaxDefers say how a receiver that is busy is waited for.
	DeferAfter wait `json:"defer_after,omitempty"`
	MaxDefers  int  `json:"max_defers,omitempty" range:"1 10000"`

	// expectedStatus and expectedBody tell people what it wants.
	expectedStatus, expectedBody string
}

// Parse reads a success rule that is given whole (SPEC §5) and returns it as compact JSON with its members in
// a fixed order, which Parse returns unchanged. What is wrong is named relative to the rule, as "status[0]"
// or "permanent_if.body.json[1].pointer"; the field "" is the rule itself. Without "status" it wants 200 to
// 299; "defer_after" is 1s to 1h (DefaultDeferAfter), "max_defers" 1 to 10,000 (DefaultMaxDefers). No status
// of 1xx or 3xx can be a success: the one is no answer yet, the other never followed. For the limits of
// predicates and regular expressions, see Predicates: they are for the rule as a whole.
func Parse(raw []byte) (store.JSONText, []store.FieldError) { return written(raw, new(Rule)) }

// written reads a rule and returns its one spelling. It refuses a text that cannot be read again: a few
// characters are longer in it than a caller may write them.
func written(raw []byte, rule any) (store.JSONText, []store.FieldError) {
	if wrong := parse.Decode(raw, rule, new(limits)); len(wrong) > 0 {
		return "", wrong
	}
	text, err := parse.Encode(rule)
	switch {
	case err != nil:
		return "", []store.FieldError{{Message: "cannot be written as JSON"}}
	case len(text) > parse.MaxSettingBytes:
		return "", []store.FieldError{{Message: "is longer than 16 KiB as JSON writes it"}}
	}
	return store.JSONText(text), nil
}

// Compile reads a rule and fills in what it leaves out.
func Compile(raw []byte) (*Rule, []store.FieldError) {
	r := new(Rule)
	if wrong := parse.Decode(raw, r, new(limits)); len(wrong) > 0 {
		return nil, wrong
	}
	if r.Status == nil {
		r.Status = statusSet{{200, 299}}
	}
	r.DeferAfter = cmp.Or(r.DeferAfter, wait(DefaultDeferAfter))
	r.MaxDefers = cmp.Or(r.MaxDefers, DefaultMaxDefers)
	r.expectedStatus = "status " + r.Status.String()
	r.expectedBody = shorten(r.Body.expected(), maxSentence)
	return r, nil
}

// CheckSetting refuses a rule that says nothing.
func (r *Rule) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give status, body, permanent_if or defer_if")
	}
}

// ReadsBody says whether the body of an answer matters to the rule.
func (r *Rule) ReadsBody() bool {
	return r.Body != nil || r.PermanentIf.readsBody() || r.DeferIf.readsBody()
}

// A Conclusion is what a success rule makes of an answer.
type Conclusion int

// The conclusions. What puts the callback off comes before what ends it, and both before what is a success:
// they are exceptions that a rule makes for the answers that they name.
const (
	Deferred Conclusion = iota
	Permanent
	WrongStatus
	WrongBody
	Successful
)

// Conclude says what the rule makes of an answer. The store.Rule is nil for a success that only the status
// decided: there is nothing to explain.
func (r *Rule) Conclude(name string, d *Document, hidden []string) (Conclusion, *store.Rule) {
	switch {
	case r.DeferIf.match(d):
		return Deferred, r.DeferIf.explain(name, "defer_if", d, hidden)
	case r.PermanentIf.match(d):
		return Permanent, r.PermanentIf.explain(name, "permanent_if", d, hidden)
	case !r.Status.has(d.Status):
		return WrongStatus, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(d.Status)}
	case r.Body == nil:
		return Successful, nil
	}
	conclusion := WrongBody
	if r.Body.match(d) {
		conclusion = Successful
	}
	return conclusion, &store.Rule{Name: name, Expected: r.expectedBody, Saw: r.Body.saw(d, hidden)}
}

// A condition is true of an answer whose status is in the set, if it has one, and whose body passes the test,
// if it has one. The nil one is true of nothing.
type condition struct {
	Status statusSet `json:"status,omitempty"`
	Body   *bodyTest `json:"body,omitempty"`
}

// CheckSetting refuses a condition that says nothing.
func (c *condition) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give status, body or both")
	}
}

func (c *condition) readsBody() bool { return c != nil && c.Body != nil }

func (c *condition) match(d *Document) bool {
	return c != nil && (c.Status == nil || c.Status.has(d.Status)) && (c.Body == nil || c.Body.match(d))
}

// explain tells people that the condition is true, and of what.
func (c *condition) explain(name, field string, d *Document, hidden []string) *store.Rule {
	var expected, saw []string
	if c.Status != nil {
		expected, saw = append(expected, "status "+c.Status.String()), append(saw, statusSeen(d.Status))
	}
	if c.Body != nil {
		expected, saw = append(expected, c.Body.expected()), append(saw, c.Body.saw(d, hidden))
	}
	return &store.Rule{
		Name:     name,
		Expected: shorten(field+" not to be true: "+strings.Join(expected, " and "), maxSentence),
		Saw:      shorten(strings.Join(saw, ", "), maxSentence),
	}
}

// A wait is how long a receiver that is busy is left alone.
type wait time.Duration

// ReadSetting reads a duration.
func (w *wait) ReadSetting(s parse.Setting) {
	d, ok := parseWait(s.Plain())
	if !s.IsText() || !ok || d < minDeferAfter || d > maxDeferAfter {
		s.Fail(`is a duration from 1s to 1h such as "3s"`)
		return
	}
	*w = wait(d)
}

// MarshalText prints a duration as shortly as it can be read.
func (w wait) MarshalText() ([]byte, error) {
	s := time.Duration(w).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return []byte(s), nil
}

// parseWait reads a Go duration that may also have days as its first unit.
func parseWait(s string) (time.Duration, bool) {
	var days float64
	if n, rest, ok := strings.Cut(s, "d"); ok {
		var err error
		days, err = strconv.ParseFloat(n, 64)
		if err != nil || strings.Trim(n, "0123456789.") != "" ||
			days > 1000 {
			return 0, false
		}
		s = rest
		if s == "" {
			s = "0"
		}
	}
	d, err := time.ParseDuration(s)
	return d + time.Duration(days*24*float64(time.Hour)), err == nil
}
