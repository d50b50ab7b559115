package rule

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A PollState is what a poll has learned from an answer. It is empty for what is no poll, and where there is
// nothing to judge: no answer came, we were interrupted within it, or the upstream is locked and says for how
// long (a 423 with Retry-After that is not evaluated).
type PollState string

// The verdicts on answers of polls.
const (
	// StateSuccess and VerdictFailure are final: the attempt succeeded, whatever became of what was asked
	// for.
	StateSuccess PollState = "success"
	StateFailure PollState = "failure"
	// StateOpen: the answer is neither, or both; it is asked again at the next tier.
	StateOpen PollState = "open"
	// StateError: the answer says nothing of what was asked. It has a status that is not evaluated, or
	// cannot be read.
	StateError PollState = "error"
	// StateHold: the answer asks to wait (hold_if), and says nothing else. It is not charged.
	StateHold PollState = "hold"
)

// DefaultErrorBudget is how many errors in a row a poll survives unless its rule says otherwise.
const DefaultErrorBudget = 20

// PollHold is how long an answer that asks to wait is waited for, unless its Retry-After says.
const PollHold = time.Minute

// PollName is what attempts call the rule of a poll that has no name of its own.
const PollName = "until"

// A Poll is the rule of a poll: what a caller wrote, or, once compiled, with what was left out. It is
// read-only then.
type Poll struct {
	Until    until      `json:"until"`
	HoldIf   Predicates `json:"hold_if,omitempty"`
	Evaluate statusSet  `json:"evaluate,omitempty" final:"looked into"`
	// ErrorBudget may be given as 0: the first error ends the poll. Nil: it was left out.
	ErrorBudget *int `json:"error_budget,omitempty" range:"0 1000"`

	// until is success and failure, and all is these and HoldIf, for what they saw.
	until, all Predicates
	// expectedStatus, expected and expectedHold tell people what it wants.
	expectedStatus, expected, expectedHold string
}

// until is what ends a poll.
type until struct {
	Success Predicates `json:"success,omitempty"`
	Failure Predicates `json:"failure,omitempty"`
}

// ParsePoll reads the rule of a poll (SPEC §6) and returns it as compact JSON with its members in a fixed
// order, which ParsePoll returns unchanged; what was left out stays so. What is wrong is named relative to
// the rule, as "until.success[0].pointer"; the field "" is the rule itself. "until" has predicates for
// success, for failure, or for both. Without "evaluate" the statuses that are looked into are 200 to 299;
// none of 1xx or 3xx can be among them: the one is no answer yet, the other never followed. "error_budget" is
// 0 to 1,000 (DefaultErrorBudget). For the limits of predicates and regular expressions, see Predicates: they
// are for the rule as a whole.
func ParsePoll(raw []byte) (store.JSONText, []store.FieldError) { return written(raw, new(Poll)) }

// CheckSetting asks for what ends the poll.
func (r *Poll) CheckSetting(s parse.Setting) {
	if !s.Has("until") {
		s.In("until").Fail("is missing: give success, failure or both in it")
	}
}

// CheckSetting refuses a poll without an end.
func (u *until) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give success, failure or both")
	}
}

// CompilePoll reads the rule of a poll and fills in what it leaves out.
func CompilePoll(raw []byte) (*Poll, []store.FieldError) {
	r := new(Poll)
	if wrong := parse.Decode(raw, r, new(limits)); len(wrong) > 0 {
		return nil, wrong
	}
	r.until = slices.Concat(r.Until.Success, r.Until.Failure)
	r.all = slices.Concat(r.until, r.HoldIf)
	if r.Evaluate == nil {
		r.Evaluate = statusSet{{200, 299}}
	}
	if r.ErrorBudget == nil {
		r.ErrorBudget = new(DefaultErrorBudget)
	}
	r.expectedStatus = "status " + r.Evaluate.String()
	r.expected = r.Until.expected()
	r.expectedHold = "hold_if not to be true: " + joined(r.HoldIf, " or ")
	for _, s := range []*string{&r.expectedStatus, &r.expected, &r.expectedHold} {
		*s = shorten(*s, maxSentence)
	}
	return r, nil
}

// expected says for people what ends a poll.
func (u *until) expected() string {
	var ends []string
	if u.Success != nil {
		ends = append(ends, "success: "+joined(u.Success, " or "))
	}
	if u.Failure != nil {
		ends = append(ends, "failure: "+joined(u.Failure, " or "))
	}
	return strings.Join(ends, "; ")
}

// Evaluates says whether answers of a status are looked into.
func (r *Poll) Evaluates(status int) bool { return r.Evaluate.has(status) }

// Conclude says what the rule makes of an answer. What asks to wait comes first, whatever the status; then
// statuses that are not evaluated, which say nothing. An answer that broke off is never final, not even where
// its status would decide: nothing says what else it was to contain.
func (r *Poll) Conclude(name string, d *Document, hidden []string) (PollState, *store.Rule) {
	hold := r.HoldIf.judge(d)
	switch {
	case hold == isTrue:
		return StateHold, &store.Rule{Name: name, Expected: r.expectedHold,
			Saw: r.HoldIf.saw(d, d.Seen, hidden)}
	case !r.Evaluate.has(d.Status):
		return StateError, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(d.Status)}
	case d.Partial:
		return StateError, &store.Rule{Name: name, Expected: r.expected, Saw: d.Broken}
	}
	v, remark := r.judge(d, hold)
	saw := d.Broken
	switch {
	case v == StateError: // it saw what is wrong with the body
	case v == StateOpen && hold == isUnsure:
		saw = remark + r.all.saw(d, d.Seen, hidden) // what keeps it open may be there
	default:
		saw = remark + r.until.saw(d, d.Seen, hidden)
	}
	return v, &store.Rule{Name: name, Expected: r.expected, Saw: shorten(saw, maxSentence)}
}

// judge says what a document whose status is evaluated means, and what it is that people should know about it
// beside what was seen. An answer is final only if each list is known to be true or not: what might be a
// failure is no success, and what might ask to wait is neither.
func (r *Poll) judge(d *Document, hold truth) (v PollState, remark string) {
	success, failure := r.Until.Success.judge(d), r.Until.Failure.judge(d)
	unsure := success == isUnsure || failure == isUnsure || hold == isUnsure
	switch {
	case success == isTrue && failure == isTrue:
		return StateOpen, "both a success and a failure: "
	case unsure && d.Broken != "":
		return StateError, ""
	case unsure:
		return StateOpen, ""
	case success == isTrue:
		return StateSuccess, ""
	case failure == isTrue:
		return StateFailure, ""
	}
	return StateOpen, ""
}
