package rule

import (
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A PollState is what a poll learned from an answer. It is empty for a notification and if nothing could be
// checked: no answer came, a shutdown interrupted it, or the answer is a 423 with Retry-After that is not
// evaluated.
type PollState string

// The states of a poll.
const (
	// StateSuccess and StateFailure are final. In both the attempt succeeded, whatever the state of the
	// order.
	StateSuccess PollState = "success"
	StateFailure PollState = "failure"
	// StateOpen means that the answer matches neither success nor failure, or both. The poll continues at the
	// next tier.
	StateOpen PollState = "open"
	// StateError means that the answer has no usable information: its status is not evaluated, or its body
	// cannot be checked.
	StateError PollState = "error"
	// StateHold means that hold_if matches: the upstream asks to wait. The attempt is not charged.
	StateHold PollState = "hold"
)

// DefaultErrorBudget is the default of error_budget: how many errors in a row a poll tolerates.
const DefaultErrorBudget = 20

// PollHold is the wait after StateHold if the answer has no valid Retry-After.
const PollHold = time.Minute

// PollName is the name of a poll rule in stored attempts if it has no name of its own.
const PollName = "until"

// A Poll is a poll rule. Before CompilePoll it has only what the caller wrote. After CompilePoll it has the
// defaults as well and is read-only.
type Poll struct {
	Until    until      `json:"until"`
	HoldIf   Predicates `json:"hold_if,omitempty"`
	Evaluate statusSet  `json:"evaluate,omitempty" final:"evaluated"`
	// ErrorBudget is nil if the caller left it out. Zero means that the first error ends the poll.
	ErrorBudget *int `json:"error_budget,omitempty" range:"0 1000"`

	// until joins success and failure, and all joins these and HoldIf. They describe what an answer contains.
	until, all Predicates
	// expectedStatus, expected and expectedHold describe the rule for people.
	expectedStatus, expected, expectedHold string
}

// until has the predicates that end a poll.
type until struct {
	Success Predicates `json:"success,omitempty"`
	Failure Predicates `json:"failure,omitempty"`
}

// ParsePoll parses a poll rule (SPEC §6) and returns its canonical text: compact JSON with its members in a
// fixed order, which ParsePoll returns unchanged. Defaults are not added. Errors name fields relative to the
// rule, such as "until.success[0].pointer"; the field "" is the rule itself.
//
// "until" has predicates for success, failure or both. "evaluate" lists the statuses whose answers are
// checked; its default is 200 to 299. It cannot have 1xx or 3xx: 1xx is not the final answer, and redirects
// are not followed. "error_budget" is 0 to 1,000 (DefaultErrorBudget). For the limits of predicates and
// regular expressions see Predicates; they apply to the rule as a whole.
func ParsePoll(raw []byte) (store.JSONText, []store.FieldError) { return canonicalText(raw, new(Poll)) }

// CheckSetting requires until.
func (r *Poll) CheckSetting(s parse.Setting) {
	if !s.Has("until") {
		s.In("until").Fail("is required: give success, failure or both")
	}
}

// CheckSetting requires success or failure.
func (u *until) CheckSetting(s parse.Setting) {
	if s.IsEmpty() {
		s.Fail("is empty: give success, failure or both")
	}
}

// CompilePoll parses a poll rule and fills in the defaults.
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
	r.expectedHold = "hold_if not to match: " + join(r.HoldIf, " or ")
	for _, s := range []*string{&r.expectedStatus, &r.expected, &r.expectedHold} {
		*s = shorten(*s, maxSentence)
	}
	return r, nil
}

// expected describes for people what ends the poll.
func (u *until) expected() string {
	var ends []string
	if u.Success != nil {
		ends = append(ends, "success: "+join(u.Success, " or "))
	}
	if u.Failure != nil {
		ends = append(ends, "failure: "+join(u.Failure, " or "))
	}
	return strings.Join(ends, "; ")
}

// Evaluates reports whether answers with a status are checked.
func (r *Poll) Evaluates(status int) bool { return r.Evaluate.has(status) }

// Conclude checks an answer. hold_if is checked first, whatever the status. An answer with a status that is
// not evaluated is an error. An incomplete answer is never final, even if its status alone would decide: its
// missing part may contradict it. The store.Rule explains the result under the given name, with hidden values
// masked.
func (r *Poll) Conclude(name string, d *Document, hidden []string) (PollState, *store.Rule) {
	hold := r.HoldIf.evaluate(d)
	switch {
	case hold == isTrue:
		return StateHold, &store.Rule{Name: name, Expected: r.expectedHold,
			Saw: r.HoldIf.saw(d, d.Seen, hidden)}
	case !r.Evaluate.has(d.Status):
		return StateError, &store.Rule{Name: name, Expected: r.expectedStatus, Saw: statusSeen(d.Status)}
	case d.Partial:
		return StateError, &store.Rule{Name: name, Expected: r.expected, Saw: d.Broken}
	}
	v, remark := r.decide(d, hold)
	saw := d.Broken
	switch {
	case v == StateError: // d.Broken is the reason
	case v == StateOpen && hold == isUnknown:
		saw = remark + r.all.saw(d, d.Seen, hidden) // hold_if may be what keeps it open
	default:
		saw = remark + r.until.saw(d, d.Seen, hidden)
	}
	return v, &store.Rule{Name: name, Expected: r.expected, Saw: shorten(saw, maxSentence)}
}

// decide returns the state for a document whose status is evaluated, and a remark that precedes the
// description of the answer. A state is final only if all lists are known to be true or false: an unknown
// failure or hold_if might be true.
func (r *Poll) decide(d *Document, hold truth) (v PollState, remark string) {
	success, failure := r.Until.Success.evaluate(d), r.Until.Failure.evaluate(d)
	unknown := success == isUnknown || failure == isUnknown || hold == isUnknown
	switch {
	case success == isTrue && failure == isTrue:
		return StateOpen, "matches both success and failure: "
	case unknown && d.Broken != "":
		return StateError, ""
	case unknown:
		return StateOpen, ""
	case success == isTrue:
		return StateSuccess, ""
	case failure == isTrue:
		return StateFailure, ""
	}
	return StateOpen, ""
}
