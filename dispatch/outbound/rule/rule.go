// Package rule checks answers against rules: success rules (a preset or a complete rule), poll rules, and the
// predicates that both use.
//
//   - Parse and ParsePoll parse a rule, report every mistake, and return its canonical text, which is stored.
//   - Compile and CompilePoll compile that text. A compiled rule is read-only.
//   - A check costs at most 10 ms of CPU time, whatever the rule and the body.
//
// The package sees a status and a body as text. It knows no HTTP and keeps no state. The caller decides what
// follows from a conclusion.
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
	// DefaultDeferAfter is the default of defer_after: the minimum wait if the receiver is busy.
	DefaultDeferAfter = 3 * time.Second
	// DefaultMaxDefers is the default of max_defers: how many attempts at a busy receiver are not charged.
	DefaultMaxDefers = 100
	// MostDefers is the maximum of max_defers.
	MostDefers = 10_000

	// minDeferAfter and maxDeferAfter are the limits of defer_after.
	minDeferAfter = time.Second
	maxDeferAfter = time.Hour
)

// A Rule is a success rule. Before Compile it has only what the caller wrote. After Compile it has the
// defaults as well and is read-only.
type Rule struct {
	Status statusSet `json:"status,omitempty" final:"a success"`
	Body   *bodyTest `json:"body,omitempty"`
	// PermanentIf ends the callback. DeferIf defers it.
	PermanentIf *condition `json:"permanent_if,omitempty"`
	DeferIf     *condition `json:"defer_if,omitempty"`
	// DeferAfter and MaxDefers apply if the receiver is busy.
	DeferAfter wait `json:"defer_after,omitempty"`
	MaxDefers  int  `json:"max_defers,omitempty" range:"1 10000"`

	// expectedStatus and expectedBody describe the rule for people.
	expectedStatus, expectedBody string
}

// Parse parses a complete success rule (SPEC §5) and returns its canonical text: compact JSON with its
// members in a fixed order, which Parse returns unchanged. Errors name fields relative to the rule, such as
// "status[0]" or "permanent_if.body.json[1].pointer"; the field "" is the rule itself.
//
// The default of "status" is 200 to 299. "defer_after" is 1s to 1h (DefaultDeferAfter), "max_defers" 1 to
// 10,000 (DefaultMaxDefers). A status of 1xx or 3xx is never a success: 1xx is not the final answer, and
// redirects are not followed. For the limits of predicates and regular expressions see Predicates; they apply
// to the rule as a whole.
func Parse(raw []byte) (store.JSONText, []store.FieldError) { return canonicalText(raw, new(Rule)) }

// canonicalText parses a rule and returns its canonical text. Some characters are longer there than a caller
// may write them. A text that is then too long to be parsed again is refused.
func canonicalText(raw []byte, rule any) (store.JSONText, []store.FieldError) {
	if wrong := parse.Decode(raw, rule, new(limits)); len(wrong) > 0 {
		return "", wrong
	}
	text, err := parse.Encode(rule)
	switch {
	case err != nil:
		return "", []store.FieldError{{Message: "cannot be written as JSON"}}
	case len(text) > parse.MaxSettingBytes:
		return "", []store.FieldError{{Message: "is longer than 16 KiB as canonical JSON"}}
	}
	return store.JSONText(text), nil
}

// Compile parses a rule and fills in the defaults.
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

// CheckSetting refuses an empty rule.
func (r *Rule) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give status, body, permanent_if or defer_if")
	}
}

// ReadsBody reports whether the rule tests the body.
func (r *Rule) ReadsBody() bool {
	return r.Body != nil || r.PermanentIf.readsBody() || r.DeferIf.readsBody()
}

// A Conclusion is the result of a success rule for an answer.
type Conclusion int

// The conclusions. defer_if is checked before permanent_if, and both before success: they are the rule's
// exceptions for certain answers.
const (
	Deferred Conclusion = iota
	Permanent
	WrongStatus
	WrongBody
	Successful
)

// Conclude checks an answer. The store.Rule explains the result under the given name, with hidden values
// masked. It is nil for a success that only the status decided.
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

// A condition matches an answer if both its status set and its body test match. A missing part matches
// everything. A nil condition matches nothing.
type condition struct {
	Status statusSet `json:"status,omitempty"`
	Body   *bodyTest `json:"body,omitempty"`
}

// CheckSetting refuses an empty condition.
func (c *condition) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give status, body or both")
	}
}

func (c *condition) readsBody() bool { return c != nil && c.Body != nil }

func (c *condition) match(d *Document) bool {
	return c != nil && (c.Status == nil || c.Status.has(d.Status)) && (c.Body == nil || c.Body.match(d))
}

// explain describes for people that the condition matches, and what it found.
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
		Expected: shorten(field+" not to match: "+strings.Join(expected, " and "), maxSentence),
		Saw:      shorten(strings.Join(saw, ", "), maxSentence),
	}
}

// A wait is the value of defer_after.
type wait time.Duration

// ReadSetting parses a duration.
func (w *wait) ReadSetting(s parse.Setting) {
	d, ok := parseWait(s.Plain())
	if !s.IsText() || !ok || d < minDeferAfter || d > maxDeferAfter {
		s.Fail(`must be a duration from 1s to 1h, such as "3s"`)
		return
	}
	*w = wait(d)
}

// MarshalText returns the shortest form of a duration.
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

// parseWait parses a Go duration that may begin with days, such as "1d12h".
func parseWait(s string) (time.Duration, bool) {
	var days float64
	if n, rest, ok := strings.Cut(s, "d"); ok {
		var err error
		days, err = strconv.ParseFloat(n, 64)
		if err != nil || strings.Trim(n, "0123456789.") != "" || days > 1000 {
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
