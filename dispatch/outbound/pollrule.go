package outbound

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Verdict is what a poll has learned from an answer. It is empty for what is no poll, and where there is nothing to judge: no answer
// came, we were interrupted within it, or the upstream is locked and says for how long (a 423 with Retry-After that is not evaluated).
type Verdict string

// The verdicts on answers of polls.
const (
	// VerdictSuccess and VerdictFailure are final: the attempt succeeded, whatever became of what was asked for.
	VerdictSuccess Verdict = "success"
	VerdictFailure Verdict = "failure"
	// VerdictOpen: the answer is neither, or both; it is asked again at the next tier.
	VerdictOpen Verdict = "open"
	// VerdictError: the answer says nothing of what was asked. It has a status that is not evaluated, or cannot be read.
	VerdictError Verdict = "error"
	// VerdictHold: the answer asks to wait (hold_if), and says nothing else. It is not charged.
	VerdictHold Verdict = "hold"
)

// pollHold is how long an answer that asks to wait is waited for, unless its Retry-After says.
const pollHold = time.Minute

// pollRuleName is what attempts call the rule of a poll that has no name of its own.
const pollRuleName = "until"

// A pollRule is the rule of a poll, compiled. It is read-only.
type pollRule struct {
	success, failure, holdIf Predicates
	evaluate                 statusSet
	maxErrors                int
	// until is success and failure, and all is these and holdIf, for what they saw.
	until, all Predicates
	// expectedStatus, expected and expectedHold tell people what it wants.
	expectedStatus, expected, expectedHold string
}

// compilePollRule reads the rule of a poll and fills in what it leaves out.
func compilePollRule(raw []byte) (*pollRule, []store.FieldError) {
	w, wrong := readPollRule(raw)
	if len(wrong) > 0 {
		return nil, wrong
	}
	r := &pollRule{
		success: w.success, failure: w.failure, holdIf: w.holdIf, evaluate: w.evaluate, maxErrors: DefaultErrorBudget,
		until: slices.Concat(w.success, w.failure), all: slices.Concat(w.success, w.failure, w.holdIf),
	}
	if r.evaluate == nil {
		r.evaluate = statusSet{{200, 299}}
	}
	if w.errorBudget != nil {
		r.maxErrors = *w.errorBudget
	}
	r.expectedStatus = "status " + r.evaluate.String()
	r.expected = expectedUntil(w.success, w.failure)
	r.expectedHold = "hold_if not to be true: " + joined(w.holdIf, " or ")
	for _, s := range []*string{&r.expectedStatus, &r.expected, &r.expectedHold} {
		*s = shorten(*s, maxSentence)
	}
	return r, nil
}

// expectedUntil says for people what ends a poll.
func expectedUntil(success, failure Predicates) string {
	switch {
	case failure == nil:
		return "success: " + joined(success, " or ")
	case success == nil:
		return "failure: " + joined(failure, " or ")
	}
	return "success: " + joined(success, " or ") + "; failure: " + joined(failure, " or ")
}

// pollRuleOf returns the rule that a poll is judged by, and its name for people; nil: it cannot be read.
func (c *Client) pollRuleOf(s *store.Success) (*pollRule, string) {
	name := cmp.Or(s.Name, pollRuleName)
	if r, ok := c.polls.get(s.Rule); ok {
		return r, name
	}
	r, wrong := compilePollRule([]byte(s.Rule))
	if len(wrong) > 0 {
		return nil, name
	}
	c.polls.put(s.Rule, r)
	return r, name
}

// judge says what a document whose status is evaluated means, and what it is that people should know about it beside what was seen. An
// answer is final only if each list is known to be true or not: what might be a failure is no success, and what might ask to wait is neither.
func (r *pollRule) judge(d *Document, hold truth) (v Verdict, remark string) {
	success, failure := r.success.judge(d), r.failure.judge(d)
	unsure := success == isUnsure || failure == isUnsure || hold == isUnsure
	switch {
	case success == isTrue && failure == isTrue:
		return VerdictOpen, "both a success and a failure: "
	case unsure && d.broken != "":
		return VerdictError, ""
	case unsure:
		return VerdictOpen, ""
	case success == isTrue:
		return VerdictSuccess, ""
	case failure == isTrue:
		return VerdictFailure, ""
	}
	return VerdictOpen, ""
}
