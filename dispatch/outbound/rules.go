package outbound

import (
	"bytes"
	"strconv"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The names of the success rules.
const (
	RuleHTTP2xx     = "http-2xx"
	RuleHTTP200     = "http-200"
	RuleBodySuccess = "body-success"
)

// DefaultRule is what a callback without a success rule is judged by.
const DefaultRule = RuleHTTP2xx

// A successRule is a set of statuses and, for some, a test of the body.
type successRule struct {
	name           string
	from, to       int
	expectedStatus string
	// body is nil for rules that look at the status only: what the body is, or whether it can be read, does not matter
	// to them.
	body         func([]byte) bool
	expectedBody string
}

// successRules returns every rule, the default one first.
func successRules() [3]successRule {
	return [...]successRule{
		{name: RuleHTTP2xx, from: 200, to: 299, expectedStatus: "status 200-299"},
		{name: RuleHTTP200, from: 200, to: 200, expectedStatus: "status 200"},
		{
			name: RuleBodySuccess, from: 200, to: 299, expectedStatus: "status 200-299",
			body: isSuccess, expectedBody: "the body to be the word success",
		},
	}
}

// SuccessRules returns the names of the success rules, the default one first.
func SuccessRules() []string {
	rules := successRules()
	names := make([]string, len(rules))
	for i, r := range rules {
		names[i] = r.name
	}
	return names
}

// isSuccess says whether the body is the word success and nothing else: case and surrounding white space do not count,
// nor does a byte order mark. A page that contains the word is something else.
func isSuccess(body []byte) bool {
	const word = "success"
	body = bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
	// The length keeps out what only Unicode takes for the same letters.
	return len(body) == len(word) && bytes.EqualFold(body, []byte(word))
}

// sawBytes is how much of a body a rule shows of what it saw.
const sawBytes = 64

// bodySeen describes a body for people: quoted, cut, or why it could not be judged. It shows the sanitised text, in which
// echoed credentials are masked.
func bodySeen(a *answer) string {
	switch {
	case a.decodeErr != nil:
		return a.decodeErr.Error()
	case a.tooLarge:
		return "too_large: more than 64 KiB of body"
	case a.readErr != nil:
		return "truncated: the body ended early"
	case len(a.body) == 0:
		return "an empty body"
	case len(a.text) <= sawBytes:
		return strconv.Quote(a.text)
	}
	return strconv.Quote(cut(a.text, sawBytes)) + "…"
}

func statusSeen(status int) string { return "status " + strconv.Itoa(status) }

// judge applies the rule to an answer. The store.Rule is nil for a success that only the status decided: there is
// nothing to explain.
func (r *successRule) judge(a *answer) (ok bool, why *store.Rule) {
	if a.status < r.from || a.status > r.to {
		return false, &store.Rule{Name: r.name, Expected: r.expectedStatus, Saw: statusSeen(a.status)}
	}
	if r.body == nil {
		return true, nil
	}
	whole := a.decodeErr == nil && !a.tooLarge && a.readErr == nil
	why = &store.Rule{Name: r.name, Expected: r.expectedBody, Saw: bodySeen(a)}
	return whole && r.body(a.body), why
}
