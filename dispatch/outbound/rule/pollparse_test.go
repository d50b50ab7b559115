package rule

import (
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestParsePollRuleHasOneSpelling(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"until":{"success":[{"in":["SUCCESS"],"pointer":"/trade_state"}]}}`: `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}]}}`,
		` { "until" : { "failure" : [ { "status" : [ "404" ] } ] } } `:        `{"until":{"failure":[{"status":[404]}]}}`,
		`{"error_budget":0,"evaluate":["404","200-299"],"hold_if":[{"eq":"FREQUENCY_LIMITED","pointer":"/code"}],"until":{"failure":[{"xml":"/a/b","exists":true}],"success":[{"pointer":"/fee","ge":1.50}]}}`: `{"until":{"success":[{"pointer":"/fee","ge":1.50}],"failure":[{"xml":"/a/b","exists":true}]},"hold_if":[{"pointer":"/code","eq":"FREQUENCY_LIMITED"}],"evaluate":[404,"200-299"],"error_budget":0}`,
		`{"until":{"success":[{"all":[{"pointer":"/a","matches":"^<\\d>$"},{"status":["200-200"]}]}]},"error_budget":1000}`:                                                                                    `{"until":{"success":[{"all":[{"pointer":"/a","matches":"^<\\d>$"},{"status":[200]}]}]},"error_budget":1000}`,
		// What was left out stays out.
		`{"until":{"success":[{"status":[200]}]},"evaluate":["200-299"],"error_budget":20}`: `{"until":{"success":[{"status":[200]}]},"evaluate":["200-299"],"error_budget":20}`,
	} {
		got, wrong := ParsePoll([]byte(text))
		if wrong != nil || string(got) != want {
			t.Errorf("%s:\n got %s %v\nwant %s", text, got, wrong, want)
		}
		if again, _ := ParsePoll([]byte(got)); again != got {
			t.Errorf("%s becomes %s", got, again)
		}
	}
}

func TestParsePollRuleNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	const until = `"until":{"success":[{"status":[200]}]}`
	many := func(n int) string { return "[" + strings.Repeat(`{"status":[200]},`, n-1) + `{"status":[200]}]` }
	pattern := `[{"pointer":"/a","matches":"x{3}"},{"pointer":"/a","matches":"x{3}"}]`
	for want, texts := range map[string][]string{
		"the whole": {
			``, `{`, "{\"until\":\"\xff\"}", strings.Repeat(" ", 16<<10) + "{}",
			`{"until":{"success":[{"pointer":"/a","in":["` + strings.Repeat("\u2028", 400) + strings.Repeat(`","`+strings.Repeat("\u2028", 400), 10) + `"]}]}}`,
		},
		"until":       {`{}`, `{"until":{}}`, `{` + until + `,` + until + `}`},
		"Until until": {`{"Until":{}}`},
		"until.done":  {`{"until":{"done":[]}}`},
		"until.success": {
			`{"until":{"success":[]}}`,
			`{"until":{"success":[{"status":[200]}],"success":[{"status":[200]}]}}`,
		},
		"until.failure":       {`{"until":{"failure":[]}}`},
		"until.success[0]":    {`{"until":{"success":[{}]}}`},
		"until.failure[1].ne": {`{"until":{"success":[{"status":[200]}],"failure":[{"status":[404]},{"pointer":"/a","eq":1,"ne":2}]}}`},
		"success":             {`{` + until + `,"success":[]}`},
		"holdif":              {`{` + until + `,"holdif":[]}`},
		"hold_if": {
			`{` + until + `,"hold_if":[]}`,
			`{"until":{"success":` + many(32) + `,"failure":` + many(32) + `},"hold_if":` + many(1) + `}`,
		},
		"hold_if[0].all[0]": {`{` + until + `,"hold_if":[{"all":[{"pointer":"/a"}]}]}`},
		"evaluate": {
			`{` + until + `,"evaluate":[]}`, `{` + until + `,"evaluate":["100-299"]}`,
			`{` + until + `,"evaluate":["200-404"]}`, `{` + until + `,"evaluate":[302]}`,
		},
		"evaluate[0] evaluate[2]": {`{` + until + `,"evaluate":[99,404,600]}`},
		"": {
			`{` + until + `,"evaluate":["200-299","400-599"]}`, `{` + until + `,"error_budget":0}`,
			`{"until":{"success":` + many(32) + `,"failure":` + many(31) + `},"hold_if":` + many(1) + `}`,
			`{"until":{"success":` + pattern + `,"failure":` + pattern + `}}`,
		},
		"error_budget":                          {`{` + until + `,"error_budget":-1}`, `{` + until + `,"error_budget":1001}`},
		"x until.y evaluate[0] error_budget":    {`{"x":1,"until":{"y":1},"evaluate":[1],"error_budget":2000}`},
		"hold_if[0].matches hold_if[1].matches": {`{"until":{"success":` + pattern + `,"failure":` + pattern + `},"hold_if":` + pattern + `}`},
	} {
		for _, text := range texts {
			got, wrong := ParsePoll([]byte(text))
			if named := fieldsOf(t, wrong); named != want || (got == "") != (want != "") {
				t.Errorf("%s:\n named %q\nwant %q (%v)", parse.Cut(text, 80), named, want, wrong)
			}
		}
	}
}

func FuzzParsePollRule(f *testing.F) {
	f.Add(`{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],"failure":[{"pointer":"/trade_state","in":["CLOSED"]}]}}`,
		`{"trade_state":"CLOSED"}`, "", 200)
	f.Add(`{"until":{"failure":[{"xml":"/a/b","gt":"1.5"}]},"hold_if":[{"all":[{"status":[429]},{"pointer":"/code","matches":"LIMIT$"}]}],`+
		`"evaluate":["200-299",404],"error_budget":0}`, `<a><b>2</b></a>`, "text/xml; charset=gbk", 404)
	f.Add(`{"until":{"success":[{"status":["200-299"]}],"failure":[{"pointer":"/a","exists":false},{"pointer":"","eq":1}]}}`, `{"a":1,"a":2}`, "", 204)
	f.Add(`{"until":{"success":[{"status":[1]}]},"until":1}`, "\xff", "", 500)
	f.Fuzz(func(t *testing.T, text, body, contentType string, status int) {
		rule, wrong := ParsePoll([]byte(text))
		if (rule == "") != (len(wrong) > 0) {
			t.Fatalf("%q, %v", rule, wrong)
		}
		if rule == "" {
			return
		}
		if again, wrong := ParsePoll([]byte(rule)); again != rule {
			t.Fatalf("%s becomes %s %v", rule, again, wrong)
		}
		r, wrong := CompilePoll([]byte(rule))
		if wrong != nil || *r.ErrorBudget < 0 || *r.ErrorBudget > 1000 {
			t.Fatalf("%s: %+v, %v", rule, r, wrong)
		}
		d := NewDocument(status, contentType, []byte(body))
		d.Seen = "a body"
		verdict, why := r.Conclude(PollName, d, nil)
		checkVerdict(t, r, verdict, why, NewDocument(status, contentType, []byte(body)))
	})
}

// checkVerdict compares a verdict with what the predicates say one by one.
func checkVerdict(t *testing.T, r *Poll, verdict Verdict, why *store.Rule, d *Document) {
	match := func(ps Predicates) bool {
		d.steps = 0
		return ps.Match(d)
	}
	success, failure, hold := match(r.Until.Success), match(r.Until.Failure), match(r.HoldIf)
	final := verdict == VerdictSuccess || verdict == VerdictFailure
	switch {
	case verdict == "" || why == nil || why.Expected == "" || why.Saw == "",
		max(len(why.Expected), len(why.Saw)) > maxSentence,
		final && (hold || success == failure || success != (verdict == VerdictSuccess) || !r.Evaluate.has(d.Status)),
		verdict == VerdictHold && !hold:
		t.Fatalf("on %d: success %v, failure %v, hold %v ends as %s %+v", d.Status, success, failure, hold, verdict, why)
	}
}
