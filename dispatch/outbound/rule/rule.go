// Package rule judges answers: success rules (a preset or one that was given whole), the rules of polls, and the small
// language of predicates that both are written in.
//
//   - Parse and ParsePoll read a rule, name everything that is wrong with it, and return its one spelling, which is kept.
//   - Compile and CompilePoll make of that text what concludes. What is compiled is read-only.
//   - A conclusion costs at most 10 ms of CPU time, whatever the rule and the body.
//
// The package sees a status and a body as text. It knows no HTTP, keeps nothing, and does not decide what follows.
package rule

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A rule is a success rule, compiled. It is read-only.
type Rule struct {
	status statusSet
	body   bodyTest
	// permanentIf ends the callback, deferIf puts it off; the zero condition is true of nothing.
	permanentIf, deferIf condition
	// deferAfter and maxDefers say how a receiver that is busy is waited for.
	DeferAfter time.Duration
	MaxDefers  int
	// expectedStatus and expectedBody tell people what it wants.
	expectedStatus, expectedBody string
	// readsBody: the body matters to it.
	ReadsBody bool
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
	return (c.status == nil || c.status.has(d.Status)) && (c.body.op == bodyNone || c.body.match(d))
}

// explain tells people that the condition is true, and of what.
func (c *condition) explain(name, field string, d *Document, hidden []string) *store.Rule {
	why := &store.Rule{Name: name, Expected: field + " not to be true: "}
	switch {
	case c.body.op == bodyNone:
		why.Expected += "status " + c.status.String()
		why.Saw = statusSeen(d.Status)
	case c.status == nil:
		why.Expected += c.body.expected()
		why.Saw = c.body.saw(d, hidden)
	default:
		why.Expected += "status " + c.status.String() + " and " + c.body.expected()
		why.Saw = statusSeen(d.Status) + ", " + c.body.saw(d, hidden)
	}
	why.Expected, why.Saw = shorten(why.Expected, maxSentence), shorten(why.Saw, maxSentence)
	return why
}

// A Conclusion is what a success rule makes of an answer.
type Conclusion int

// The conclusions. What puts the callback off comes before what ends it, and both before what is a success: they are
// exceptions that a rule makes for the answers that they name.
const (
	Deferred Conclusion = iota
	Permanent
	WrongStatus
	WrongBody
	Successful
)

// Conclude says what the rule makes of an answer. The store.Rule is nil for a success that only the status decided:
// there is nothing to explain.
func (r *Rule) Conclude(name string, d *Document, hidden []string) (Conclusion, *store.Rule) {
	switch {
	case r.deferIf.match(d):
		return Deferred, r.deferIf.explain(name, "defer_if", d, hidden)
	case r.permanentIf.match(d):
		return Permanent, r.permanentIf.explain(name, "permanent_if", d, hidden)
	case !r.status.has(d.Status):
		return WrongStatus, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(d.Status)}
	case r.body.op == bodyNone:
		return Successful, nil
	}
	conclusion := WrongBody
	if r.body.match(d) {
		conclusion = Successful
	}
	return conclusion, &store.Rule{Name: name, Expected: r.expectedBody, Saw: r.body.saw(d, hidden)}
}
