package rule

import (
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
const PollHold = time.Minute

// pollRuleName is what attempts call the rule of a poll that has no name of its own.
const PollName = "until"

// A pollRule is the rule of a poll, compiled. It is read-only.
type Poll struct {
	success, failure, holdIf Predicates
	evaluate                 statusSet
	MaxErrors                int
	// until is success and failure, and all is these and holdIf, for what they saw.
	until, all Predicates
	// expectedStatus, expected and expectedHold tell people what it wants.
	expectedStatus, expected, expectedHold string
}

// compilePollRule reads the rule of a poll and fills in what it leaves out.
func CompilePoll(raw []byte) (*Poll, []store.FieldError) {
	w, wrong := readPollRule(raw)
	if len(wrong) > 0 {
		return nil, wrong
	}
	r := &Poll{
		success: w.success, failure: w.failure, holdIf: w.holdIf, evaluate: w.evaluate, MaxErrors: DefaultErrorBudget,
		until: slices.Concat(w.success, w.failure), all: slices.Concat(w.success, w.failure, w.holdIf),
	}
	if r.evaluate == nil {
		r.evaluate = statusSet{{200, 299}}
	}
	if w.errorBudget != nil {
		r.MaxErrors = *w.errorBudget
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

// Evaluates says whether answers of a status are looked into.
func (r *Poll) Evaluates(status int) bool { return r.evaluate.has(status) }

// Conclude says what the rule makes of an answer. What asks to wait comes first, whatever the status; then statuses that
// are not evaluated, which say nothing. An answer that broke off is never final, not even where its status would decide:
// nothing says what else it was to contain.
func (r *Poll) Conclude(name string, d *Document, hidden []string) (Verdict, *store.Rule) {
	hold := r.holdIf.judge(d)
	switch {
	case hold == isTrue:
		return VerdictHold, &store.Rule{Name: name, Expected: r.expectedHold, Saw: r.holdIf.saw(d, d.Seen, hidden)}
	case !r.evaluate.has(d.Status):
		return VerdictError, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(d.Status)}
	case d.Partial:
		return VerdictError, &store.Rule{Name: name, Expected: r.expected, Saw: d.Broken}
	}
	v, remark := r.judge(d, hold)
	saw := d.Broken
	switch {
	case v == VerdictError: // it saw what is wrong with the body
	case v == VerdictOpen && hold == isUnsure:
		saw = remark + r.all.saw(d, d.Seen, hidden) // what keeps it open may be there
	default:
		saw = remark + r.until.saw(d, d.Seen, hidden)
	}
	return v, &store.Rule{Name: name, Expected: r.expected, Saw: shorten(saw, maxSentence)}
}

// judge says what a document whose status is evaluated means, and what it is that people should know about it beside what was seen. An
// answer is final only if each list is known to be true or not: what might be a failure is no success, and what might ask to wait is neither.
func (r *Poll) judge(d *Document, hold truth) (v Verdict, remark string) {
	success, failure := r.success.judge(d), r.failure.judge(d)
	unsure := success == isUnsure || failure == isUnsure || hold == isUnsure
	switch {
	case success == isTrue && failure == isTrue:
		return VerdictOpen, "both a success and a failure: "
	case unsure && d.Broken != "":
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
