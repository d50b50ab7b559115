package outbound

import (
	"strconv"

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
func ParsePollRule(raw []byte) (store.JSONText, []store.FieldError) {
	w, wrong := readPollRule(raw)
	if len(wrong) > 0 {
		return "", wrong
	}
	return written(w.text())
}

func readPollRule(raw []byte) (w writtenPollRule, wrong []store.FieldError) {
	r := newJSONReader(raw)
	if len(r.wrong) > 0 {
		return w, r.wrong
	}
	given := false
	isObject := r.members(0, "", func(key, at string, v int32) {
		switch key {
		case "until":
			given = true
			w.success, w.failure = r.until(v, at)
		case "hold_if":
			w.holdIf = r.predicates(v, at, 1)
		case "evaluate":
			w.evaluate = r.finalStatuses(v, at, "looked into")
		case "error_budget":
			if n, ok := r.integer(v, at, 0, mostErrors); ok {
				w.errorBudget = &n
			}
		default:
			r.unknown(at, "until", "hold_if", "evaluate", "error_budget")
		}
	})
	if isObject && !given {
		r.fail("until", "is missing: give success, failure or both in it")
	}
	return w, r.wrong
}

// until reads what ends a poll.
func (r *jsonReader) until(node int32, field string) (success, failure Predicates) {
	isObject := r.members(node, field, func(key, at string, v int32) {
		switch key {
		case "success":
			success = r.predicates(v, at, 1)
		case "failure":
			failure = r.predicates(v, at, 1)
		default:
			r.unknown(at, "success", "failure")
		}
	})
	if isObject && r.first(node) == 0 {
		r.fail(field, "is empty: give success, failure or both")
	}
	return success, failure
}

// text returns the rule in its one spelling.
func (r *writtenPollRule) text() store.JSONText {
	w := newJSONWriter()
	w.name("until")
	until := jsonWriter{out: append(w.out, '{')}
	until.predicates("success", r.success)
	until.predicates("failure", r.failure)
	w.out = until.end()
	w.predicates("hold_if", r.holdIf)
	if r.evaluate != nil {
		w.name("evaluate")
		w.out = r.evaluate.appendJSON(w.out)
	}
	if r.errorBudget != nil {
		w.name("error_budget")
		w.out = strconv.AppendInt(w.out, int64(*r.errorBudget), 10)
	}
	return store.JSONText(w.end())
}

// predicates writes a member that is a list of them, unless it was left out.
func (w *jsonWriter) predicates(name string, ps Predicates) {
	if ps != nil {
		w.name(name)
		w.out = ps.appendJSON(w.out)
	}
}
