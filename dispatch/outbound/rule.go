package outbound

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A rule is a success rule, compiled. It is read-only.
type rule struct {
	status statusSet
	body   bodyTest
	// permanentIf ends the callback, deferIf puts it off; the zero condition is true of nothing.
	permanentIf, deferIf condition
	// deferAfter and maxDefers say how a receiver that is busy is waited for.
	deferAfter time.Duration
	maxDefers  int
	// expectedStatus and expectedBody tell people what it wants.
	expectedStatus, expectedBody string
	// readsBody: the body matters to it.
	readsBody bool
}

const (
	// DefaultDeferAfter is the least wait for a receiver that is busy with the same business key, unless its rule says otherwise.
	DefaultDeferAfter = 3 * time.Second
	// DefaultMaxDefers is how often a callback is put off for it, uncharged, unless its rule says otherwise.
	DefaultMaxDefers = 100
)

// A condition is true of an answer whose status is in the set, if it has one, and whose body passes the test, if it has one. One that has
// neither is true of nothing.
type condition struct {
	status statusSet
	body   bodyTest
}

func (c *condition) match(d *Document) bool {
	if c.status == nil && c.body.op == bodyNone {
		return false
	}
	return (c.status == nil || c.status.has(d.status)) && (c.body.op == bodyNone || c.body.match(d))
}

// explain tells people that the condition is true, and of what.
func (c *condition) explain(name, field string, d *Document, a *answer, hidden []string) *store.Rule {
	why := &store.Rule{Name: name, Expected: field + " not to be true: "}
	switch {
	case c.body.op == bodyNone:
		why.Expected += "status " + c.status.String()
		why.Saw = statusSeen(a.status)
	case c.status == nil:
		why.Expected += c.body.expected()
		why.Saw = c.body.saw(d, a, hidden)
	default:
		why.Expected += "status " + c.status.String() + " and " + c.body.expected()
		why.Saw = statusSeen(a.status) + ", " + c.body.saw(d, a, hidden)
	}
	why.Expected, why.Saw = shorten(why.Expected, maxSentence), shorten(why.Saw, maxSentence)
	return why
}

// judge says whether the answer is a success. The store.Rule is nil for a success that only the status decided: there is
// nothing to explain.
func (r *rule) judge(name string, d *Document, a *answer, hidden []string) (ok bool, why *store.Rule) {
	if !r.status.has(a.status) {
		return false, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(a.status)}
	}
	if r.body.op == bodyNone {
		return true, nil
	}
	return r.body.match(d), &store.Rule{Name: name, Expected: r.expectedBody, Saw: r.body.saw(d, a, hidden)}
}

// document returns what the rule looks at of an answer.
func (r *rule) document(a *answer) Document {
	d := Document{status: a.status}
	if r.readsBody {
		d.text, d.broken = a.plain, a.fault()
	}
	return d
}

// maxRules is how many compiled rules a client keeps, beside the presets.
const maxRules = 1000

// ruleOf returns the rule that a callback is judged by, and its name for people; nil: there is no such rule.
func (c *Client) ruleOf(s *store.Success) (*rule, string) {
	name := s.Name
	if s.Rule == "" {
		if name == "" {
			name = DefaultRule
		}
		return c.presets[s.Name], name
	}
	if name == "" {
		name = customRule
	}
	if r, ok := c.rules.get(s.Rule); ok {
		return r, name
	}
	r, wrong := compileRule([]byte(s.Rule))
	if len(wrong) > 0 {
		return nil, name
	}
	c.rules.put(s.Rule, r)
	return r, name
}
