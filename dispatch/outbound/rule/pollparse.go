package rule

import (
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// DefaultErrorBudget is how many errors in a row a poll survives unless its rule says otherwise.
	DefaultErrorBudget = 20
	// mostErrors bounds error_budget.
	mostErrors = 1000
)

// A writtenPollRule is the rule of a poll as a caller wrote it: what was left out is nil.
type writtenPollRule struct {
	success, failure, holdIf Predicates
	evaluate                 statusSet
	// errorBudget may be given as 0: the first error ends the poll.
	errorBudget *int
}

// ParsePollRule reads the rule of a poll (SPEC §6) and returns it as compact JSON with its members in a fixed order, which ParsePollRule
// returns unchanged; what was left out stays so. What is wrong is named relative to the rule, as "until.success[0].pointer"; the field ""
// is the rule itself. "until" has predicates for success, for failure, or for both. Without "evaluate" the statuses that are looked into
// are 200 to 299; none of 1xx or 3xx can be among them: the one is no answer yet, the other never followed. "error_budget" is 0 to 1,000
// (DefaultErrorBudget). For the limits of predicates and regular expressions, see ParsePredicates: they are for the rule as a whole.
func ParsePoll(raw []byte) (store.JSONText, []store.FieldError) {
	w, wrong := readPollRule(raw)
	if len(wrong) > 0 {
		return "", wrong
	}
	return written(w.text())
}

func readPollRule(raw []byte) (w writtenPollRule, wrong []store.FieldError) {
	r := newRuleReader(raw)
	if len(r.Wrong) > 0 {
		return w, r.Wrong
	}
	given := false
	isObject := r.Members(0, "", func(key, at string, v int32) {
		switch key {
		case "until":
			given = true
			w.success, w.failure = r.until(v, at)
		case "hold_if":
			w.holdIf = r.predicates(v, at, 1)
		case "evaluate":
			w.evaluate = r.finalStatuses(v, at, "looked into")
		case "error_budget":
			if n, ok := r.Integer(v, at, 0, mostErrors); ok {
				w.errorBudget = &n
			}
		default:
			r.Unknown(at, "until", "hold_if", "evaluate", "error_budget")
		}
	})
	if isObject && !given {
		r.Fail("until", "is missing: give success, failure or both in it")
	}
	return w, r.Wrong
}

// until reads what ends a poll.
func (r *ruleReader) until(node int32, field string) (success, failure Predicates) {
	isObject := r.Members(node, field, func(key, at string, v int32) {
		switch key {
		case "success":
			success = r.predicates(v, at, 1)
		case "failure":
			failure = r.predicates(v, at, 1)
		default:
			r.Unknown(at, "success", "failure")
		}
	})
	if isObject && r.First(node) == 0 {
		r.Fail(field, "is empty: give success, failure or both")
	}
	return success, failure
}

// text returns the rule in its one spelling.
func (r *writtenPollRule) text() store.JSONText {
	w := parse.NewWriter()
	w.Name("until")
	until := parse.Writer{Out: append(w.Out, '{')}
	writePredicates(&until, "success", r.success)
	writePredicates(&until, "failure", r.failure)
	w.Out = until.End()
	writePredicates(w, "hold_if", r.holdIf)
	if r.evaluate != nil {
		w.Name("evaluate")
		w.Out = r.evaluate.appendJSON(w.Out)
	}
	if r.errorBudget != nil {
		w.Name("error_budget")
		w.Out = strconv.AppendInt(w.Out, int64(*r.errorBudget), 10)
	}
	return store.JSONText(w.End())
}

// writePredicates writes a member that is a list of them, unless it was left out.
func writePredicates(w *parse.Writer, name string, ps Predicates) {
	if ps != nil {
		w.Name(name)
		w.Out = ps.appendJSON(w.Out)
	}
}
